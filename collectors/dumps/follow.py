"""Read a dump while it is being written, until told to stop."""

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from paritas.clock import Clock
from paritas.collectors.dumps.decode import Decoder, decode_line, decode_lines
from paritas.collectors.dumps.fields import Row
from paritas.collectors.dumps.lines import Line, is_folder, read_lines
from paritas.collectors.dumps.nemo_rl import NemoDecoder, nemo_files, step_of
from paritas.collectors.dumps.options import ReadOptions
from paritas.collectors.dumps.prime_rl import PrimeDecoder, is_stable, read_step, step_folders
from paritas.collectors.dumps.problem import Problem
from paritas.collectors.dumps.recognise import DumpFormat, format_of, unknown_content
from paritas.collectors.dumps.recorded import RecordedDecoder
from paritas.collectors.dumps.tail import FileTail
from paritas.records import Role, TokenTrace

__all__ = ["GrowingFile", "GrowingFolder", "follow"]


def follow(
    path: Path, options: ReadOptions, *, clock: Clock, stop: threading.Event, poll_s: float = 1.0
) -> Iterator[TokenTrace | Problem]:
    """Yield what a dump holds and then what is added to it, until `stop` is set.

    A file is read line by line as lines get their ends.  In a folder, prime-rl steps are
    read once they are ``STABLE``, each once, and NeMo-RL files in the order of their steps.
    What was written before `stop` is set is still given; a last line without end is then a
    problem unless it is whole.

    Parameters
    ----------
    path : Path
        A plain file, possibly still empty, or a folder.
    clock : Clock
        Its `wait` is the only place where this waits.
    poll_s : float
        Seconds between two looks.

    Raises
    ------
    UsageError
        At once: nothing is there.  Later: the first object of a file is of no known dump,
        or the file is compressed.  Bad content never raises.
    """
    is_folder(path)  # raises when nothing is there
    return watch(path, options, clock=clock, stop=stop, poll_s=poll_s)


def watch(
    path: Path, options: ReadOptions, *, clock: Clock, stop: threading.Event, poll_s: float
) -> Iterator[TokenTrace | Problem]:
    """Look, wait, look again; the last look comes after the stop."""
    with GrowingFolder(path, options) if is_folder(path) else GrowingFile(path, options) as source:
        stopping = False
        while not stopping:
            stopping = stop.is_set()
            yield from source.poll()
            if not stopping:
                clock.wait(stop, timeout_s=poll_s)
        yield from source.finish()


class GrowingFile:
    """One file that grows; owns it while open.

    Parameters
    ----------
    decoder : Decoder or None
        None takes the one for the first object in the file.
    """

    def __init__(self, path: Path, options: ReadOptions, *, decoder: Decoder | None = None) -> None:
        self._path, self._options, self._decoder = path, options, decoder
        self._tail = FileTail(path, limit_bytes=options.limit_line_bytes)

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
        return decode_line(line, self._decoder or self._decode_first, file=str(self._path))

    def _decode_first(self, row: Row, index: int) -> tuple[TokenTrace, ...]:
        found = format_of(row)
        if found is None:
            raise unknown_content(self._path)
        self._decoder = decoder_of(found, self._path, self._options)
        return self._decoder(row, index)


def decoder_of(found: DumpFormat, path: Path, options: ReadOptions) -> Decoder:
    """Return the decoder of a single file of a format."""
    match found:
        case DumpFormat.RECORDED_INFERENCE:
            return RecordedDecoder(path, Role.INFERENCE, options)
        case DumpFormat.RECORDED_TRAIN:
            return RecordedDecoder(path, Role.TRAIN, options)
        case DumpFormat.NEMO_RL:
            return NemoDecoder(path, options, ticks=count())
        case DumpFormat.PRIME_RL:
            return PrimeDecoder(options, ticks=count())


class GrowingFolder:
    """A folder that gets new NeMo-RL files or prime-rl steps; owns the file being read.

    A prime-rl step is read once: when a restarted trainer writes a step again, it is not.
    """

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self._path, self._options = path, options
        self._ticks = count()
        self._steps_read: set[str] = set()
        self._file: GrowingFile | None = None
        self._file_step = -1

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

    def poll(self) -> Iterator[TokenTrace | Problem]:
        """Yield what new steps hold."""
        for folder in step_folders(self._path):
            if folder.name not in self._steps_read and is_stable(folder):
                self._steps_read.add(folder.name)
                yield from read_step(folder, self._options, ticks=self._ticks)
        yield from self._poll_file()
        for file in self._newer_files():
            yield from self._turn_to(file)

    def finish(self) -> Iterator[TokenTrace | Problem]:
        """Yield what stands after the last line end of the newest file."""
        if self._file is not None:
            yield from self._file.finish()

    def _newer_files(self) -> list[Path]:
        return [file for file in nemo_files(self._path) if int(step_of(file)) > self._file_step]

    def _turn_to(self, file: Path) -> Iterator[TokenTrace | Problem]:
        # The trainer writes a file in one go: once a newer one is there, the older is done.
        yield from self._poll_file()
        yield from self.finish()
        self.close()
        self._file_step = int(step_of(file))
        decoder = NemoDecoder(file, self._options, ticks=self._ticks)
        if file.suffix == ".gz":  # an archived step does not grow
            lines = read_lines(file, limit_bytes=self._options.limit_line_bytes)
            yield from decode_lines(lines, decoder, file=str(file))
        else:
            self._file = GrowingFile(file, self._options, decoder=decoder)
            yield from self._poll_file()

    def _poll_file(self) -> Iterator[TokenTrace | Problem]:
        if self._file is not None:
            yield from self._file.poll()
