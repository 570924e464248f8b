"""Runtime clauses judged from histograms: what a bucket does not tell is carried as two ends, never guessed.

A data point says how many requests of its interval lie above the limit, up to the bucket in which the limit
itself lies.  The test against "kept" bets on the least share that is possible, the test against "exceeded" on
the largest, so both hold whatever is true inside the bucket.  Data points of one window are one unit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from paritas.contracts.model import Clause, Slice
from paritas.detectors.pairs import PairOutcome
from paritas.detectors.slices import SliceBook
from paritas.detectors.windows import width_ns
from paritas.records import PairReason
from paritas.records.timing import TimingPoint

__all__ = ["PointBook", "PointWindow"]

NEVER = -1


@dataclass(slots=True)
class PointWindow:
    """The data points of one window, of one clause in one slice instance.

    Attributes
    ----------
    least, most : int
        Requests that are above the limit for certain, and those that may be.
    requests : int
    event_ns : int
        Latest end of an interval.
    """

    clause: Clause
    declared: Slice
    name: str
    least: int = 0
    most: int = 0
    requests: int = 0
    event_ns: int = 0

    def add(self, point: TimingPoint) -> None:
        """Take the requests of one data point."""
        least, most = point.histogram.count_above((self.clause.at_most or 0.0) / point.unit_s)
        self.least, self.most = self.least + least, self.most + most
        self.requests += point.histogram.total
        self.event_ns = max(self.event_ns, point.event_ns)

    @property
    def shares(self) -> tuple[float, float]:
        """Least and largest share above the limit."""
        return self.least / self.requests, self.most / self.requests

    @property
    def is_full(self) -> bool:
        """Whether it holds as many steps as the clause asks for."""
        return self.clause.window_steps is not None and self.requests >= self.clause.window_steps


@dataclass(slots=True)
class PointBook:
    """Windows of data points that are open.

    Attributes
    ----------
    clauses : sequence of Clause
        Windowed ones that bind a quantile.
    slices, book
        As of `WindowBook`; attributes of a point are its labels.
    number : dict
        (clause id, instance) → number of its window of time.
    """

    clauses: Sequence[Clause]
    slices: Sequence[Slice]
    book: SliceBook
    opened: dict[tuple[str, str], PointWindow] = field(default_factory=dict)
    number: dict[tuple[str, str], int] = field(default_factory=dict)

    def take(self, points: Sequence[TimingPoint]) -> Iterator[PointWindow]:
        """Take points in the order of their ends; yield the windows that are over."""
        for point in points:
            for declared, name in self.book.instances(_as_outcome(point)):
                for clause in self.clauses:
                    applies = not clause.slices or declared.name in clause.slices
                    if applies and clause.statistic == point.statistic:
                        yield from self._add(point, clause, declared, name)

    def close(self) -> Iterator[PointWindow]:
        """End of the input: what is open is over."""
        yield from (window for window in self.opened.values() if window.requests)
        self.opened.clear()

    def _add(self, point: TimingPoint, clause: Clause, declared: Slice, name: str) -> Iterator[PointWindow]:
        key = clause.id, name
        number = NEVER if clause.window_s is None else point.event_ns // width_ns(clause)
        if key in self.opened and number > self.number[key]:
            yield self.opened.pop(key)
        self.number[key] = max(number, self.number.get(key, NEVER))
        window = self.opened.setdefault(key, PointWindow(clause, declared, name))
        window.add(point)
        if window.is_full:
            yield self.opened.pop(key)


def _as_outcome(point: TimingPoint) -> PairOutcome:
    """What slices look at: a point has labels, and no sequence."""
    return PairOutcome(PairReason.UNMATCHED, "", "", "", point.event_ns, point.attributes)
