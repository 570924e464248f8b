"""From the importance ratio to policy-gradient bias, one token (docs/mathematics.md D1 to D3, D9, D10, D14, D17).

Every result is beta, the bias in units of ``A_max G``: largest advantage times largest
score norm.  Multiply by both (`gradient_bias`) to get the norm of the bias.

Read the clip range right (D9): c = 0 is the *uncorrected* estimator, a large c is full
importance sampling.  The worst-case bias falls in c and the variance of the weight rises; the
bias of one advantage-score pair and the second moment are not monotone.  PPO's min and MIS
masks drop whole tokens, so with thresholds inside the bulk of w their bias stays near 1
however close the kernels are (D10).
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paritas.contracts.bounds.estimator import EstimatorKind, Weighting, weighting_of
from paritas.contracts.bounds.masks import masked_mass_from_oscillation, masked_mass_from_tv
from paritas.contracts.bounds.numerics import LARGEST, Array, checked
from paritas.contracts.bounds.ratio import capped_ratio, checked_log_ratio, shortfall
from paritas.contracts.bounds.tails import (
    clipped_amount_from_oscillation,
    upper_tail_from_oscillation,
)
from paritas.contracts.model import Estimator

__all__ = [
    "LOGIT_SCORE_NORM",
    "bias_from_oscillation",
    "bias_from_tv",
    "bias_statistic",
    "bias_statistic_range",
    "gradient_bias",
    "group_advantage_bound",
    "logging_error_bias",
]

LOGIT_SCORE_NORM = math.sqrt(2.0)
"""Largest norm of the gradient of log p with respect to the logits (D14)."""


def gradient_bias(beta: ArrayLike, *, advantage: ArrayLike, score_norm: ArrayLike) -> Array:
    """Bound the norm of the bias of a weighted policy gradient: A_max G beta (D1).

    Sharp, even under E_p g = 0 and E_p A = 0: the four-token pair of D2.  Beta also bounds the
    baseline leak: changing a constant baseline by a moves the expected gradient by <= |a| G beta.

    Parameters
    ----------
    beta : dimensionless, any shape
        ``E_q|phi(w) - w|`` plus the missing mass.
    advantage : A_max, reward-normalised units
    score_norm : G, norm of the gradient of log p
    """
    size = checked(advantage, "advantage", high=LARGEST)
    norm = checked(score_norm, "score_norm", high=LARGEST)
    with np.errstate(over="ignore"):
        return checked(beta, "beta") * size * norm


def bias_statistic(log_ratio: ArrayLike, estimator: Estimator, *, advantage: ArrayLike = 1.0) -> Array:
    """Return per-token values whose mean under q is beta, missing mass included (D3).

    Exactly beta for none, tis, clip and mis; an upper bound for ppo_min and full
    importance sampling, whose own statistics are unbounded.  Sharp: four tokens of D2.

    Parameters
    ----------
    log_ratio : nats, any shape
    estimator : Estimator
    advantage : any unit, broadcast against it
        Only its sign is used, and only by ppo_min.

    Returns
    -------
    dimensionless, inside `bias_statistic_range`

    Examples
    --------
    >>> tis = Estimator(kind="tis", cap=2.0)
    >>> [round(float(x), 3) for x in bias_statistic(np.log([0.5, 1.0, 8.0]), tis)]
    [0.5, 0.0, -1.0]
    """
    weighting, ell = weighting_of(estimator), checked_log_ratio(log_ratio)
    match weighting.kind:
        case EstimatorKind.NONE:
            return 2.0 * shortfall(ell)
        case EstimatorKind.TIS | EstimatorKind.IS:
            return 1.0 - capped_ratio(ell, weighting.cap)
        case EstimatorKind.CLIP:
            return 1.0 - capped_ratio(ell, weighting.high) + _below(ell, weighting.low)
        case EstimatorKind.MIS | EstimatorKind.PPO_MIN:
            kept = _kept(ell, weighting, checked(advantage, "advantage", low=-LARGEST, high=LARGEST))
            return 1.0 - np.where(kept, capped_ratio(ell, weighting.cap), 0.0)[()]


def _below(ell: Array, floor: float) -> Array:
    return np.maximum(floor - np.exp(np.minimum(ell, 0.0)), 0.0)


def _kept(ell: Array, weighting: Weighting, advantage: Array) -> NDArray[np.bool_]:
    low = math.log(weighting.low) if weighting.low > 0.0 else -math.inf
    below, above = ell < low, ell > math.log(weighting.high)
    if weighting.kind is EstimatorKind.PPO_MIN:
        below, above = below & (advantage < 0.0), above & (advantage > 0.0)
    return ~(below | above)


def bias_statistic_range(estimator: Estimator) -> tuple[float, float]:
    """Return the range of `bias_statistic`, for `MeanLimits` (D3).

    Examples
    --------
    >>> bias_statistic_range(Estimator(kind="tis", cap=2.0))
    (-1.0, 1.0)
    """
    weighting = weighting_of(estimator)
    match weighting.kind:
        case EstimatorKind.NONE:
            return 0.0, 2.0
        case EstimatorKind.CLIP:
            return 1.0 - weighting.high, 1.0 + weighting.low
        case _:
            return 1.0 - weighting.cap, 1.0


def bias_from_oscillation(oscillation: ArrayLike, estimator: Estimator) -> Array:
    """Bound beta a priori from D; finite D means full support (D2, D4 to D7).

    Sharp for every kind, as a supremum for the masks; 0 for full importance sampling.

    Parameters
    ----------
    oscillation : dimensionless, any shape
    estimator : Estimator

    Examples
    --------
    >>> round(float(bias_from_oscillation(0.5, Estimator(kind="none"))), 6)
    0.248706
    """
    weighting, d = weighting_of(estimator), checked(oscillation, "oscillation")
    match weighting.kind:
        case EstimatorKind.NONE:
            return 2.0 * np.tanh(d / 4.0)
        case EstimatorKind.TIS:
            return upper_tail_from_oscillation(d, weighting.cap)
        case EstimatorKind.CLIP:
            return clipped_amount_from_oscillation(d, weighting.clip)
        case EstimatorKind.MIS | EstimatorKind.PPO_MIN:
            return masked_mass_from_oscillation(d, weighting.low, weighting.high)
        case EstimatorKind.IS:
            return np.where(np.isinf(d), 1.0, 0.0)[()]  # an infinite D may hide missing mass


def bias_from_tv(tv: ArrayLike, estimator: Estimator) -> Array:
    """Bound beta a priori from the token TV, supports arbitrary (D3, D10).

    2 TV uncorrected; TV truncated at any C >= 1; (2-c)_+ or at least 1 times TV clipped,
    because ``(1-c-w)_+ <= (1-c)(1-w)_+``; the mask factor of D10 times TV for masks.
    Linear up to 1, so it also holds between means over tokens.  Sharp: disjoint remainders.

    Parameters
    ----------
    tv : probability, any shape
    estimator : Estimator

    Examples
    --------
    >>> float(bias_from_tv(0.02, Estimator(kind="tis")))
    0.02
    """
    weighting, theta = weighting_of(estimator), checked(tv, "tv", high=1.0)
    if weighting.kind in (EstimatorKind.MIS, EstimatorKind.PPO_MIN):
        return masked_mass_from_tv(theta, weighting.low, weighting.high)
    return theta * bias_per_tv(weighting)


def bias_per_tv(weighting: Weighting) -> float:
    """Return the factor of `bias_from_tv` for the kinds whose bound is linear."""
    match weighting.kind:
        case EstimatorKind.NONE:
            return 2.0
        case EstimatorKind.CLIP:
            return 1.0 + weighting.low
        case _:
            return 1.0


def group_advantage_bound(group_size: ArrayLike, *, sample_deviation: bool = False) -> Array:
    """Bound a group-normalised advantage: sqrt(n-1), or (n-1)/sqrt(n) with the sample deviation (D14).

    Sharp: one reward of the group differs from all others.

    Parameters
    ----------
    group_size : responses per group, at least 1
    sample_deviation : bool
        Whether the deviation divides by n-1 rather than n.

    Examples
    --------
    >>> round(float(group_advantage_bound(8)), 2), round(float(group_advantage_bound(8, sample_deviation=True)), 2)
    (2.65, 2.47)
    """
    n = checked(group_size, "group_size", low=1.0, high=LARGEST)
    return (n - 1.0) / np.sqrt(n) if sample_deviation else np.sqrt(n - 1.0)


def logging_error_bias(logging_error: ArrayLike) -> Array:
    """Bound the extra beta from inexact logs: e^eta - 1 (D17).

    Sharp: every log-probability off by eta in one direction.  A measured TV or truncation
    certificate is off by at most as much, a clip certificate by twice that.

    Parameters
    ----------
    logging_error : nats, any shape
        eta, the largest distance of logged from true sampling log-probabilities.

    Examples
    --------
    >>> round(float(logging_error_bias(2.0**-6)), 4)
    0.0157
    """
    with np.errstate(over="ignore"):
        return np.expm1(checked(logging_error, "logging_error"))
