"""What one sampled token or sequence says: bounded statistics of the log-ratio (A19, A21, B7).

``ell = log p_train - log q_inference`` in nats, fp64, on the same support and temperature;
for a sequence, the sum of its tokens' ell.  Minus infinity is w = 0.  Plus infinity or NaN
is a data fault, not a drift value, and is refused.  The mean of each statistic over tokens
drawn from q is the quantity it is named after, for any p and q.
"""

import numpy as np
from numpy.typing import ArrayLike

from paritas.contracts.bounds.numerics import LARGEST, Array, checked, expm1_minus

__all__ = [
    "affinity",
    "capped_ratio",
    "checked_log_ratio",
    "excess",
    "k3",
    "shortfall",
    "top1_surprise",
]


def checked_log_ratio(log_ratio: ArrayLike) -> Array:
    """Return `log_ratio` as float64; ValueError at NaN and plus infinity (data faults)."""
    return checked(log_ratio, "log_ratio", low=-np.inf, high=LARGEST)


def shortfall(log_ratio: ArrayLike) -> Array:
    """Return (1-w)_+, whose mean under q is the total variation, supports arbitrary (A19, B7).

    An identity.  In [0, 1], one per token; or per sequence, where its mean is the sequence TV.

    Examples
    --------
    >>> [round(float(x), 3) for x in shortfall([-np.inf, np.log(0.9), 5.0])]
    [1.0, 0.1, 0.0]
    """
    return -np.expm1(np.minimum(checked_log_ratio(log_ratio), 0.0)) + 0.0


def excess(log_ratio: ArrayLike) -> Array:
    """Return (w-1)_+, whose mean under q is the total variation minus the missing mass (A19).

    An identity.  At least 0, unbounded.
    """
    with np.errstate(over="ignore"):
        return np.expm1(np.maximum(checked_log_ratio(log_ratio), 0.0))


def affinity(log_ratio: ArrayLike) -> Array:
    """Return sqrt(w), whose mean under q is the Bhattacharyya coefficient (A19).

    An identity.  At least 0, unbounded.
    """
    with np.errstate(over="ignore"):
        return np.exp(checked_log_ratio(log_ratio) / 2.0)


def capped_ratio(log_ratio: ArrayLike, cap: ArrayLike) -> Array:
    """Return min(w, C), whose mean under q is at most 1 when the logged q was sampled (A21).

    Equality when no ratio exceeds C and no mass is missing.  A *lower* confidence limit
    above 1 proves that the logs are not those of the sampling law; one minus the mean is
    the bias certificate of truncation (D3) and bounds the missing mass.

    Parameters
    ----------
    log_ratio : nats, any shape
    cap : ratio
        C, at least 1.

    Returns
    -------
    ratio in [0, C]
    """
    limit = checked(cap, "cap", low=1.0)
    with np.errstate(over="ignore"):
        return np.minimum(np.exp(np.minimum(checked_log_ratio(log_ratio), np.log(limit))), limit)


def top1_surprise(is_top1: ArrayLike, top1_probability: ArrayLike) -> Array:
    """Return 1[token is the logged argmax] - its logged probability: mean 0 if the logs are true (A21).

    An identity.  Finds the case the ratio cannot see: both sides logged at one wrong temperature.

    Parameters
    ----------
    is_top1 : bool, any shape
    top1_probability : probability, same shape

    Returns
    -------
    In [-1, 1], conditional mean 0 given the prefix.
    """
    return np.asarray(is_top1, dtype=np.float64) - checked(top1_probability, "top1_probability", high=1.0)


def k3(log_ratio: ArrayLike) -> Array:
    """Return w - 1 - ell, non-negative, with mean KL(q,p) minus the missing mass (B4).

    An identity.  Nats; unbounded, so a point estimate only.
    """
    return expm1_minus(checked_log_ratio(log_ratio))
