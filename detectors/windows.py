"""Windows: requests that start together share their load, so together they are one unit of a runtime clause.

A window holds the requests whose sequences start in so many seconds, or so many requests.  Its value is
the mean over them, of ``1{above the limit}`` where the clause binds a quantile.  Sequences leave pairing
in the order of their start times but for stragglers, which join the window that is open: the slow ones
are what the clause is about, and none is lost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isnan

from paritas.contracts.model import Clause, Slice
from paritas.detectors.pairs import PairedTrace, PairOutcome
from paritas.detectors.sampling import is_drawn, weight_of
from paritas.detectors.slices import LabelReader, SliceBook
from paritas.detectors.timing_shapes import SHAPES, Shape, bucket_of, windows_of
from paritas.records import PairReason

__all__ = ["Window", "WindowBook", "is_windowed"]

NS = 1_000_000_000
NEVER = -1
REMEMBERED = 1024  # label combinations; more are worked out again
REPEATS = (PairReason.DUPLICATE, PairReason.LATE)


def is_windowed(clause: Clause) -> bool:
    """Whether the units of a clause are windows."""
    is_timed = clause.window_s is not None or clause.window_steps is not None
    return is_timed or clause.statistic in SHAPES


@dataclass(slots=True)
class Window:
    """The window that is open, of one clause in one slice instance; a closed one is told as it stands.

    Attributes
    ----------
    total : float
        Sum over its requests, seconds, or requests above the limit.
    requests, tokens, without : int
        Requests that tell a duration, their valid tokens, and requests that do not tell.
    event_ns : int
        Latest start of a sequence in it.
    value : float or None
        What a closed window says, in the statistic's unit; None without requests, or while a shape is learned.
    buckets : dict
        Requests by duration, where the clause is about a shape.
    """

    clause: Clause
    declared: Slice
    name: str
    total: float = 0.0
    requests: int = 0
    tokens: int = 0
    without: int = 0
    event_ns: int = 0
    value: float | None = None
    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, pair: PairedTrace, weight: float) -> None:
        """Take one request that counts `weight` times: its value is drawn towards the limit (`sampling`).

        In a window of time it counts once or not at all, with that probability: how many requests were
        recorded goes with their durations, so that a mean of weighed ones would be that of no window.
        """
        if self.clause.window_s is not None and weight < 1.0:
            if not is_drawn(pair, weight):
                return
            weight = 1.0
        seconds = duration_s(self.clause, pair)
        self.event_ns = max(self.event_ns, pair.event_ns)
        if seconds is None or isnan(weight):
            self.without += 1
            return
        self.requests += 1
        self.tokens += pair.tokens
        if self.clause.statistic in SHAPES:
            bucket = bucket_of(seconds)
            self.buckets[bucket] = self.buckets.get(bucket, 0) + 1
            return
        limit, q = self.clause.at_most or 0.0, self.clause.quantile
        value, anchor = (seconds, limit) if q is None else (float(seconds > limit), 1.0 - q)
        self.total += value if weight == 1.0 else anchor + weight * (value - anchor)

    @property
    def is_empty(self) -> bool:
        """Whether nothing came since it was opened."""
        return not (self.requests or self.without)

    @property
    def is_full(self) -> bool:
        """Whether it holds as many steps as the clause asks for."""
        steps = 1 if self.clause.window_s is None else None  # each on its own where no window is declared
        steps = self.clause.window_steps or steps
        return steps is not None and self.requests >= steps

    def fresh(self) -> "Window":
        """Return the next window of the same clause and instance."""
        return Window(self.clause, self.declared, self.name)


def duration_s(clause: Clause, pair: PairedTrace) -> float | None:
    """Return the duration that a clause asks of a request, seconds; None where it is not reported."""
    if clause.statistic.startswith("time_to_first_token"):
        return pair.timings.ttft_s
    return None if isnan(pair.itl_mean_s) else pair.itl_mean_s


@dataclass(slots=True)
class WindowBook:
    """The open window of every windowed clause in every slice instance.

    Attributes
    ----------
    clauses : sequence of Clause
        Windowed ones.
    slices : sequence of Slice
        As declared.
    book : SliceBook
        The evaluator's own, so that instances are numbered once.
    sampled_at_least : float or None
        Least probability with which a sequence is recorded; None: all are.
    opened : dict
        (clause id, instance) → its open window, in order of appearance.
    numbers : dict
        Width of windows in ns → number of the one that is open.
    shapes : dict
        (clause id, instance) → what is usual there.

    Examples
    --------
    >>> WindowBook((), (), SliceBook(())).close(is_end=True)
    []
    """

    clauses: Sequence[Clause]
    slices: Sequence[Slice]
    book: SliceBook
    sampled_at_least: float | None = None
    opened: dict[tuple[str, str], Window] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    shapes: dict[tuple[str, str], Shape] = field(default_factory=dict)
    _keys: dict[tuple[str | None, ...], tuple[tuple[str, str], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Every width begins before its first window."""
        self.numbers = {width_ns(c): NEVER for c in self.clauses if c.window_s is not None}

    def closings(self, outcomes: Sequence[PairOutcome]) -> Iterator[tuple[int, list[Window]]]:
        """Take outcomes in order; yield where windows close: so many outcomes come before, and what closes."""
        labels = LabelReader(self.slices)
        for i, outcome in enumerate(outcomes if self.clauses else ()):
            if outcome.pair is None and outcome.reason in REPEATS:
                continue
            if over := self._pass(outcome.event_ns):
                yield i, over
            if full := self._add(outcome, labels):
                yield i + 1, full

    def close(self, *, is_end: bool) -> list[Window]:
        """Nothing arrived for a while: windows of time are over; at the end of the input all are.

        What comes later of the same time belongs to the next window.
        """
        self.numbers = {width: number + (number != NEVER) for width, number in self.numbers.items()}
        return self._closed([w for w in self.opened.values() if is_end or w.clause.window_s is not None])

    def _pass(self, event_ns: int) -> list[Window]:
        """Let time pass to `event_ns`; return the windows that are over."""
        widths = [width for width, number in self.numbers.items() if event_ns // width > number]
        for width in widths:
            self.numbers[width] = event_ns // width
        if not widths:
            return []
        timed = (w for w in self.opened.values() if w.clause.window_s is not None)
        return self._closed([w for w in timed if width_ns(w.clause) in widths])

    def _add(self, outcome: PairOutcome, labels: LabelReader) -> list[Window]:
        """Add a sequence to its windows; return those that are full."""
        windows = [self.opened[key] for key in self._windows_of(outcome, labels)]
        if outcome.pair is None:
            return []
        least = self.sampled_at_least
        weight = 1.0 if least is None else weight_of(outcome.attributes, least)
        for window in windows:
            window.add(outcome.pair, weight)
        return self._closed([window for window in windows if window.is_full])

    def _closed(self, windows: list[Window]) -> list[Window]:
        told = [window for window in windows if not window.is_empty]
        for window in told:
            self.opened[window.clause.id, window.name] = window.fresh()
            if window.requests:
                window.value = self._value(window)
        return told

    def _value(self, window: Window) -> float | None:
        windows = windows_of(window.clause.statistic, window.clause.baseline)
        if not windows:
            return window.total / window.requests
        shape = self.shapes.setdefault((window.clause.id, window.name), Shape(windows))
        return shape.take(window.buckets)

    def _windows_of(self, outcome: PairOutcome, labels: LabelReader) -> tuple[tuple[str, str], ...]:
        """Keys of the windows of a sequence; instances are asked for in the order of sequences."""
        key = labels.key(outcome)
        if key not in self._keys:
            if len(self._keys) >= REMEMBERED:
                self._keys.clear()
            self._keys[key] = tuple(self._open(outcome))
        return self._keys[key]

    def _open(self, outcome: PairOutcome) -> Iterator[tuple[str, str]]:
        for declared, name in self.book.instances(outcome):
            for clause in self.clauses:
                if not clause.slices or declared.name in clause.slices:
                    self.opened.setdefault((clause.id, name), Window(clause, declared, name))
                    yield clause.id, name


def width_ns(clause: Clause) -> int:
    """Width of a clause's windows of time, ns; at least one."""
    return max(round((clause.window_s or 0.0) * NS), 1)
