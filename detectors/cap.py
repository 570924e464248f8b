"""The recommended cap: the smallest truncation whose certified bias fits the budget (docs/mathematics.md D3, D9).

The smallest, since the variance of the weight grows with the cap.  The grid is fixed in advance and
every cap of it gets its share of alpha, so that picking one by its limit keeps the level.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from paritas.contracts.bounds.gradient import bias_statistic_range
from paritas.contracts.model import Estimator
from paritas.detectors.evidence import PairBatch
from paritas.detectors.pairs import Floats, PairOutcome
from paritas.detectors.repair_limits import lower_limit, unit_means, units_of, upper_limit
from paritas.detectors.statistics import gradient_bias

__all__ = ["CAPS", "CapReason", "CertifiedBias", "Recommendation", "certified_bias", "recommend_cap"]

CAPS = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)


class CapReason(StrEnum):
    """Why a cap is recommended, or none."""

    FITS = "fits"
    UNRESOLVED = "unresolved"  # more sequences may certify one
    MISSING_SUPPORT = "missing_support"  # the largest cap surely leaves more bias than the budget
    NO_PAIRS = "no_pairs"


@dataclass(frozen=True, slots=True)
class CertifiedBias:
    """Bias certificate of one estimator: beta in units of A_max G, its mean over units and its limits."""

    estimate: float
    lower: float
    upper: float
    units: int


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The recommended cap and what it rests on.

    Attributes
    ----------
    cap : float or None
    budget : float, units of A_max G
    alpha : float
        Error probability of the whole grid.
    caps : tuple of (cap, CertifiedBias)
        In ascending order; `upper` is at ``alpha / len(caps)``, and so is `lower`.
    """

    cap: float | None
    reason: CapReason
    budget: float
    alpha: float
    caps: tuple[tuple[float, CertifiedBias], ...]

    def __str__(self) -> str:
        """One sentence for people."""
        asked = f"a bias of at most {self.budget:g}"
        match self.reason:
            case CapReason.FITS:
                bias = dict(self.caps)[self.cap or 0.0]
                return f"the smallest cap that certifies {asked} is {self.cap:g} (at most {bias.upper:.3g})"
            case CapReason.MISSING_SUPPORT:
                cap, bias = self.caps[-1]
                return f"no cap certifies {asked}: at {cap:g} it is surely above {bias.lower:.3g}, so repair the kernels"
            case CapReason.UNRESOLVED:
                cap, bias = self.caps[-1]
                return f"no cap certifies {asked} yet: at {cap:g} it is {bias.estimate:.3g}, at most {bias.upper:.3g}"
            case CapReason.NO_PAIRS:
                return f"no cap can certify {asked}: nothing paired"


def recommend_cap(
    outcomes: Sequence[PairOutcome],
    budget: float,
    *,
    alpha: float = 0.05,
    caps: Sequence[float] = CAPS,
    by_group: bool = False,
) -> Recommendation:
    """Return the smallest cap C whose ``E(1 - min(w, C))`` is at most `budget`, by its upper limit.

    Parameters
    ----------
    outcomes : sequence of PairOutcome
        Those without a pair tell nothing here.
    budget : float, units of A_max G
    caps : ascending, at least 1
    by_group : bool
        Units are prompt groups rather than sequences.
    """
    paired = [o for o in outcomes if o.pair is not None and o.pair.tokens]
    if not paired:
        return Recommendation(None, CapReason.NO_PAIRS, budget, alpha, ())
    batch, units = (
        PairBatch.of([o.pair for o in paired if o.pair is not None]),
        units_of(paired, by_group=by_group),
    )
    found = tuple(
        (cap, certified_bias(gradient_bias(batch, estimator, None), estimator, units, alpha / len(caps)))
        for cap, estimator in ((cap, Estimator("tis", cap=cap)) for cap in caps)
    )
    cap = next((cap for cap, bias in found if bias.upper <= budget), None)
    return Recommendation(cap, _reason(cap, found[-1][1], budget), budget, alpha, found)


def _reason(cap: float | None, largest: CertifiedBias, budget: float) -> CapReason:
    if cap is not None:
        return CapReason.FITS
    return CapReason.MISSING_SUPPORT if largest.lower > budget else CapReason.UNRESOLVED


def certified_bias(
    values: Floats, estimator: Estimator, units: "np.ndarray[tuple[int], np.dtype[np.int64]]", alpha: float
) -> CertifiedBias:
    """Return mean and limits, each at `alpha`, of a bias statistic whose values lie in the estimator's range.

    Parameters
    ----------
    values, units : shape (n,)
        One a sequence, and the unit it belongs to; NaN where a sequence cannot tell.
    """
    low, high = bias_statistic_range(estimator)
    means = unit_means(np.clip((values - low) / (high - low), 0.0, 1.0), units)
    told = (float(means.mean()), lower_limit(means, alpha), upper_limit(means, alpha))
    estimate, lower, upper = (low + (high - low) * value for value in told)
    return CertifiedBias(estimate, max(lower, 0.0), upper, len(means))
