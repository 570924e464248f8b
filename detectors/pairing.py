"""Pairing: one sequence, two kernels, position by position; what cannot pair is counted by reason.

Two halves: `Matcher` decides each sequence by itself, `Cohorts` lets outcomes go in start-time
cohorts, ordered by start time and id inside a cohort, so that early finishers do not bias what is
tested.  `Pairer` is both in one process; on Flink they are two operators.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from paritas.contracts.model import Compare
from paritas.detectors.cohorts import Cohorts
from paritas.detectors.matching import join_segments, match, weights_lag
from paritas.detectors.pairs import PairOutcome
from paritas.detectors.sequences import Matcher
from paritas.records import TokenTrace

__all__ = ["Pairer", "PairerLimits", "join_segments", "match", "weights_lag"]


@dataclass(frozen=True, slots=True)
class PairerLimits:
    """Bounds of the pairing stage.

    Attributes
    ----------
    cohort_s : float, seconds
        Width of a start-time cohort.
    grace_s : float, seconds
        A cohort with undecided members lets its decided ones go after this long: one lost
        sequence must not hold back the alarm of a thousand others.
    remembered : int
        Finished sequences remembered for telling duplicates and late halves apart.
    waiting : int
        Sequences that may wait at once; beyond it the oldest is given up as unmatched.
    """

    cohort_s: float = 1.0
    grace_s: float = 10.0
    remembered: int = 200_000
    waiting: int = 100_000

    def matcher(self, compare: Compare) -> Matcher:
        """Return a matcher within these bounds."""
        return Matcher(compare, remembered=self.remembered, waiting=self.waiting)

    def cohorts(self, compare: Compare) -> Cohorts:
        """Return cohorts within these bounds."""
        bounds = {"width_s": self.cohort_s, "grace_s": self.grace_s}
        return Cohorts(**bounds, remembered=self.remembered, by_group=compare.unit == "group")


class Pairer:
    """Pure pairing stage: traces and time in, outcomes out.

    Parameters
    ----------
    compare : Compare
        The contract's `compare` section.
    limits : PairerLimits
        Bounds of memory and the cohort width.
    """

    def __init__(self, compare: Compare, limits: PairerLimits = PairerLimits()) -> None:
        self.matcher = limits.matcher(compare)
        self.cohorts = limits.cohorts(compare)

    def process(self, trace: TokenTrace, now_ns: int) -> Iterator[PairOutcome]:
        """Take one trace; yield what it cannot be used for, then the cohorts that are over."""
        self.cohorts.end(self.matcher.expire(now_ns))
        yield from self.cohorts.take(self.matcher.take(trace, now_ns), now_ns)

    def tick(self, now_ns: int) -> Iterator[PairOutcome]:
        """Nothing arrived for a while: the newest cohort is over too."""
        self.cohorts.end(self.matcher.expire(now_ns))
        yield from self.cohorts.tick(now_ns)

    def flush(self, now_ns: int) -> Iterator[PairOutcome]:
        """End of input: what is still alone is unmatched."""
        self.cohorts.end(self.matcher.flush())
        yield from self.cohorts.tick(now_ns)

    @property
    def waiting(self) -> int:
        """Sequences that still wait for their other half."""
        return self.matcher.waiting

    @property
    def open_cohorts(self) -> int:
        """Cohorts that were not closed yet."""
        return len(self.cohorts)
