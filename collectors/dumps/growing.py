"""Files that are read while they grow: one by its lines, the newest of a folder, and when to look again."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from paritas.clock import Clock
from paritas.closing import Closing
from paritas.collectors.dumps.decode import Decoder, decode_line
from paritas.collectors.dumps.fields import Row
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


class GrowingLines(Closing):
    """A file that grows by lines; owns it while open.

    Lines are counted on where the file is cut or replaced: those without a time get one by their number.

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
        self._before, self._seen = 0, 0  # lines before this file, and with its own

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._tail.close()

    def poll(self) -> Iterator[TokenTrace | Problem]:
        """Yield what the lines completed since the last call hold."""
        for item in self._tail.poll():
            if isinstance(item, Problem):  # what comes now is another file
                self._before = self._seen
                yield item
            else:
                yield from self._decode(item)

    def finish(self) -> Iterator[TokenTrace | Problem]:
        """Yield what stands after the last line end."""
        for line in self._tail.finish():
            yield from self._decode(line)

    def _decode(self, line: Line) -> tuple[TokenTrace | Problem, ...]:
        self._seen = self._before + line.number
        return decode_line(line, self._decode_row, file=str(self._path))

    def _decode_row(self, row: Row, index: int) -> tuple[TokenTrace, ...]:
        return self._decoder(row, self._before + index)


class NewestFile(Closing):
    """The file of a folder that still grows, if any; owns it.  What comes after it in the folder ends it."""

    def __init__(self) -> None:
        self._file: GrowingLines | None = None

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
