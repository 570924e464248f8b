"""Files that are read while they grow: one by its lines, the newest of a folder, and when to look again."""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from paritas.clock import Clock
from paritas.collectors.dumps.decode import Decoder, decode_line
from paritas.collectors.dumps.lines import Line
from paritas.collectors.dumps.problem import Problem
from paritas.collectors.dumps.tail import FileTail
from paritas.records import TokenTrace

__all__ = ["Growing", "GrowingLines", "NewestFile", "until_stopped"]


class Growing(Protocol):
    """What grows."""

    def poll(self) -> Iterator[TokenTrace | Problem]:
        """Yield what was written since the last call."""

    def finish(self) -> Iterator[TokenTrace | Problem]:
        """Yield what stands after the last line end."""


def until_stopped(
    source: Growing, *, clock: Clock, stop: threading.Event, poll_s: float
) -> Iterator[TokenTrace | Problem]:
    """Look, wait, look again; the last look comes after the stop."""
    stopping = False
    while not stopping:
        stopping = stop.is_set()
        yield from source.poll()
        if not stopping:
            clock.wait(stop, timeout_s=poll_s)
    yield from source.finish()


class GrowingLines:
    """A file that grows by lines; owns it while open.

    Parameters
    ----------
    decoder : Decoder
        Makes traces of a line.
    limit_bytes : int
        Longest line.
    """

    def __init__(self, path: Path, decoder: Decoder, *, limit_bytes: int) -> None:
        self._path, self._decoder = path, decoder
        self._tail = FileTail(path, limit_bytes=limit_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._tail.close()

    def poll(self) -> Iterator[TokenTrace | Problem]:
        """Yield what the lines completed since the last call hold."""
        for item in self._tail.poll():
            yield from (item,) if isinstance(item, Problem) else self._decode(item)

    def finish(self) -> Iterator[TokenTrace | Problem]:
        """Yield what stands after the last line end."""
        for line in self._tail.finish():
            yield from self._decode(line)

    def _decode(self, line: Line) -> tuple[TokenTrace | Problem, ...]:
        return decode_line(line, self._decoder, file=str(self._path))


class NewestFile:
    """The file of a folder that still grows, if any; owns it.  What comes after it in the folder ends it."""

    def __init__(self) -> None:
        self._file: GrowingLines | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file being read; a second call does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def finish(self) -> Iterator[TokenTrace | Problem]:
        """Yield what stands after the last line end of the newest file."""
        if self._file is not None:
            yield from self._file.finish()

    def poll_file(self) -> Iterator[TokenTrace | Problem]:
        """Yield what was written to the file since the last call."""
        if self._file is not None:
            yield from self._file.poll()

    def end_file(self) -> Iterator[TokenTrace | Problem]:
        """Yield the rest of a file that grows no more, and close it."""
        yield from self.poll_file()
        yield from self.finish()
        self.close()

    def turn_to(self, file: GrowingLines) -> Iterator[TokenTrace | Problem]:
        """Read `file` from now on; yield what it holds."""
        self._file = file
        yield from self.poll_file()
