"""A file that grows: what was appended since the last look, and what became of the file."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from paritas.collectors.dumps.lines import (
    GZIP_MAGIC,
    PLAIN_BLOCK_BYTES,
    Line,
    LineSplitter,
    blocks_of,
    check_regular,
    is_filled,
    unreadable,
)
from paritas.collectors.dumps.problem import Problem, ProblemReason
from paritas.errors import UsageError

__all__ = ["FileTail"]


class FileTail:
    """Reads a growing JSON Lines file; owns the open file.

    A line is given once its end is written.  A file that got shorter is read again from its
    start: what was added between the last look and the cut is lost to it.  One that was rotated is
    read to its end, which is there once the new one of that name holds something, then the new one.
    Both are told as problems.  A file that is cut and grows past the old size between two looks
    cannot be told from one that only grew, and one that came and went between them is not seen.

    Parameters
    ----------
    path : Path
        A plain file; it must exist.
    limit_bytes : int
        Longest line.

    Raises
    ------
    UsageError
        The file does not exist, is no regular file, is compressed, or cannot be read.
    """

    def __init__(self, path: Path, *, limit_bytes: int) -> None:
        check_regular(path)
        self._path, self._limit_bytes = path, limit_bytes
        self._splitter = LineSplitter(limit_bytes)
        self._file = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()

    def poll(self) -> Iterator[Line | Problem]:
        """Yield the lines completed since the last call, and what happened to the file."""
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            yield from self._restart(
                ProblemReason.FILE_SHRANK,
                "the file got shorter and is read from its start",
                hint="what was added just before is not read: rotate by renaming, not by copying and cutting",
            )
            self._file.seek(0)
        yield from self._appended()
        if self._is_replaced():
            yield from self._appended()  # what its writer added before it turned to the new one
            yield from self._restart(
                ProblemReason.FILE_REPLACED, "the file was replaced; the new one is read"
            )
            self._file.close()
            self._file = self._open()
            yield from self._appended()

    def finish(self) -> Iterator[Line]:
        """Yield what stands after the last line end, as a line without one."""
        yield from filter(is_filled, self._splitter.finish())

    def _restart(self, reason: ProblemReason, message: str, *, hint: str = "") -> Iterator[Line | Problem]:
        yield from self.finish()
        yield Problem(str(self._path), self._splitter.next_number, reason, message, hint)
        self._splitter = LineSplitter(self._limit_bytes)

    def _appended(self) -> Iterator[Line]:
        for block in blocks_of(self._file, PLAIN_BLOCK_BYTES):
            yield from filter(is_filled, self._splitter.feed(block))

    def _is_replaced(self) -> bool:
        """While the new file is empty its writer may still write to the old one, which it has open."""
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False  # a rotation may be half done; look again
        except OSError as error:
            raise unreadable(self._path, error) from error
        return there.st_size > 0 and not os.path.samestat(there, os.fstat(self._file.fileno()))

    def _open(self) -> BinaryIO:
        try:
            file = self._path.open("rb", buffering=0)
        except OSError as error:
            raise unreadable(self._path, error) from error
        if file.read(len(GZIP_MAGIC)) == GZIP_MAGIC:
            file.close()
            raise UsageError(
                f"{self._path}: is compressed and cannot be followed", hint="read it once it is finished"
            )
        file.seek(0)
        return file
