"""Read a dump while it is being written, until told to stop."""

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from paritas.clock import Clock
from paritas.collectors.dumps.decode import Decoder, decode_lines
from paritas.collectors.dumps.fields import Row
from paritas.collectors.dumps.growing import GrowingLines, NewestFile, until_stopped
from paritas.collectors.dumps.lines import is_folder, read_lines
from paritas.collectors.dumps.nemo_rl import NemoDecoder, nemo_files, step_of
from paritas.collectors.dumps.options import ReadOptions
from paritas.collectors.dumps.prime_rl import PrimeDecoder, is_stable, read_step, step_folders
from paritas.collectors.dumps.problem import Problem
from paritas.collectors.dumps.recognise import DumpFormat, format_of, unknown_content
from paritas.collectors.dumps.recorded import RecordedDecoder
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
    """Open what is there and read it until the stop."""
    with GrowingFolder(path, options) if is_folder(path) else GrowingFile(path, options) as source:
        yield from until_stopped(source, clock=clock, stop=stop, poll_s=poll_s)


class GrowingFile(GrowingLines):
    """One file that grows; its first object says which dump it is."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        super().__init__(path, self._decode_first, limit_bytes=options.limit_line_bytes)
        self._options = options

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
        case DumpFormat.RECORDED_REFERENCE:
            return RecordedDecoder(path, Role.REFERENCE, options)
        case DumpFormat.NEMO_RL:
            return NemoDecoder(path, options, ticks=count())
        case DumpFormat.PRIME_RL:
            return PrimeDecoder(options, ticks=count())


class GrowingFolder(NewestFile):
    """A folder that gets new NeMo-RL files or prime-rl steps; owns the file being read.

    A prime-rl step is read once: when a restarted trainer writes a step again, it is not.
    """

    def __init__(self, path: Path, options: ReadOptions) -> None:
        super().__init__()
        self._path, self._options = path, options
        self._ticks = count()
        self._steps_read: set[str] = set()
        self._file_step = -1

    def poll(self) -> Iterator[TokenTrace | Problem]:
        """Yield what new steps hold."""
        for folder in step_folders(self._path):
            if folder.name not in self._steps_read and is_stable(folder):
                self._steps_read.add(folder.name)
                yield from read_step(folder, self._options, ticks=self._ticks)
        yield from self.poll_file()
        for file in self._newer_files():
            yield from self._read(file)

    def _newer_files(self) -> list[Path]:
        return [file for file in nemo_files(self._path) if int(step_of(file)) > self._file_step]

    def _read(self, file: Path) -> Iterator[TokenTrace | Problem]:
        # The trainer writes a file in one go: once a newer one is there, the older is done.
        yield from self.end_file()
        self._file_step = int(step_of(file))
        decoder, limit_bytes = (
            NemoDecoder(file, self._options, ticks=self._ticks),
            self._options.limit_line_bytes,
        )
        if file.suffix == ".gz":  # an archived step does not grow
            yield from decode_lines(read_lines(file, limit_bytes=limit_bytes), decoder, file=str(file))
        else:
            yield from self.turn_to(GrowingLines(file, decoder, limit_bytes=limit_bytes))
