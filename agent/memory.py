"""Where records wait while the disk refuses: bounded, oldest dropped first, gone with the process."""

from collections import deque
from threading import RLock

from paritas.agent.account import Account, Totals
from paritas.agent.claim import Batch, Entry
from paritas.agent.reasons import DropReason
from paritas.agent.stream import OnLost
from paritas.clock import Clock
from paritas.wire import Origin, WireRecord

__all__ = ["MemoryQueue"]

NS = 1_000_000_000
ENTRY_BYTES = 400  # of Python objects beside key and value


class MemoryQueue:
    """A queue in memory that keeps the same account as a `Stream`.

    Parameters
    ----------
    agent : str
        Name in the origin headers; with the time of its making as epoch.
    limit_bytes : int
        Most bytes kept.
    """

    def __init__(self, agent: str, *, limit_bytes: int, clock: Clock, lock: RLock, on_lost: OnLost) -> None:
        self.limit_bytes = limit_bytes
        self._agent, self._epoch, self._clock = agent, clock.now_ns(), clock
        self._lock, self._on_lost = lock, on_lost
        self._books = Account(head_seq=0, next_seq=0, overflow_reason=DropReason.RING_OVERFLOW)
        self._waiting: deque[tuple[Entry, int]] = deque()
        self._bytes = self._moved = 0

    def append(self, record: WireRecord) -> None:
        """Keep one record; the oldest that are not in flight go if there is no room."""
        with self._lock:
            seq = self._books.accept()
            self._waiting.append((Entry(seq, Origin(self._agent, self._epoch, seq), record), self._now()))
            self._bytes += _size_bytes(record)
            if self._bytes > self.limit_bytes:
                self._make_room()

    def _now(self) -> int:
        return self._clock.monotonic_ns()

    def _make_room(self) -> None:
        while self._bytes > self.limit_bytes and len(self._waiting) > 1:
            self._bytes -= _size_bytes(self._waiting.popleft()[0].record)
        if lost := self._books.overflow(self._waiting[0][0].seq):
            self._on_lost(lost, DropReason.RING_OVERFLOW)

    def take(self, *, limit: int, limit_bytes: int) -> Batch | None:
        """Return what comes next, or None if nothing waits; it leaves the queue now."""
        entries: list[Entry] = []
        with self._lock:
            while self._waiting and len(entries) < limit and limit_bytes > 0:
                entry, _ = self._waiting.popleft()
                entries.append(entry)
                limit_bytes -= _size_bytes(entry.record)
                self._bytes -= _size_bytes(entry.record)
            if not entries:
                return None
            self._books.take(entries[-1].seq + 1)
        return Batch(tuple(entries), entries[-1].seq + 1)

    def lose(self, seqs: range, reason: DropReason) -> None:
        """Count numbers that are in flight as dropped, and tell."""
        with self._lock:
            self._books.lose(seqs, reason)
            self._on_lost(seqs, reason)

    def settle(self, end_seq: int) -> None:
        """Count what is in flight below a number as delivered, save what was lost."""
        with self._lock:
            self._books.settle(end_seq)

    def first(self) -> WireRecord | None:
        """Return the oldest record that waits."""
        return self._waiting[0][0].record if self._waiting else None

    def move_first(self) -> None:
        """Forget the oldest record that waits: it has got a number on disk.  Nothing may be in flight."""
        with self._lock:
            entry, _ = self._waiting.popleft()
            self._bytes -= _size_bytes(entry.record)
            self._books.take(entry.seq + 1)
            self._books.settle(entry.seq + 1)
            self._moved += 1

    def give_up(self) -> int:
        """Count everything that waits as lost with the process; return how many."""
        count = 0
        while batch := self.take(limit=1_000_000, limit_bytes=2**62):
            self.lose(range(batch.entries[0].seq, batch.end_seq), DropReason.SHUTDOWN)
            self.settle(batch.end_seq)
            count += len(batch.entries)
        return count

    def totals(self) -> Totals:
        """Return where every record is; one that moved to the disk counts there alone."""
        with self._lock:
            told = self._books.totals()
            return Totals(
                told.accepted - self._moved, told.delivered - self._moved, told.dropped, told.queued
            )

    @property
    def waiting(self) -> int:
        """Records that wait."""
        return len(self._waiting)

    @property
    def size_bytes(self) -> int:
        """Bytes that wait."""
        return self._bytes

    def oldest_age_s(self) -> float:
        """Seconds that the oldest record has waited; 0 when none waits."""
        with self._lock:
            return (self._now() - self._waiting[0][1]) / NS if self._waiting else 0.0


def _size_bytes(record: WireRecord) -> int:
    return len(record.value) + len(record.key) + ENTRY_BYTES
