"""Appending to a directory of segments: bounded bytes, oldest dropped first, every record accounted for."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from paritas.agent.eventlog.active import ActiveSegment, sync_and_close
from paritas.agent.eventlog.durable import disk_error, sync_directory
from paritas.agent.eventlog.frames import FRAME_HEADER_BYTES, MAX_PAYLOAD_BYTES, frame_header
from paritas.agent.eventlog.ledger import Ledger, SegmentCounters
from paritas.agent.eventlog.records import GapReason, SkipReason
from paritas.agent.eventlog.recovery import Recovered, recover
from paritas.agent.eventlog.segments import FILE_HEADER_BYTES, create_segment
from paritas.agent.eventlog.settings import SyncMode, WriterSettings
from paritas.clock import Clock
from paritas.errors import PermanentError, UsageError

__all__ = ["OnGap", "SegmentWriter"]

OnGap = Callable[[range, GapReason], None]
# Rolled segments that may wait for their sync; beyond it the appender syncs one itself, so that a
# sync thread that died cannot make open files pile up.
MAX_ROLLED_FILES = 4


@dataclass(slots=True)
class _Kept:
    """One segment on disk, as the writer remembers it."""

    first_seq: int
    path: Path
    size_bytes: int


def _ignore(_seqs: range, _reason: GapReason) -> None:
    """Do nothing with a gap: for writers whose counters are enough."""


class SegmentWriter:
    """The one writer of a directory of segments; threads may share it.

    It holds no lock on the directory: whoever owns it takes a `WriterLock` first.

    Parameters
    ----------
    directory : Path
        Made if it is not there.
    settings : WriterSettings
        Identity, sizes and durability.
    clock : Clock
        Stamps frames and epochs.
    released_seq : int
        Everything below was delivered before this opening (the cursor's position).
    on_gap : callable
        Told the numbers of every run of records given up, after they are gone, on the appending thread.

    Raises
    ------
    TransientError
        The disk refused.
    UsageError
        A later version wrote the directory.
    """

    def __init__(
        self,
        directory: Path,
        settings: WriterSettings,
        *,
        clock: Clock,
        released_seq: int = 0,
        on_gap: OnGap = _ignore,
    ) -> None:
        self._directory, self._settings, self._clock, self._on_gap = directory, settings, clock, on_gap
        self._lock, self._sync_lock = threading.RLock(), threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)
        found = recover(directory, quarantine_limit_bytes=settings.limits.quarantine_bytes)
        self._found = found
        self._kept = deque(_Kept(s.first_seq, s.path, s.path.stat().st_size) for s in found.segments)
        # A cursor may be ahead of the segments after a power loss: its numbers are not given again.
        next_seq = max(found.next_seq, released_seq)
        first_seq = self._kept[0].first_seq if self._kept else next_seq
        self._ledger = Ledger(head_seq=max(released_seq, first_seq), next_seq=next_seq)
        self._rolled: list[int] = []
        self._unsynced_bytes = 0
        self._closed = False
        self._epoch = max(clock.now_ns(), found.last_epoch + 1)
        self._active = self._create()
        self._report_corrupt(found)

    def _report_corrupt(self, found: Recovered) -> None:
        if found.corrupt_seqs:
            self._on_gap(found.corrupt_seqs, GapReason.CORRUPT)

    @property
    def first_seq(self) -> int:
        """Number of the oldest record kept; `next_seq` when there is none."""
        return self._kept[0].first_seq

    @property
    def next_seq(self) -> int:
        """Number of the next record."""
        return self._ledger.next_seq

    @property
    def epoch(self) -> int:
        """Epoch of the records appended now, Unix ns."""
        return self._epoch

    @property
    def unsynced_bytes(self) -> int:
        """Bytes appended since the last sync."""
        return self._unsynced_bytes

    def append(self, payload: bytes, rest: bytes = b"") -> int:
        """Append one record and return its number; in mode ``always`` it is durable then.

        Parameters
        ----------
        payload, rest : bytes
            The payload may come in two parts, so that nobody has to join them.

        Raises
        ------
        PermanentError
            The payload is larger than a frame may be.
        TransientError
            The disk refused; nothing was appended, or (mode ``always``) it may not be durable.
        """
        size_bytes = len(payload) + len(rest)
        if size_bytes > MAX_PAYLOAD_BYTES:
            raise PermanentError(
                f"a record of {size_bytes} bytes exceeds the limit of {MAX_PAYLOAD_BYTES}",
                hint="split it by trace, or into segments",
            )
        with self._lock:
            seq = self._append(payload, rest)
        if self._settings.sync is SyncMode.ALWAYS:
            self.flush()
        return seq

    def _append(self, payload: bytes, rest: bytes) -> int:
        if self._closed:
            raise UsageError(f"{self._directory}: the writer is closed")
        size_bytes = FRAME_HEADER_BYTES + len(payload) + len(rest)
        if self._must_roll(size_bytes):
            self._roll()
        self._make_room(size_bytes)
        header = frame_header(payload, rest, seq=self._ledger.next_seq, wall_ns=self._clock.now_ns())
        self._active.append(header, payload, rest)
        self._kept[-1].size_bytes = self._active.size_bytes
        self._unsynced_bytes += size_bytes
        return self._ledger.accept()

    def _must_roll(self, size_bytes: int) -> bool:
        full = self._active.size_bytes + size_bytes > self._settings.limits.segment_bytes
        return self._active.broken or (full and self._active.size_bytes > FILE_HEADER_BYTES)

    def _roll(self) -> None:
        old, self._active = self._active, self._create()
        if self._settings.sync is SyncMode.NONE:
            old.close()
        else:
            self._rolled.append(old.detach())
        if len(self._rolled) > MAX_ROLLED_FILES:
            sync_and_close([self._rolled.pop(0)], old.path)

    def _create(self) -> ActiveSegment:
        seq = self._ledger.next_seq
        path = create_segment(self._directory, log_id=self._settings.log_id, epoch=self._epoch, first_seq=seq)
        if self._kept and self._kept[-1].first_seq == seq:
            self._kept.pop()  # it was empty, and has just been replaced
        active = ActiveSegment(path)
        self._kept.append(_Kept(seq, path, active.size_bytes))
        return active

    def _make_room(self, size_bytes: int) -> None:
        while len(self._kept) > 1 and self._size_bytes() + size_bytes > self._settings.limits.total_bytes:
            self._delete_oldest()
            lost = self._ledger.drop_below(self._kept[0].first_seq, self._settings.drop_reason)
            if lost:
                self._on_gap(lost, self._settings.drop_reason)

    def _size_bytes(self) -> int:
        return sum(kept.size_bytes for kept in self._kept)

    def _delete_oldest(self) -> None:
        try:
            self._kept[0].path.unlink(missing_ok=True)
            sync_directory(self._directory)
        except OSError as error:
            raise disk_error(self._kept[0].path, error) from error
        self._kept.popleft()

    def release(self, below_seq: int, *, skipped: Mapping[SkipReason, int] | None = None) -> None:
        """Count everything below a number as delivered and delete the segments that hold nothing else.

        Save the cursor first: a segment that is gone cannot be delivered again.

        Parameters
        ----------
        below_seq : int
            One more than the last delivered number.
        skipped : mapping of SkipReason to int
            How many of the numbers the reader could not deliver; they are counted as dropped.
        """
        with self._lock:
            self._ledger.release(below_seq, skipped=skipped or {})
            while len(self._kept) > 1 and self._kept[1].first_seq <= below_seq:
                self._delete_oldest()

    def flush(self) -> None:
        """Return when everything appended before the call survives a power loss.

        Raises
        ------
        TransientError
            The disk failed: what was not durable before may never be.
        """
        with self._sync_lock:
            with self._lock:
                is_behind = self._unsynced_bytes and not self._closed
                # It may fail, so before anything changes.
                active = [self._active.duplicate()] if is_behind else []
                waiting, self._rolled = [*self._rolled, *active], []
                self._unsynced_bytes = 0
            sync_and_close(waiting, self._directory)

    def counters(self) -> SegmentCounters:
        """Return one consistent reading of all counters."""
        with self._lock:
            ledger = self._ledger
            return SegmentCounters(
                recovered=ledger.recovered,
                accepted=ledger.accepted,
                delivered=ledger.delivered,
                dropped=dict(ledger.dropped),
                queued=ledger.queued,
                size_bytes=self._size_bytes(),
                unsynced_bytes=self._unsynced_bytes,
                torn_bytes=self._found.torn_bytes,
                quarantined_bytes=self._found.quarantined_bytes,
            )

    def close(self) -> None:
        """Flush (unless the mode is ``none``) and close; twice is fine."""
        if self._closed:
            return
        try:
            if self._settings.sync is not SyncMode.NONE:
                self.flush()
        finally:
            with self._lock:
                self._closed = True
                self._active.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
