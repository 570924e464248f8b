"""Gaps that are known and not yet written down; few, because neighbours are joined."""

from collections import deque

from paritas.agent.claim import Lost
from paritas.agent.reasons import DropReason

__all__ = ["PendingGaps"]

MAX_GAPS = 1000


class PendingGaps:
    """A bounded list of (stream, lost numbers); the caller locks.

    Attributes
    ----------
    forgotten : int
        Gaps that found no room: their records are counted, but no gap record tells of them.

    Examples
    --------
    >>> gaps = PendingGaps()
    >>> gaps.add("a", Lost(range(3), DropReason.OVERFLOW))
    >>> gaps.add("a", Lost(range(3, 5), DropReason.OVERFLOW))
    >>> len(gaps), gaps.first()
    (1, ('a', Lost(seqs=range(0, 5), reason=<DropReason.OVERFLOW: 'overflow'>)))
    """

    def __init__(self) -> None:
        self._gaps: deque[tuple[str, Lost]] = deque()
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._gaps)

    def add(self, stream: str, lost: Lost) -> None:
        """Remember a gap."""
        if self._gaps and (joined := _joined(self._gaps[-1], stream, lost)):
            self._gaps[-1] = joined
        elif len(self._gaps) < MAX_GAPS:
            self._gaps.append((stream, lost))
        else:
            self.forgotten += 1

    def first(self) -> tuple[str, Lost] | None:
        """Return the oldest gap."""
        return self._gaps[0] if self._gaps else None

    def drop_first(self) -> None:
        """Forget the oldest gap: it is written down."""
        self._gaps.popleft()


def _joined(last: tuple[str, Lost], stream: str, lost: Lost) -> tuple[str, Lost] | None:
    name, held = last
    if name != stream or held.reason is not lost.reason or held.seqs.stop != lost.seqs.start:
        return None
    return name, Lost(range(held.seqs.start, lost.seqs.stop), DropReason(lost.reason))
