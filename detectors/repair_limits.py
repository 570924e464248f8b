"""Limits of a mean from a sample of fixed size, by betting: tighter than D16 where nobody looks in between.

The e-value against "the mean is at least m" is the mean over bets of the products of
``1 - lambda (x - m)``, lambda from 0 to ``1/(1-m)``; m is refuted where it reaches ``1/alpha`` (Ville; Waudby-Smith
and Ramdas, arXiv:2010.09686, section 4, with a mixture over fixed bets).  It holds for units that are
independent, or whose conditional mean given the earlier ones is the mean asked for.
"""

from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.pairs import Floats, PairOutcome
from paritas.detectors.units import unit_key

__all__ = ["lower_limit", "unit_means", "units_of", "upper_limit"]

BETS = 0.95 * 0.8 ** np.arange(24)  # as shares of the largest legal bet
STEPS = 40  # halvings of [mean, 1]: 1e-12


def upper_limit(values: Floats, alpha: float) -> float:
    """Return a limit that the mean exceeds with probability at most `alpha`; 1 without values.

    Parameters
    ----------
    values : shape (n,), in [0, 1]
        One a unit.
    alpha : float
        Error probability.

    Examples
    --------
    >>> round(upper_limit(np.zeros(1000), 0.05), 4)
    0.0059
    """
    low, high = (float(values.mean()), 1.0) if values.size else (1.0, 1.0)
    for _ in range(STEPS if low < high else 0):
        middle = (low + high) / 2
        if middle >= 1.0:  # rounded there: nothing in between
            break
        if _log_evidence(values, middle) >= -log(alpha):  # monotone in m: a larger mean is refuted sooner
            high = middle
        else:
            low = middle
    return high


def lower_limit(values: Floats, alpha: float) -> float:
    """Return a limit that the mean is below with probability at most `alpha`; 0 without values.

    Examples
    --------
    >>> lower_limit(np.zeros(1000), 0.05)
    0.0
    """
    return 1.0 - upper_limit(1.0 - values, alpha)


def _log_evidence(values: Floats, mean: float) -> float:
    """Log of the e-value against "the mean is at least `mean`" (< 1)."""
    bets = BETS[:, None] / (1.0 - mean)
    products = np.log1p(-bets * (values - mean)).sum(axis=1)  # at least log(1 - BETS[0])
    return float(np.logaddexp.reduce(products) - log(len(BETS)))


def units_of(outcomes: Sequence[PairOutcome], *, by_group: bool) -> NDArray[np.int64]:
    """Number of the unit of each outcome: its sequence, or its prompt group, wherever its members stand."""
    numbers: dict[tuple[str, str], int] = {}
    keys = (unit_key(outcome, by_group=by_group) for outcome in outcomes)
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def unit_means(values: Floats, units: NDArray[np.int64]) -> Floats:
    """Mean over the pairs of each unit, NaN left out; units without a value are left out."""
    known = ~np.isnan(values)
    count = np.bincount(units[known], minlength=1)
    total = np.bincount(units[known], weights=values[known], minlength=1)
    return np.asarray(total[count > 0] / count[count > 0])
