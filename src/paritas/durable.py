"""Files that are the old one or the new one, also after a power cut."""

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["replace_file", "sync_directory"]


def replace_file(path: Path, parts: Iterable[bytes]) -> None:
    """Replace `path` by the joined parts: after a crash it holds the old bytes or the new, never a mix.

    One writer a file: what it writes beside is called ``NAME.new``.

    Raises
    ------
    OSError
        The disk refused; the old file is untouched.
    """
    fresh = path.with_name(path.name + ".new")
    try:
        with fresh.open("wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync_directory(path.parent)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def sync_directory(path: Path) -> None:
    """Make creations, renames and deletions in the directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
