"""What the detectors say: how pairing ended, what a clause says, what the cause is."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "PairReason", "Reason", "State", "Verdict"]


class PairReason(StrEnum):
    """How the search for a trace's partner ended; all but `paired` are losses that are shown."""

    PAIRED = "paired"
    UNMATCHED = "unmatched"
    LATE = "late"
    DUPLICATE = "duplicate"
    WEIGHTS_MISMATCH = "weights_mismatch"
    SEMANTICS_MISMATCH = "semantics_mismatch"
    LENGTH_MISMATCH = "length_mismatch"
    TOKEN_MISMATCH = "token_mismatch"  # noqa: S105 -- tokens of a vocabulary, no password


class State(StrEnum):
    """What a clause says of a slice; `undecided` and `no_data` are never a pass."""

    CONFORMING = "conforming"
    VIOLATED = "violated"
    UNDECIDED = "undecided"
    NO_DATA = "no_data"


class Reason(StrEnum):
    """Why a verdict is what it is."""

    CERTIFIED = "certified"  # the e-process against "limit exceeded" passed 1/alpha
    REFUTED = "refuted"  # the e-process against "limit kept" passed 1/alpha
    SHAPE = "shape"  # refuted: the distribution is no longer that of the reference
    COUNTEREXAMPLE = "counterexample"  # one observation contradicts a limit of zero or a supremum
    MATCHED = "matched"  # observed identity equals the declared one
    DIFFERS = "differs"  # observed identity differs from the declared one
    NEEDS_MORE_UNITS = "needs_more_units"
    BETWEEN_BOUNDS = (
        "between_bounds"  # the limit lies inside a histogram's bucket: more units cannot decide it
    )
    CERTIFICATE_LOST = (
        "certificate_lost"  # a derived limit is exceeded: it proves nothing any more, and breaks nothing
    )
    FALSIFIABLE_ONLY = "falsifiable_only"  # nothing can certify this statistic online
    ASSUMPTION_FAILED = "assumption_failed"  # what the certificate rests on was seen not to hold
    COVERAGE = "coverage"  # too much is missing for any pass
    GAP = "gap"  # records were lost on the way: what they said nobody knows
    NO_UNITS = "no_units"
    LEARNING = "learning"  # the reference is not yet complete
    NOT_REPORTED = "not_reported"  # the input lacks what the statistic needs
    NOT_APPLICABLE = "not_applicable"  # the clause belongs to another stage


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one clause says of one slice.

    Attributes
    ----------
    estimate, lower, upper : float
        Mean over units and its always-valid limits (docs/mathematics.md D16), in the statistic's unit; NaN without data.
    limit : float
        The contract's limit in the same unit.
    log10_e : float
        log10 of the e-value against "the limit is kept" (violations) at its highest.
    log10_pass : float
        log10 of the e-value against "the limit is exceeded" (passes).
    threshold_log10 : float
        log10 of 1/alpha of this clause and slice.
    units, tokens : int
        Sequences (or groups) and valid tokens behind the verdict.
    needed_units : int
        Estimate of how many units a decision takes at this rate; 0 when decided or unknown.
    """

    clause: str
    slice: str
    state: State
    reason: Reason
    statistic: str
    family: str
    estimate: float
    lower: float
    upper: float
    limit: float
    log10_e: float
    log10_pass: float
    threshold_log10: float
    units: int
    tokens: int
    needed_units: int = 0
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One named cause in one slice.

    Attributes
    ----------
    cause : str
        Name from the closed list in `detectors/diagnosis`.
    confidence : float
        Between 0 and 1.
    facts : mapping of str to float or str
        The measured numbers that speak for it.
    advice : str
        What to do first.
    """

    cause: str
    slice: str
    confidence: float
    facts: Mapping[str, float | str]
    advice: str
