"""Reading a directory of segments forward, while another process may be writing it."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paritas.agent.eventlog.frames import Frame, Scan
from paritas.agent.eventlog.records import SkipReason
from paritas.agent.eventlog.segments import Segment, SegmentScanner, list_segments
from paritas.closing import Closing

__all__ = ["Frames", "SegmentReader"]

# Bytes one read may return whatever its limit: bounds the memory of a batch.
BATCH_LIMIT_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Frames:
    """What one read gave: ``len(frames) + sum(skipped.values()) == next_seq - seq``.

    Attributes
    ----------
    frames : tuple of (int, Frame)
        Epoch of the writer that appended it (0 if its segment's header is damaged) and frame, in order.
    next_seq : int
        Where to read on.
    skipped : mapping of SkipReason to int
        Numbers in between that gave no frame.
    """

    frames: tuple[tuple[int, Frame], ...]
    next_seq: int
    skipped: Mapping[SkipReason, int] = field(default_factory=dict)


class _Gathering:
    """One read under way: what it has, the number it wants next, how much more it may take."""

    def __init__(self, seq: int, *, limit: int, limit_bytes: int) -> None:
        self.seq, self.limit, self.limit_bytes = seq, limit, limit_bytes
        self._frames: list[tuple[int, Frame]] = []
        self._skipped: Counter[SkipReason] = Counter()

    @property
    def open(self) -> bool:
        """Whether there is room for another frame."""
        return self.limit > 0 and self.limit_bytes > 0

    def take(self, found: Scan, *, epoch: int) -> None:
        """Take frames of one segment; numbers are dense there, so a jump is damage."""
        for frame in found.frames:
            self.skip_to(frame.seq, SkipReason.CORRUPT)
            self.seq += 1
            self.limit_bytes -= frame.size_bytes
        self.limit -= len(found.frames)
        self._frames.extend((epoch, frame) for frame in found.frames)

    def skip_to(self, seq: int, reason: SkipReason) -> None:
        """Count the numbers up to `seq` as skipped."""
        if seq > self.seq:
            self._skipped[reason] += seq - self.seq
            self.seq = seq

    def result(self) -> Frames:
        """Return what was gathered."""
        return Frames(tuple(self._frames), self.seq, dict(self._skipped))


class SegmentReader(Closing):
    """Reads by number; asked for numbers in order it goes on where it stood.

    A frame at the end that is not whole is "not yet"; the same frame in a segment that has a
    successor is lost.  Not to be shared between threads.

    Parameters
    ----------
    directory : Path
        A directory of segments; `read` raises FileNotFoundError if there is none.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._here: SegmentScanner | None = None
        self._tail: SegmentScanner | None = None
        self._unsynced: set[Path] = set()

    def read(self, seq: int, *, limit: int, limit_bytes: int = BATCH_LIMIT_BYTES) -> Frames:
        """Return at most `limit` frames from number `seq` on; fewer, also none, if no more are there yet."""
        gathering = _Gathering(seq, limit=limit, limit_bytes=limit_bytes)
        segments = list_segments(self._directory)
        while segments and gathering.open:
            # A segment's end is final only if a listing older than the reading already held its
            # successor, for then the writer appended to it no more.
            if self._step(segments, gathering):
                continue
            newer = list_segments(self._directory)
            if newer == segments:
                break
            segments = newer
        return gathering.result()

    def _step(self, segments: list[Segment], gathering: _Gathering) -> bool:
        """Read on in the right segment, or move to the next; False when neither is possible."""
        scanner = self._stand(segments, gathering)
        if scanner is None:
            return False
        found = scanner.step(
            wanted_seq=gathering.seq, limit=gathering.limit, limit_bytes=gathering.limit_bytes
        )
        if found is None:
            return self._move_on(scanner, segments, gathering)
        self._unsynced.add(scanner.segment.path)
        gathering.take(found, epoch=scanner.header.epoch if scanner.header else 0)
        return True

    def _stand(self, segments: list[Segment], gathering: _Gathering) -> SegmentScanner | None:
        """Return a scanner at or before the wanted number; None if its segment went away just now."""
        if self._here is not None and _is_right(self._here, segments, gathering.seq):
            return self._here
        gathering.skip_to(segments[0].first_seq, SkipReason.EXPIRED)
        target = [segment for segment in segments if segment.first_seq <= gathering.seq][-1]
        self._close_here()
        try:
            self._here = SegmentScanner(target)
        except FileNotFoundError:
            return None
        return self._here

    def _move_on(self, scanner: SegmentScanner, segments: list[Segment], gathering: _Gathering) -> bool:
        """Leave a segment that has a successor, counting what it should have held."""
        later = [segment for segment in segments if segment.first_seq > scanner.segment.first_seq]
        if not later:
            return False
        gathering.skip_to(later[0].first_seq, _loss(scanner, segments))
        self._close_here()
        return True

    def first_seq(self) -> int:
        """Return the number of the oldest record kept; 0 when there has never been one."""
        segments = list_segments(self._directory)
        return segments[0].first_seq if segments else 0

    def end_seq(self) -> int:
        """Return one more than the number of the last good record."""
        while segments := list_segments(self._directory):
            if self._tail is None or self._tail.segment != segments[-1]:
                self._close_tail()
                try:
                    self._tail = SegmentScanner(segments[-1])
                except FileNotFoundError:  # replaced or dropped since it was listed
                    continue
            self._tail.run_to_end()
            return self._tail.next_seq
        return 0

    def sync(self) -> None:
        """Make durable what was read, whoever wrote it: do this before saving a position behind it."""
        while self._unsynced:
            try:
                fd = os.open(self._unsynced.pop(), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # dropped meanwhile: there is nothing left to lose
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)

    def _close_here(self) -> None:
        if self._here is not None:
            self._here.close()
            self._here = None

    def _close_tail(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def close(self) -> None:
        """Close the files; twice is fine."""
        self._close_here()
        self._close_tail()


def _is_right(scanner: SegmentScanner, segments: list[Segment], seq: int) -> bool:
    """Return whether `seq` is ahead of the scanner and in its segment, which may be deleted but not replaced."""
    mine = scanner.segment
    moved_past = any(mine.first_seq < segment.first_seq <= seq for segment in segments)
    replaced = any(segment.first_seq == mine.first_seq and segment != mine for segment in segments)
    return mine.first_seq <= seq and scanner.next_seq <= seq and not moved_past and not replaced


def _loss(scanner: SegmentScanner, segments: list[Segment]) -> SkipReason:
    """Return what happened to numbers between a segment that was read to its end and the next one."""
    if all(segment.first_seq != scanner.segment.first_seq for segment in segments):
        return SkipReason.EXPIRED  # it was dropped while it was read, and so was what followed it
    damaged = scanner.size_bytes() > scanner.good_end_byte
    return SkipReason.CORRUPT if damaged else SkipReason.MISSING
