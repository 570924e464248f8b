"""Sequences: what has arrived of each, and how it ended; no sequence looks at another.

The half of pairing that can be spread over machines by sequence.  In one process one `Matcher`
holds every sequence; on Flink each key has a small one.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from paritas.contracts.model import Compare
from paritas.detectors.matching import join_segments, lost, lost_views, match
from paritas.detectors.pairs import PairOutcome
from paritas.records import PairReason, Role, TokenStatus, TokenTrace

__all__ = ["Key", "Matcher", "Step", "Taken", "Waiting"]

NS = 1_000_000_000
Key = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What happened to one sequence.

    Attributes
    ----------
    key : (run id, sequence id)
    first : PairOutcome or None
        It is new and waits from now on, or its labels are known better now; what it is if nothing more
        comes, but for the detail.
    outcome : PairOutcome or None
        How it ended, if it did.
    extra : bool
        The outcome is that of a surplus trace (duplicate, late), not of the sequence.
    """

    key: Key
    first: PairOutcome | None = None
    outcome: PairOutcome | None = None
    extra: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """What one trace did; all that the stages behind need to know of it.

    Attributes
    ----------
    role, event_ns, group_id, counts
        Of the trace; counts are tokens by status.
    steps : tuple of Step
        In order; sequences that had to make room come before the trace's own.
    """

    role: Role
    event_ns: int
    run_id: str
    group_id: str
    counts: Mapping[TokenStatus, int]
    steps: tuple[Step, ...]


@dataclass(slots=True)
class Waiting:
    """What has arrived of one sequence; one that is only followed has no segments."""

    key: Key
    first_seen_ns: int
    first: PairOutcome
    roles: set[Role] = field(default_factory=set)
    segments: dict[Role, dict[int, TokenTrace]] = field(default_factory=dict)


