"""One durable queue: segments on disk, a saved position, and an account of every number.

Appending may happen on many threads, under the lock of the spool; `take`, `settle` and `commit` are
for the one thread that ships.
"""

import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock

from paritas.agent.account import Account, Totals
from paritas.agent.claim import Batch, claim
from paritas.agent.eventlog import (
    Cursor,
    GapReason,
    Saved,
    SegmentLimits,
    SegmentReader,
    SegmentWriter,
    SyncMode,
    WriterSettings,
)
from paritas.agent.eventlog.durable import reading
from paritas.agent.eventlog.records import Packed
from paritas.agent.quarantine import Quarantine
from paritas.agent.reasons import DropReason
from paritas.agent.steady import SteadyClock
from paritas.clock import Clock
from paritas.errors import TransientError, UsageError

__all__ = ["OnLost", "Stream", "StreamSettings"]

OnLost = Callable[[range, DropReason], None]
FOREVER_S = 100 * 365 * 86_400.0
NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What one stream is called and may hold.

    Attributes
    ----------
    agent : str
        Name in the origin headers; with epoch and number it names one record for ever.
    limits : SegmentLimits
        Bytes on disk.
    sync : SyncMode
        When appends are made durable.
    max_age_s : float
        Age at which records are given up.
    """

    agent: str
    limits: SegmentLimits
    sync: SyncMode = SyncMode.INTERVAL
    max_age_s: float = FOREVER_S


class Stream:
    """A directory of segments with its position.

    Parameters
    ----------
    directory : Path
        Made if it is not there.
    lock : RLock
        Of the spool: counters of several streams are read together.
    on_lost : callable
        Told which numbers were given up and why, under the lock.

    Raises
    ------
    UsageError
        A later version wrote the directory.
    TransientError
        The disk refuses even an empty segment.
    """

    def __init__(
        self, directory: Path, settings: StreamSettings, *, clock: Clock, lock: RLock, on_lost: OnLost
    ) -> None:
        self.directory, self.settings = directory, settings
        self._clock, self._lock, self._on_lost = SteadyClock(clock), lock, on_lost
        self.cursor_resets = 0
        directory.mkdir(parents=True, exist_ok=True)
        self._quarantine = Quarantine(directory, limit_bytes=settings.limits.quarantine_bytes)
        self._cursor = Cursor(directory / "position")
        self._books = Account(head_seq=0, next_seq=0)
        self._open()

    def _open(self) -> None:
        saved = self._load()
        self._saved, released_seq = saved, saved.positions.get(0, 0)
        limits, sync = self.settings.limits, self.settings.sync
        told = WriterSettings(saved.log_id, limits, sync, GapReason.OVERFLOW)
        self._writer = SegmentWriter(
            self.directory, told, clock=self._clock, released_seq=released_seq, on_gap=self._on_gap
        )
        self._reader = SegmentReader(self.directory)
        self._resume()

    def _load(self) -> Saved:
        """Return the saved position; a damaged one is put away, and everything kept is sent again."""
        try:
            saved = self._cursor.load()
        except UsageError:
            self._cursor.path.replace(self._cursor.path.with_name("position.bad"))
            self.cursor_resets += 1
            saved = None
        return saved or Saved(secrets.token_hex(16))

    def _resume(self) -> None:
        """Go on with the totals of the last run; what vanished meanwhile had overflowed unsaved."""
        first_seq, next_seq = self._writer.first_seq, self._writer.next_seq
        head_seq = self._saved.positions.get(0, first_seq)  # nothing is known of what is behind it
        told = json.loads(self._saved.snapshot or b"{}")
        self._books = Account(head_seq=head_seq, next_seq=next_seq, **told)
        self._lose_below(first_seq)
        frames = self._reader.read(self._books.head_seq, limit=1).frames
        self._head_wall_ns = frames[0][1].wall_ns if frames else 0
        with suppress(TransientError):  # without room the old position stays: more is sent twice
            self.commit()

    def _on_gap(self, seqs: range, reason: GapReason) -> None:
        """Count what the writer dropped; damage is counted when the reader meets it."""
        if reason is GapReason.OVERFLOW:
            self._lose_below(seqs.stop)

    def _lose_below(self, seq: int) -> None:
        if lost := self._books.overflow(seq):
            self._on_lost(lost, DropReason.OVERFLOW)

    def append(self, packed: Packed) -> None:
        """Append one record.

        Raises
        ------
        TransientError
            The disk refused.
        PermanentError
            No frame holds so much.
        """
        with self._lock:
            self._writer.append(packed.head, packed.record.value)
            if self._books.accept() == self._books.head_seq:
                self._head_wall_ns = self._clock.now_ns()

    def take(self, *, limit: int, limit_bytes: int) -> Batch | None:
        """Return what comes next, or None if nothing waits; settle it before taking again.

        Raises
        ------
        TransientError
            The disk cannot be read.
        """
        start_seq, waiting = self._books.head_seq, self.waiting
        if not waiting:
            return None  # known without looking at the disk
        with reading(self.directory):
            frames = self._reader.read(start_seq, limit=min(limit, waiting), limit_bytes=limit_bytes)
        with self._lock:
            batch = claim(
                frames,
                start_seq=self._books.head_seq,
                agent=self.settings.agent,
                born_after_ns=self._clock.now_ns() - round(self.settings.max_age_s * NS),
            )
            self._books.take(batch.end_seq)
            for seqs, reason in batch.lost:
                self.lose(seqs, reason)
            if frames.frames:
                self._head_wall_ns = frames.frames[0][1].wall_ns
        return batch if self._books.has_in_flight else None

    def lose(self, seqs: range, reason: DropReason) -> None:
        """Count numbers that are in flight as dropped, and tell."""
        with self._lock:
            self._books.lose(seqs, reason)
            self._on_lost(seqs, reason)
        if reason in (DropReason.CORRUPT, DropReason.ENCODE_ERROR):
            self._quarantine.keep_segment_of(seqs.start)

    def settle(self, end_seq: int) -> None:
        """Count what is in flight below a number as delivered, save what was lost."""
        with self._lock:
            self._books.settle(end_seq)

    def give_back(self) -> None:
        """What is in flight waits again: it will be taken, and perhaps delivered, twice."""
        with self._lock:
            self._books.give_back()

    def commit(self) -> None:
        """Save the position, then delete what is behind it: never the other way round.

        Raises
        ------
        TransientError
            The disk refused; the old position stays.
        """
        with self._lock:
            totals, head_seq = self._books.settled(), self._books.head_seq
        told = {"delivered": totals.delivered, "dropped": totals.dropped}
        saved = replace(self._saved, positions={0: head_seq}, snapshot=json.dumps(told).encode())
        if saved == self._saved:
            return
        self._cursor.save(saved)
        self._saved = saved
        self._writer.release(head_seq)

    def flush(self) -> None:
        """Return when everything appended before survives a power loss; TransientError if it may not."""
        self._writer.flush()

    @property
    def unsynced_bytes(self) -> int:
        """Bytes appended since the last sync."""
        return self._writer.unsynced_bytes

    @property
    def waiting(self) -> int:
        """Records that are not settled; read without the lock."""
        return max(0, self._books.next_seq - self._books.head_seq)

    def totals(self) -> Totals:
        """Return where every record is, over all runs."""
        with self._lock:
            return self._books.totals()

    def size_bytes(self) -> int:
        """Bytes of all segments on disk."""
        return self._writer.counters().size_bytes

    def quarantined_bytes(self) -> int:
        """Bytes of damaged files that are kept."""
        return self._quarantine.size_bytes()

    def oldest_age_s(self) -> float:
        """Seconds that the oldest record not settled has waited; 0 when none waits."""
        with self._lock:
            if not self._books.totals().queued:
                return 0.0
            return max(0, self._clock.now_ns() - self._head_wall_ns) / NS

    def resize(self, settings: StreamSettings) -> None:
        """Go on with other limits; nothing may be in flight.

        Raises
        ------
        TransientError
            The disk refused.
        """
        with self._lock:
            if settings.limits != self.settings.limits:
                self.commit()
                self.close()
                self.settings = settings
                self._open()
            self.settings = settings

    def close(self) -> None:
        """Close the files; twice is fine."""
        self._reader.close()
        self._writer.close()
