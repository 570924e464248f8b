"""One writer at a time: a lock that dies with its process."""

import fcntl
import os
from pathlib import Path

from paritas.closing import Closing
from paritas.errors import UsageError

__all__ = ["WriterLock"]


class WriterLock(Closing):
    """An exclusive lock on a directory; the operating system frees it, also after ``kill -9``.

    Parameters
    ----------
    directory : Path
        Must exist; gets a file ``lock`` that names the holder and stays behind.

    Raises
    ------
    UsageError
        Another writer holds it.
    """

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._fd, 20, 0).decode(errors="replace").strip() or "unknown"
            self.close()
            raise UsageError(
                f"{directory}: process {holder} is already writing here",
                hint="a log has one writer: stop the other, or give each its own directory",
            ) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)

    def close(self) -> None:
        """Let the next writer in; twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