class Matcher:
    """Pairs the traces of each sequence it is given.

    Parameters
    ----------
    compare : Compare
        The contract's `compare` section.
    remembered : int
        Finished sequences remembered for telling duplicates and late halves apart.
    waiting : int
        Sequences that may wait at once; beyond it the oldest is given up as unmatched.
    """

    def __init__(self, compare: Compare, *, remembered: int, waiting: int) -> None:
        self._compare = compare
        self._remembered = remembered
        self._limit = waiting
        self._waiting: OrderedDict[Key, Waiting] = OrderedDict()
        self._done: OrderedDict[Key, str] = OrderedDict()

    def take(self, trace: TokenTrace, now_ns: int) -> Taken:
        """Take one trace; `expire` to the same time comes first."""
        key = (trace.run_id, trace.sequence_id)
        if key in self._done:
            steps = [_surplus(key, trace, _reason_after(self._done[key]))]
        elif self._known(key, trace):
            steps = [_surplus(key, trace, PairReason.DUPLICATE)]
        else:
            steps = list(self._add(key, trace, now_ns))
        facts = (trace.kernel.role, trace.event_ns, trace.run_id, trace.group_id, trace.counts())
        return Taken(*facts, tuple(steps))

    def follow(self, taken: Taken, now_ns: int) -> Taken:
        """Learn what other matchers took, so that this one can give up on it in their stead.

        Returns it with what comes of sequences on which this one has given up already, as late: silence can
        pass here while a record is on its way.
        """
        taken = replace(taken, steps=tuple(self._unless_late(step, taken) for step in taken.steps))
        for step in taken.steps:
            if step.first is not None:
                waiting = self._waiting.setdefault(step.key, Waiting(step.key, now_ns, step.first))
                waiting.first = step.first
            if step.outcome is not None and not step.extra:
                self._waiting.pop(step.key, None)
            elif step.key in self._waiting:
                self._waiting[step.key].roles.add(taken.role)
        return taken

    def _unless_late(self, step: Step, taken: Taken) -> Step:
        if step.extra or step.key not in self._done:
            return step
        untold = PairOutcome(PairReason.LATE, *step.key, taken.group_id, taken.event_ns, {})
        came = step.outcome or step.first or untold
        return Step(step.key, outcome=replace(came, reason=PairReason.LATE, pair=None), extra=True)

    def expire(self, now_ns: int) -> Iterator[Step]:
        """Give up on halves as old as `pair_within`; the oldest arrived first."""
        while self._waiting:
            oldest = next(iter(self._waiting.values()))
            if self._deadline_ns(oldest) > now_ns:
                return
            yield self._end(oldest, _alone(oldest))

    def flush(self) -> Iterator[Step]:
        """End of input: give up on everything that still waits."""
        for waiting in list(self._waiting.values()):
            yield self._end(waiting, _alone(waiting))

    @property
    def waiting(self) -> int:
        """Sequences that still wait for their other half."""
        return len(self._waiting)

    def _deadline_ns(self, waiting: Waiting) -> int:
        return waiting.first_seen_ns + round(self._compare.pair_within_s * NS)

    def _known(self, key: Key, trace: TokenTrace) -> bool:
        waiting = self._waiting.get(key)
        return waiting is not None and trace.start in waiting.segments.get(trace.kernel.role, {})

    def _add(self, key: Key, trace: TokenTrace, now_ns: int) -> Iterator[Step]:
        first = None
        if key not in self._waiting:
            yield from self._make_room()
            first = lost(trace, PairReason.UNMATCHED)
            self._waiting[key] = Waiting(key, now_ns, first)
        waiting = self._waiting[key]
        waiting.roles.add(trace.kernel.role)
        segments = waiting.segments.setdefault(trace.kernel.role, {})
        segments[trace.start] = trace
        step = self._matched(waiting, now_ns)
        if first is None and step.outcome is None and trace.start == min(segments):
            first = self._known_better(waiting)
        yield replace(step, first=first)

    def _known_better(self, waiting: Waiting) -> PairOutcome | None:
        """What a sequence is if nothing more comes, if another view or an earlier segment has changed that."""
        order = [self._compare.against, Role.TRAIN, *sorted(waiting.segments)]
        views = [waiting.segments[role] for role in dict.fromkeys(order) if role in waiting.segments]
        known = lost_views([segments[min(segments)] for segments in views], PairReason.UNMATCHED)
        if _labels_of(known) == _labels_of(waiting.first):
            return None
        waiting.first = known
        return known

    def _matched(self, waiting: Waiting, now_ns: int) -> Step:
        """End the sequence if both views that the contract compares are whole."""
        other = join_segments(waiting.segments.get(self._compare.against, {}))
        train = join_segments(waiting.segments.get(Role.TRAIN, {}))
        if other is None or train is None:
            return Step(waiting.key)
        outcome = match(other, train, self._compare)
        return self._end(waiting, _timed(outcome, (now_ns - waiting.first_seen_ns) / NS))

    def _make_room(self) -> Iterator[Step]:
        while len(self._waiting) >= self._limit:
            oldest = next(iter(self._waiting.values()))
            yield self._end(oldest, _alone(oldest))

    def _end(self, waiting: Waiting, outcome: PairOutcome) -> Step:
        del self._waiting[waiting.key]
        self._done[waiting.key] = outcome.reason.value
        while len(self._done) > self._remembered:
            self._done.popitem(last=False)
        return Step(waiting.key, outcome=outcome)


def _labels_of(outcome: PairOutcome) -> tuple[str, int, Mapping[str, str]]:
    return outcome.group_id, outcome.event_ns, outcome.attributes


def _timed(outcome: PairOutcome, waited_s: float) -> PairOutcome:
    """The outcome, and how long its pair took."""
    return (
        outcome if outcome.pair is None else replace(outcome, pair=replace(outcome.pair, waited_s=waited_s))
    )


def _surplus(key: Key, trace: TokenTrace, reason: PairReason) -> Step:
    return Step(key, outcome=lost(trace, reason), extra=True)


def _reason_after(ended: str) -> PairReason:
    """Something of a finished sequence came again: late if its other half was given up."""
    return PairReason.LATE if ended == PairReason.UNMATCHED else PairReason.DUPLICATE


def _alone(waiting: Waiting) -> PairOutcome:
    """The outcome of a sequence whose other half, or a segment, never came."""
    have = ", ".join(sorted(role.value for role in waiting.roles))
    return replace(waiting.first, detail=f"only {have} was reported")
