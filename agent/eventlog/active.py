"""The segment that is being appended to."""

import os
from pathlib import Path

from paritas.agent.eventlog.durable import disk_error

__all__ = ["ActiveSegment", "sync_and_close"]


class ActiveSegment:
    """An open segment; an append happens whole or not at all.

    Parameters
    ----------
    path : Path
        An existing segment without a torn end.

    Attributes
    ----------
    size_bytes : int
        Bytes of the file, header included.
    broken : bool
        Whether a failed append could not be undone: nothing may be appended any more.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.broken = False
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self._fd).st_size

    def append(self, *parts: bytes) -> None:
        """Write one frame, in its parts, at the end.

        Raises
        ------
        TransientError
            The disk refused; the file is as long as before.
        """
        size_bytes = sum(map(len, parts))
        try:
            written = os.writev(self._fd, parts)
            rest = memoryview(b"".join(parts))[written:] if written < size_bytes else b""
            while rest:  # a short write says that the next one will name the reason
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            self._undo()
            raise disk_error(self.path, error) from error
        self.size_bytes += size_bytes

    def _undo(self) -> None:
        try:
            os.ftruncate(self._fd, self.size_bytes)
        except OSError:
            self.broken = True

    def duplicate(self) -> int:
        """Return a second descriptor, so that it can be synced while this one is closed."""
        return os.dup(self._fd)

    def detach(self) -> int:
        """Return the descriptor, for the caller to close; nothing may be appended any more."""
        fd, self._fd = self._fd, -1
        return fd

    def close(self) -> None:
        """Close without syncing; twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def sync_and_close(descriptors: list[int], path: Path) -> None:
    """Make the files durable and close them all, whatever happens; TransientError if a sync failed."""
    failed: OSError | None = None
    for fd in descriptors:
        try:
            os.fdatasync(fd)
        except OSError as error:
            failed = error
        finally:
            os.close(fd)
    if failed is not None:
        raise disk_error(path, failed) from failed
