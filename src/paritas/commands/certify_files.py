"""The files of one certification: a recording that is complete or not there, and reports."""

import contextlib
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from paritas.errors import UsageError

__all__ = ["check_writable", "made_folder", "recording_folder", "write_line", "write_report", "writing"]

OUT_HINT = "the folder of a recording must be there or be made, with room for it"
WRITE_HINT = "is its folder there, writable and not full?"


@contextlib.contextmanager
def recording_folder(out: Path | None) -> Iterator[Path]:
    """Give the folder to record into; one that vanishes where none is to be kept."""
    if out is None:
        with TemporaryDirectory(prefix="paritas-certify-") as made:
            yield Path(made)
        return
    made_folder(out)
    yield out


def made_folder(folder: Path) -> None:
    """Make a folder; raises `UsageError` where the file system refuses."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made: {error.strerror}", hint=OUT_HINT) from error


@contextlib.contextmanager
def writing(path: Path) -> Iterator[gzip.GzipFile]:
    """Give a file that gets its name when it is complete; raises `UsageError` as `made_folder` does."""
    beside = path.with_name(f".{path.name}.part")
    try:
        with gzip.GzipFile(beside, "wb", compresslevel=6, mtime=0) as file:
            yield file
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}", hint=OUT_HINT) from error
    finally:
        beside.unlink(missing_ok=True)


def write_line(file: gzip.GzipFile, line: dict[str, object]) -> None:
    """Append one JSON line."""
    file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


def write_report(path: Path, content: bytes) -> None:
    """Write a report; raises `UsageError` where the file system refuses."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}", hint=WRITE_HINT) from error


def check_writable(path: Path) -> None:
    """Raise `UsageError` where a file could surely not be written after the run."""
    told = "Is a directory" if path.is_dir() else "No such file or directory"
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"{path}: cannot be written: {told}", hint=WRITE_HINT)
