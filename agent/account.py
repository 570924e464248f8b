"""Where every record is, by its number: the arithmetic of one stream, without any file.

Unlike a writer's `Ledger` its totals go on over restarts: they are saved beside the position, and
what vanished from the disk between two runs follows from the numbers, which are dense.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from paritas.agent.reasons import DropReason

__all__ = ["Account", "Totals"]


@dataclass(frozen=True, slots=True)
class Totals:
    """Where the records of a stream are: ``accepted == delivered + sum(dropped.values()) + queued``.

    Attributes
    ----------
    accepted, delivered, queued : int
        Records ever numbered, acknowledged by the destination, and neither delivered nor dropped.
    dropped : mapping of str to int
        By `DropReason`.
    """

    accepted: int = 0
    delivered: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    queued: int = 0

    def __add__(self, other: "Totals") -> "Totals":
        """Add two streams up."""
        dropped = {
            reason: self.dropped.get(reason, 0) + other.dropped.get(reason, 0)
            for reason in sorted({*self.dropped, *other.dropped})
        }
        return Totals(
            self.accepted + other.accepted,
            self.delivered + other.delivered,
            dropped,
            self.queued + other.queued,
        )


class Account:
    """Counts dense numbers: ``[head, in_flight_end)`` is being shipped, ``[…, next)`` waits.

    What is in flight is held in memory, so an overflow on disk does not lose it.

    Parameters
    ----------
    delivered, dropped
        What became of the numbers below `head_seq`; all of them were delivered if nothing is known.
    head_seq, next_seq : int
        Lowest number not settled; number of the next record.

    Examples
    --------
    >>> account = Account(head_seq=0, next_seq=10)
    >>> account.take(4)
    >>> account.overflow(6)  # 0 to 3 are in flight, so only 4 and 5 are lost
    range(4, 6)
    >>> account.settle(4)
    >>> account.totals()
    Totals(accepted=10, delivered=4, dropped={'overflow': 2}, queued=4)
    """

    def __init__(
        self,
        *,
        head_seq: int,
        next_seq: int,
        delivered: int | None = None,
        dropped: Mapping[str, int] | None = None,
        overflow_reason: DropReason = DropReason.OVERFLOW,
    ) -> None:
        self.head_seq, self.next_seq = head_seq, max(next_seq, head_seq)
        self._dropped: Counter[str] = Counter(dropped or {})
        self._delivered = head_seq - self._dropped.total() if delivered is None else delivered
        self._overflow_reason = overflow_reason
        self._in_flight_end = self._gone_end = head_seq
        self._lost: list[tuple[range, DropReason]] = []  # in flight, and counted as dropped already

    @property
    def has_in_flight(self) -> bool:
        """Whether a batch was taken and is not settled."""
        return self._in_flight_end > self.head_seq

    def accept(self) -> int:
        """Number a new record."""
        self.next_seq += 1
        return self.next_seq - 1

    def take(self, end_seq: int) -> None:
        """Mark everything below a number as in flight."""
        self._in_flight_end = max(self.head_seq, end_seq)

    def lose(self, seqs: range, reason: DropReason) -> None:
        """Count numbers that are in flight as dropped."""
        self._lost.append((seqs, reason))
        self._dropped[str(reason)] += len(seqs)

    def overflow(self, below_seq: int) -> range:
        """Count what waits below a number as dropped; return the numbers."""
        start = max(self._gone_end, self._in_flight_end)
        lost = range(start, max(below_seq, start))
        self._dropped[str(self._overflow_reason)] += len(lost)
        self._gone_end = max(self._gone_end, below_seq)
        self._pass_gone()
        return lost

    def settle(self, end_seq: int) -> None:
        """Count what is in flight below a number as delivered, save what was lost."""
        end_seq = min(end_seq, self._in_flight_end)
        settled = range(self.head_seq, max(end_seq, self.head_seq))
        lost = sum(len(_common(settled, seqs)) for seqs, _ in self._lost)
        self._delivered += len(settled) - lost
        self._lost = [(seqs, reason) for seqs, reason in self._lost if seqs.stop > settled.stop]
        self.head_seq = settled.stop
        self._pass_gone()

    def give_back(self) -> None:
        """What is in flight waits again, save what vanished from the disk meanwhile."""
        self._dropped.subtract(self._lost_in_flight())
        self._lost.clear()
        vanished = range(self.head_seq, min(self._in_flight_end, self._gone_end))
        self._dropped[str(self._overflow_reason)] += len(vanished)
        self._in_flight_end = self.head_seq
        self._pass_gone()

    def _pass_gone(self) -> None:
        if not self.has_in_flight:
            self.head_seq = self._in_flight_end = max(self.head_seq, self._gone_end)

    def totals(self) -> Totals:
        """Return one reading."""
        lost = sum(self._lost_in_flight().values())
        queued = self.next_seq - self.head_seq - self._gone() - lost
        return Totals(self.next_seq, self._delivered, _without(self._dropped, Counter()), queued)

    def settled(self) -> Totals:
        """Return what became of the numbers below `head_seq`: what may be saved beside that position."""
        ahead = self._lost_in_flight()
        ahead[str(self._overflow_reason)] += self._gone()
        return Totals(self.head_seq, self._delivered, _without(self._dropped, ahead))

    def _gone(self) -> int:
        return max(0, self._gone_end - self._in_flight_end)

    def _lost_in_flight(self) -> Counter[str]:
        ahead, in_flight = Counter[str](), range(self.head_seq, self._in_flight_end)
        for seqs, reason in self._lost:
            ahead[str(reason)] += len(_common(in_flight, seqs))
        return ahead


def _without(dropped: Counter[str], ahead: Counter[str]) -> dict[str, int]:
    return {reason: left for reason, count in sorted(dropped.items()) if (left := count - ahead[reason])}


def _common(one: range, other: range) -> range:
    start = max(one.start, other.start)
    return range(start, max(start, min(one.stop, other.stop)))
