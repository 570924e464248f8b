"""Where every record is: the arithmetic behind a writer's counters, without any file."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from paritas.agent.eventlog.records import GapReason, SkipReason
from paritas.errors import UsageError

__all__ = ["Ledger", "SegmentCounters"]


@dataclass(frozen=True, slots=True)
class SegmentCounters:
    """Where every record is: ``recovered + accepted == delivered + sum(dropped.values()) + queued``.

    Attributes
    ----------
    recovered : int
        Records found at the opening and not released before it.
    accepted : int
        Records appended since.
    delivered : int
        Records released as delivered.
    dropped : mapping of str to int
        Records given up, by `GapReason` or `SkipReason`.
    queued : int
        Records kept and not released.
    size_bytes : int
        Bytes of all segments.
    unsynced_bytes : int
        Bytes appended since the last sync: what a power loss may take.
    torn_bytes, quarantined_bytes : int
        What the opening cut off (`Recovered`).
    """

    recovered: int
    accepted: int
    delivered: int
    dropped: Mapping[str, int]
    queued: int
    size_bytes: int
    unsynced_bytes: int
    torn_bytes: int
    quarantined_bytes: int


class Ledger:
    """Counts records by their numbers, which are dense: none is given twice, none is left out.

    Always: ``recovered + accepted == delivered + sum(dropped.values()) + queued``.

    Parameters
    ----------
    head_seq : int
        Lowest number that is neither delivered nor dropped.
    next_seq : int
        Number of the next record.

    Examples
    --------
    >>> ledger = Ledger(head_seq=0, next_seq=0)
    >>> [ledger.accept() for _ in range(5)]
    [0, 1, 2, 3, 4]
    >>> ledger.release(2, skipped={}), ledger.drop_below(3, GapReason.OVERFLOW)
    (None, range(2, 3))
    >>> ledger.delivered, ledger.dropped["overflow"], ledger.queued
    (2, 1, 2)
    """

    def __init__(self, *, head_seq: int, next_seq: int) -> None:
        self.head_seq, self.next_seq = head_seq, next_seq
        self.recovered = next_seq - head_seq
        self.accepted = 0
        self.delivered = 0
        self.dropped: Counter[str] = Counter()

    @property
    def queued(self) -> int:
        """Records neither delivered nor dropped."""
        return self.next_seq - self.head_seq

    def accept(self) -> int:
        """Give the next number to a new record."""
        self.next_seq += 1
        self.accepted += 1
        return self.next_seq - 1

    def release(self, below_seq: int, *, skipped: Mapping[SkipReason, int]) -> None:
        """Count all records below a number as delivered, save those the reader had to skip.

        Numbers that were dropped in the meantime were counted then.

        Raises
        ------
        UsageError
            The number was never given.
        """
        freed, lost = max(0, below_seq - self.head_seq), sum(skipped.values())
        if below_seq > self.next_seq:
            raise UsageError(f"cannot release up to {below_seq}: only {self.next_seq} numbers were given")
        kept_lost = min(lost, freed)  # what was skipped may have been dropped, and counted, since
        self.delivered += freed - kept_lost
        self._count_skipped(skipped, kept_lost)
        self.head_seq += freed

    def _count_skipped(self, skipped: Mapping[SkipReason, int], most: int) -> None:
        for reason, count in skipped.items():
            self.dropped[reason] += min(count, most)
            most -= min(count, most)

    def drop_below(self, seq: int, reason: GapReason) -> range:
        """Count what is not delivered below a number as dropped; return the numbers."""
        lost = range(self.head_seq, max(seq, self.head_seq))
        self.dropped[reason] += len(lost)
        self.head_seq = lost.stop
        return lost
