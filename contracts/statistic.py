"""What a catalogue entry says of a statistic."""

from dataclasses import dataclass
from enum import StrEnum

from paritas.contracts.model import Family, Stage

__all__ = ["Need", "Side", "Statistic", "Test"]


class Test(StrEnum):
    """How a clause on the statistic is judged."""

    __test__ = False  # not a pytest class

    BOUNDED_MEAN = "bounded_mean"  # units in [lo, hi]: certifiable and falsifiable
    NON_NEGATIVE_MEAN = "non_negative_mean"  # unbounded units: can be refuted, never certified
    CONDITIONAL_MEAN = "conditional_mean"  # null holds given every prefix: token bets inside the unit
    SUPREMUM = "supremum"  # one observation above the limit refutes it; nothing certifies it
    STATE = "state"  # compared, not estimated


class Side(StrEnum):
    """Which limit makes sense."""

    AT_MOST = "at_most"
    AT_LEAST = "at_least"
    NEITHER = "neither"


class Need(StrEnum):
    """What the input must hold for the statistic to exist."""

    PAIR = "pair"  # both kernels' log-probabilities
    TOP_INFERENCE = "top_inference"  # top-k list of the inference kernel
    TOP_BOTH = "top_both"  # top-k lists of both kernels
    FULL_LOGITS = "full_logits"  # whole distributions; offline only
    TIMINGS = "timings"
    IDENTITY = "identity"
    TRACE = "trace"  # any trace
    AGENT = "agent"  # records that an agent of ours wrote
    ADVANTAGE = "advantage"  # both log-probabilities, and the label `advantage`
    REWARD = "reward"  # both log-probabilities, and the label `reward`
    PREFERENCE = "preference"  # both, of two sequences of a group with the label `preference`


@dataclass(frozen=True, slots=True)
class Statistic:
    """One catalogue entry.

    Attributes
    ----------
    unit : str
        Unit of the estimate and of the limit.
    lo, hi : float
        Range of one unit's value; `hi` may be infinite.
    says, estimator, blind : str
        What it is for; how one unit's value is computed; what it cannot see.
    reference : str
        Where the estimator or bound comes from (docs/mathematics.md numbers are the mathematics of this project, docs/mathematics.md).
    options : tuple of str
        Clause keys it takes besides the limit.
    window : str
        Window of a clause that names none; empty where there are no windows.
    baseline : int
        Windows that a shape learns from where a clause does not say.
    """

    name: str
    family: Family
    unit: str
    lo: float
    hi: float
    test: Test
    side: Side
    need: Need
    says: str
    estimator: str
    blind: str
    reference: str
    options: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()
    window: str = ""
    baseline: int = 0

    @property
    def certifiable(self) -> bool:
        """Whether any amount of online data can turn a clause on it into a PASS."""
        return self.test in (Test.BOUNDED_MEAN, Test.CONDITIONAL_MEAN, Test.STATE)
