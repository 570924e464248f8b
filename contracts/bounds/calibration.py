"""Drift of confidence and calibration (docs/mathematics.md E1 to E5).

f is the confidence one kernel gives an answer, f' the other's, Y whether it is right.
There is no Lipschitz bound on binned ECE (E6): confidences on a bin edge, moved by 1e-9,
take a 10-bin ECE from 0 to 0.5.  So a clause on raw ECE is unsound; use these.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paritas.contracts.bounds.divergence import gain_of_event
from paritas.contracts.bounds.numerics import Array, checked

__all__ = [
    "brier_drift",
    "confidence_drift_from_oscillation",
    "confidence_drift_from_tv",
    "confidence_gap_drift",
    "ece_drift",
    "ece_drift_items",
    "smooth_calibration_drift",
]


def confidence_drift_from_tv(tv: ArrayLike) -> Array:
    """Bound the drift of the top-1 probability, or of any event's: TV (E1).

    Sharp when both kernels have one argmax and the event takes all the difference; averaged
    over prompts, the expected-confidence drift is at most the mean TV.  Any shape.
    """
    return checked(tv, "tv", high=1.0) + 0.0


def confidence_drift_from_oscillation(confidence: ArrayLike, oscillation: ArrayLike) -> Array:
    """Bound how far a confidence can move either way: its logit moves by at most D (E1).

    Sharp: raise or lower exactly the tokens of the event.

    Parameters
    ----------
    confidence : probability, any shape
    oscillation : dimensionless, broadcast against it

    Examples
    --------
    >>> round(float(confidence_drift_from_oscillation(0.9, 0.1)), 5)
    0.00937
    """
    f, d = checked(confidence, "confidence", high=1.0), checked(oscillation, "oscillation")
    return np.maximum(gain_of_event(f, d), gain_of_event(1.0 - f, d))


def ece_drift(confidence_change: ArrayLike, changed_share: ArrayLike) -> Array:
    """Bound the drift of a binned ECE with fixed bins: E|f-f'| + 2 Pr(bin or Y changes) (E2).

    Reached as bins get fine (0.998 with a thousand equal bins); with ten equal bins the
    closest is 0.905, and `ece_drift_items` is sharper.

    Parameters
    ----------
    confidence_change : probability, any shape
        E|f - f'|.
    changed_share : probability
        Share of items whose bin or correctness differs.
    """
    change = checked(confidence_change, "confidence_change", high=1.0)
    return change + 2.0 * checked(changed_share, "changed_share", high=1.0)


def ece_drift_items(
    confidence: ArrayLike,
    other_confidence: ArrayLike,
    changed: ArrayLike,
    *,
    correct: ArrayLike,
    other_correct: ArrayLike,
) -> Array:
    """Return per-item values whose mean bounds the drift of a binned ECE (E2, exact split).

    ``|f-f'|`` where neither the bin nor the correctness changes, else ``|Y-f| + |Y'-f'|``.
    Sharp: items that leave a balanced bin for a balanced bin.

    Parameters
    ----------
    confidence, other_confidence : shape (n,), probability
    changed : shape (n,), bool
    correct, other_correct : shape (n,), bool

    Returns
    -------
    shape (n,), in [0, 2]
    """
    f = checked(confidence, "confidence", high=1.0)
    g = checked(other_confidence, "other_confidence", high=1.0)
    y, z = (np.asarray(flag, dtype=np.float64) for flag in (correct, other_correct))
    moved: NDArray[np.bool_] = np.asarray(changed, dtype=np.bool_) | (y != z)
    return np.where(moved, np.abs(y - f) + np.abs(z - g), np.abs(f - g))[()]


def confidence_gap_drift(confidence_change: ArrayLike, flip_share: ArrayLike = 0.0) -> Array:
    """Bound the drift of the over-confidence gap |E f - E Y|: E|f-f'| + Pr(Y flips) (E3).

    Sharp: all confidences move one way and all flips the other.

    Parameters
    ----------
    confidence_change : probability, any shape
        E|f - f'|; at most the mean TV (E1).
    flip_share : probability
        Share of items whose correctness differs; bounded by the margins of A17.

    Examples
    --------
    >>> float(confidence_gap_drift(0.01, 0.02))
    0.03
    """
    change = checked(confidence_change, "confidence_change", high=1.0)
    return change + checked(flip_share, "flip_share", high=1.0)


def brier_drift(confidence_change: ArrayLike) -> Array:
    """Bound the drift of the Brier score at fixed correctness: 2 E|f-f'| (E4).

    Sharp to first order: confident and wrong.  Any shape.
    """
    return np.minimum(2.0 * checked(confidence_change, "confidence_change", high=1.0), 1.0)


def smooth_calibration_drift(confidence_change: ArrayLike) -> Array:
    """Bound the drift of the smooth calibration error: 2 E|f-f'| (E5).

    The error is the supremum of E[(Y-f) h(f)] over 1-Lipschitz h with values in [-1, 1].
    Sharp to first order.  Any shape.
    """
    return np.minimum(2.0 * checked(confidence_change, "confidence_change", high=1.0), 1.0)
