"""From bytes to lines: plain or gzip, bounded, cut where the writer was cut."""

import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from paritas.collectors.dumps.problem import LineError, Problem, ProblemReason
from paritas.errors import UsageError

__all__ = [
    "Line",
    "LineSplitter",
    "check_file",
    "check_regular",
    "entries_in",
    "is_folder",
    "read_lines",
    "reading",
]

# 16 KiB of gzip give at most 16 MiB (ratio 1032): a crafted file cannot fill the memory.
GZIP_BLOCK_BYTES = 16 << 10
PLAIN_BLOCK_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
GZIP_WINDOW = 31  # zlib's code for "gzip header and trailer, 32 KiB window"


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end.

    Attributes
    ----------
    number : int
        From 1.
    content : bytes or None
        None when the line was longer than the limit and has been skipped.
    whole : bool
        Whether its end was seen; false only for the last line of a stream.
    """

    number: int
    content: bytes | None
    whole: bool = True


class LineSplitter:
    r"""Cuts blocks of bytes into lines and keeps what has no end yet.

    Parameters
    ----------
    limit_bytes : int
        A longer line is skipped up to its end, and reported with no content.

    Examples
    --------
    >>> splitter = LineSplitter(limit_bytes=100)
    >>> [line.content for line in splitter.feed(b"one\ntw")]
    [b'one']
    >>> [line.content for line in splitter.feed(b"o\n")]
    [b'two']
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._number = 0

    def feed(self, block: bytes) -> Iterator[Line]:
        """Yield the lines that `block` completes; exhaust it before the next call."""
        start = 0
        while (end := block.find(b"\n", start)) >= 0:
            self._keep(block[start:end])
            yield self._take(whole=True)
            start = end + 1
        self._keep(block[start:])

    def finish(self) -> Iterator[Line]:
        """Yield the last line if the stream ended inside it."""
        if self._pending_bytes:
            yield self._take(whole=False)

    @property
    def next_number(self) -> int:
        """Return the number of the line that is being gathered."""
        return self._number + 1

    def _keep(self, part: bytes) -> None:
        self._pending_bytes += len(part)
        if self._pending_bytes > self._limit_bytes:
            self._pending.clear()
        elif part:
            self._pending.append(part)

    def _take(self, *, whole: bool) -> Line:
        too_long = self._pending_bytes > self._limit_bytes
        content = None if too_long else b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        self._number += 1
        return Line(self._number, content, whole)


def is_folder(path: Path) -> bool:
    """Return whether `path` is a folder; `UsageError` when nothing is there."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        raise unreadable(path, error) from error


def check_file(path: Path) -> None:
    """Raise `UsageError` unless `path` is there and no folder."""
    if is_folder(path):
        raise UsageError(f"{path}: is a folder, expected a file", hint="name one file in it")


def check_regular(path: Path) -> None:
    """Raise `UsageError` unless `path` is a file that can be read again: a pipe gives its bytes once."""
    check_file(path)
    if not path.is_file():
        raise UsageError(
            f"{path}: is no regular file, and has to be read twice", hint="write it to a file first"
        )


def entries_in(folder: Path) -> list[Path]:
    """Return what a folder holds, in the order of the names.

    Raises
    ------
    UsageError
        It does not exist, is no folder, or cannot be read.
    """
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise unreadable(folder, error) from error


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """Hold a file open, unbuffered; an error of the file system becomes a `UsageError`."""
    check_file(path)
    try:
        with path.open("rb", buffering=0) as file:
            yield file
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> UsageError:
    """Return the error of a path that the system does not give."""
    if isinstance(error, FileNotFoundError):
        return UsageError(f"{path}: no such file or folder", hint="check the name of the dump")
    return UsageError(f"{path}: cannot be read: {error.strerror}", hint="check the path and its permissions")


def read_lines(path: Path, *, limit_bytes: int) -> Iterator[Line | Problem]:
    """Yield every line of a plain or gzip file that is not blank, then at most one problem of the file.

    Whether it is gzip shows in its first bytes, not in its name.  A gzip file that was cut
    gives every line that is whole and a problem for the rest.

    Raises
    ------
    UsageError
        The file does not exist, is a folder, or cannot be read.
    """
    splitter, seen = LineSplitter(limit_bytes), False
    with reading(path) as file:
        try:
            for block in plain_blocks(file):
                for line in filter(is_filled, splitter.feed(block)):
                    seen = True
                    yield line
        except LineError as error:
            yield error.at(str(path), splitter.next_number)
            return
    for line in filter(is_filled, splitter.finish()):
        seen = True
        yield line
    if not seen:
        yield Problem(str(path), 0, ProblemReason.EMPTY_FILE, "no line in it", "did its writer get to write?")


def is_filled(line: Line) -> bool:
    """Return whether the line holds more than white space."""
    return line.content is None or bool(line.content.strip())


def plain_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the decompressed content in blocks; `LineError` when gzip breaks off."""
    first = file.read(GZIP_BLOCK_BYTES)
    if first.startswith(GZIP_MAGIC):
        return inflate(chain([first], blocks_of(file, GZIP_BLOCK_BYTES)))
    return chain([first], blocks_of(file, PLAIN_BLOCK_BYTES))


def blocks_of(file: BinaryIO, block_bytes: int) -> Iterator[bytes]:
    """Yield the rest of a file."""
    return iter(lambda: file.read(block_bytes), b"")


def inflate(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Decompress gzip members one after another, giving all that is whole before failing.

    The standard library's file object raises before it hands out what it has decoded.
    """
    member = zlib.decompressobj(GZIP_WINDOW)
    for block in blocks:
        # Zeros may pad a member, as tapes and some copies do; no member starts with one.
        rest = block.lstrip(b"\0") if member.eof else block
        while rest:
            if member.eof:
                member = zlib.decompressobj(GZIP_WINDOW)
            yield decompress(member, rest)
            rest = member.unused_data.lstrip(b"\0")
    if not member.eof:
        raise LineError(
            ProblemReason.TRUNCATED_GZIP,
            "the gzip stream ends early",
            hint="whole lines before this were read; copy the file again",
        )


def decompress(member: "zlib._Decompress", block: bytes) -> bytes:
    """Decompress one block of a member."""
    try:
        return member.decompress(block)
    except zlib.error as error:
        raise LineError(
            ProblemReason.CORRUPT_GZIP,
            "the gzip stream is damaged",
            hint="whole lines before this were read; copy the file again",
        ) from error
