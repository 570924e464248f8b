"""Writes that survive a power loss, and one error for all the ways a disk says no."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from paritas.durable import replace_file, sync_directory
from paritas.errors import TransientError, UsageError

__all__ = ["disk_error", "opening", "reading", "sync_directory", "write_atomically"]


def write_atomically(path: Path, parts: Iterable[bytes]) -> None:
    """Replace `path` by the joined parts: after a crash it holds the old bytes or the new, never a mix.

    Raises
    ------
    TransientError
        The disk refused; the old file is untouched.
    """
    try:
        replace_file(path, parts)
    except OSError as error:
        raise disk_error(path, error) from error


def disk_error(path: Path, error: OSError) -> TransientError:
    """Return our error for a failed write; the same write may work once there is room."""
    return TransientError(
        f"{path}: cannot write: {error.strerror}",
        hint="free space on the volume, or lower limit_bytes",
    )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the operating system says while files are read into a TransientError."""
    try:
        yield
    except OSError as error:
        raise TransientError(
            f"{error.filename or path}: cannot read: {error.strerror}",
            hint="check the volume; reading goes on where it was",
        ) from error


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Turn what the operating system says while a log is opened into a UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{error.filename or path}: cannot be opened: {error.strerror}",
            hint="check that it is a log's and that this user may write it",
        ) from error
