"""How much ratio a threshold cuts off (docs/mathematics.md D4 to D6, D8, D13).

C >= 1 is an upper threshold of w, c <= 1 a lower one or a clip range.  Every bound from D
alone is a supremum over all pairs of that oscillation, reached by a two-valued w.
"""

import numpy as np
from numpy.typing import ArrayLike

from paritas.contracts.bounds.numerics import LARGEST, SMALLEST, Array, checked

__all__ = [
    "clipped_amount_from_oscillation",
    "lower_tail_from_oscillation",
    "optimal_cap",
    "oscillation_of_clipped_amount",
    "oscillation_of_upper_tail",
    "upper_tail_from_chi2",
    "upper_tail_from_oscillation",
]


def upper_tail_from_oscillation(oscillation: ArrayLike, cap: ArrayLike) -> Array:
    """Bound E_q(w-C)_+, what truncation at C cuts off: (e^(D/2) - sqrt C)^2 / (e^D - 1) (D4).

    Zero while D <= log C; tanh(D/4) at C = 1.  Sharp: w in {m, m e^D}, m = sqrt(C) e^(-D/2).

    Parameters
    ----------
    oscillation : dimensionless, any shape
    cap : ratio, broadcast against it
        C, at least 1.

    Returns
    -------
    dimensionless, in [0, 1]

    Examples
    --------
    >>> round(float(upper_tail_from_oscillation(1.0, 2.0)), 6)
    0.032005
    """
    d = checked(oscillation, "oscillation")
    return _tail(d, np.log(checked(cap, "cap", low=1.0)))


def lower_tail_from_oscillation(oscillation: ArrayLike, floor: ArrayLike) -> Array:
    """Bound E_q(c-w)_+, what a floor at c adds: (sqrt(c) e^(D/2) - 1)^2 / (e^D - 1) (D5).

    Zero while D <= -log c.  Sharp: w in {m, m e^D} with m = sqrt(c) e^(-D/2).

    Parameters
    ----------
    oscillation : dimensionless, any shape
    floor : ratio, broadcast against it
        c, in [0, 1].
    """
    d, c = checked(oscillation, "oscillation"), checked(floor, "floor", high=1.0)
    with np.errstate(divide="ignore"):
        return c * _tail(d, -np.log(c))


def _tail(d: Array, log_cap: Array) -> Array:
    """D4 in a form without overflow: (1-e^-h)^2 / (1-e^-D), h = (D - log C)/2."""
    with np.errstate(invalid="ignore", divide="ignore"):
        cut = -np.expm1(-np.maximum(d - log_cap, 0.0) / 2.0)
        bound = cut * (cut / -np.expm1(-d))
    return np.where(d > log_cap, bound, 0.0)[()]


def oscillation_of_upper_tail(beta: ArrayLike, cap: ArrayLike) -> Array:
    """Return the largest D with `upper_tail_from_oscillation` at most `beta` (F6).

    Infinity from beta = 1; log C at beta = 0; 4 artanh(beta) at C = 1.

    Parameters
    ----------
    beta : dimensionless, any shape
    cap : ratio, broadcast against it
        C, at least 1.

    Examples
    --------
    >>> round(float(oscillation_of_upper_tail(0.032005, 2.0)), 4)
    1.0
    """
    c = checked(cap, "cap", low=1.0, high=LARGEST)
    return _inverse_tail(checked(beta, "beta"), c)


def _inverse_tail(beta: Array, cap: Array) -> Array:
    held = np.minimum(beta, 1.0)
    with np.errstate(divide="ignore"):
        half = np.log1p(np.sqrt(held * ((cap - 1.0 + held) / cap))) - np.log1p(-held)
    return np.log(cap) + 2.0 * half


def clipped_amount_from_oscillation(oscillation: ArrayLike, clip: ArrayLike) -> Array:
    """Bound E_q|clip(w, 1-c, 1+c) - w|: max(2 tanh(D/4) - c, D4 at 1+c) (D6).

    Zero while D <= log(1+c).  Sharp for every D and c: both tails, or the upper one alone.
    The lower one alone is never the largest: D5 at 1-c is 1-c times D4 at 1/(1-c) > 1+c.
    Non-increasing in c, but it is the *worst case* that falls, not the bias of one
    advantage and score (D9).

    Parameters
    ----------
    oscillation : dimensionless, any shape
    clip : ratio, broadcast against it
        c, at least 0.

    Examples
    --------
    >>> round(float(clipped_amount_from_oscillation(1.0, 0.1)), 6)
    0.389837
    """
    d, c = checked(oscillation, "oscillation"), checked(clip, "clip")
    both_tails = 2.0 * np.tanh(d / 4.0) - c
    return np.maximum(both_tails, upper_tail_from_oscillation(d, 1.0 + c))


def oscillation_of_clipped_amount(beta: ArrayLike, clip: ArrayLike) -> Array:
    """Return the largest D with `clipped_amount_from_oscillation` at most `beta` (F6).

    The smaller of the two inverses, since D6 is the larger of two bounds.

    Parameters
    ----------
    beta : dimensionless, any shape
    clip : ratio, broadcast against it
        c, at least 0.
    """
    b, c = checked(beta, "beta"), checked(clip, "clip", high=LARGEST)
    with np.errstate(divide="ignore"):
        both = 4.0 * np.arctanh(np.minimum((b + c) / 2.0, 1.0))
    return np.minimum(both, oscillation_of_upper_tail(b, 1.0 + c))


def upper_tail_from_chi2(chi2: ArrayLike, cap: ArrayLike) -> Array:
    """Bound E_q(w-C)_+ by the second moment of w: chi-square / (4 (C-1)) (D8).

    Reached by a rare w = 2C - 1.  It is also at most the mass p(w > C), reached by a rare
    and large w.

    Parameters
    ----------
    chi2 : dimensionless, any shape
    cap : ratio, broadcast against it
        C, at least 1; at 1 the bound is infinite unless chi-square is 0.
    """
    divergence, c = checked(chi2, "chi2"), checked(cap, "cap", low=1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(divergence == 0.0, 0.0, divergence / (4.0 * (c - 1.0)))[()]


def optimal_cap(weights: ArrayLike, samples: ArrayLike, *, probability: ArrayLike | None = None) -> float:
    """Return the truncation C with the least mean-squared-error bound: C = N E_q(w-C)_+ (D13).

    The bound is ``beta_TIS(C)^2 + E_q min(w,C)^2 / N`` in units of (A_max G)^2, full support.
    Solved exactly, by the order statistics of the weights.  It may fall below 1; the
    certificates need C >= 1.

    Parameters
    ----------
    weights : shape (n,), ratio
        Observed w, all finite.
    samples : float
        N, number of tokens averaged in one gradient estimate.
    probability : shape (n,), optional
        Mass of each weight under q; equal by default.

    Examples
    --------
    >>> round(optimal_cap([3.0, 0.5], 2.0, probability=[0.2, 0.8]), 6)
    0.857143
    """
    w = checked(weights, "weights", high=LARGEST)
    mass = (
        np.full(w.shape, 1.0 / w.size)
        if probability is None
        else checked(probability, "probability", high=1.0)
    )
    order = np.argsort(-w)
    count = float(checked(samples, "samples", low=SMALLEST))
    above, held = np.cumsum(mass[order]), np.cumsum((mass * w)[order])
    candidates = count * held / (1.0 + count * above)  # C if exactly the first j weights exceed it
    return float(candidates.max())
