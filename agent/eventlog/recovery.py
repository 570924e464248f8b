"""What a writer finds when it opens a directory again, and how it mends the end of it."""

import os
from dataclasses import dataclass
from pathlib import Path

from paritas.agent.eventlog.durable import sync_directory
from paritas.agent.eventlog.frames import Fault, last_plausible_seq, parse
from paritas.agent.eventlog.segments import FORMAT, Segment, SegmentScanner, list_segments
from paritas.errors import UsageError

__all__ = ["Recovered", "recover"]

QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Recovered:
    """What is on disk after recovery.

    Attributes
    ----------
    segments : tuple of Segment
        Oldest first.
    next_seq : int
        The number the next record gets.
    corrupt_seqs : range
        Numbers whose records were damaged at the end of the last segment and are given up.
    last_epoch : int
        Epoch of the last segment; 0 when unknown.
    torn_bytes, quarantined_bytes : int
        Cut off as an unfinished append; cut off as damaged.
    """

    segments: tuple[Segment, ...] = ()
    next_seq: int = 0
    corrupt_seqs: range = range(0)
    last_epoch: int = 0
    torn_bytes: int = 0
    quarantined_bytes: int = 0


def recover(directory: Path, *, quarantine_limit_bytes: int) -> Recovered:
    """Mend the end of the last segment and say where to go on.  Earlier segments are not read.

    An append that was cut by a crash is cut off: it was never acknowledged, and its number is used
    again.  Damaged bytes behind the last good frame are moved to ``quarantine/``, as long as that
    folder stays below its limit, and their numbers are not used again.

    Raises
    ------
    UsageError
        A later version wrote the segment.
    """
    for leftover in directory.glob("*.new"):
        leftover.unlink()
    segments = tuple(list_segments(directory))
    if not segments:
        return Recovered()
    scanner = SegmentScanner(segments[-1])
    try:
        return _mend(scanner, segments, quarantine_limit_bytes)
    finally:
        scanner.close()


def _mend(scanner: SegmentScanner, segments: tuple[Segment, ...], quarantine_limit_bytes: int) -> Recovered:
    header, path = scanner.header, scanner.segment.path
    if header is not None and header.format > FORMAT:
        raise UsageError(
            f"{path}: written in segment format {header.format}, this version knows {FORMAT}",
            hint="upgrade paritas, or use another directory",
        )
    scanner.run_to_end()
    rest, window, epoch = scanner.rest(), scanner.seq_window(), header.epoch if header else 0
    if parse(memoryview(rest), 0, window) is Fault.SHORT:
        _truncate(path, scanner.good_end_byte, bool(rest))
        return Recovered(segments, scanner.next_seq, range(0), epoch, torn_bytes=len(rest))
    _quarantine(path, scanner.good_end_byte, rest, limit_bytes=quarantine_limit_bytes)
    _truncate(path, scanner.good_end_byte, changed=True)
    last_lost = last_plausible_seq(rest, window)
    lost = range(scanner.next_seq, 1 + (scanner.next_seq if last_lost is None else last_lost))
    return Recovered(segments, lost.stop, lost, epoch, quarantined_bytes=len(rest))


def _truncate(path: Path, size_bytes: int, changed: bool) -> None:
    if not changed:
        return
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, size_bytes)
        os.fsync(fd)
    finally:
        os.close(fd)


def _quarantine(path: Path, at_byte: int, damaged: bytes, *, limit_bytes: int) -> None:
    """Keep damaged bytes for a person to look at, if there is room for them."""
    folder = path.parent / QUARANTINE
    folder.mkdir(exist_ok=True)
    kept_bytes = sum(file.stat().st_size for file in folder.iterdir())
    if kept_bytes + len(damaged) <= limit_bytes:
        (folder / f"{path.stem}-{at_byte}.bad").write_bytes(damaged)
        sync_directory(folder)
