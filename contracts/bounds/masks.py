"""What a mask or a clip range catches because the kernels differ (docs/mathematics.md D7, D10, D18).

A mask drops a whole token where truncation only shortens its weight, so its bias does not
vanish with the drift while a threshold lies inside the bulk of w.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paritas.contracts.bounds.numerics import LARGEST, Array, checked
from paritas.contracts.bounds.ratio import checked_log_ratio

__all__ = [
    "clip_never_binds",
    "is_phantom_clip",
    "mask_factor",
    "masked_mass_from_oscillation",
    "masked_mass_from_tv",
    "oscillation_of_masked_mass",
]


def masked_mass_from_oscillation(oscillation: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    """Bound the training mass that a mask outside [low, high] drops (D7, both sides).

    Upper side (e^D - C)/(e^D - 1) at C = high, lower side (c e^D - 1)/(e^D - 1) at c = low.
    Both sides at once need D > log(high/low), and then everything may be masked; up to
    there the larger side holds.  Sharp as a supremum: the masked point just outside.

    Parameters
    ----------
    oscillation : dimensionless, any shape
    low : ratio, in [0, 1]
        0 masks nothing below.
    high : ratio, at least 1

    Returns
    -------
    probability under p; one minus it is the kept mass

    Examples
    --------
    >>> round(float(masked_mass_from_oscillation(0.3, 0.0, 1.2)), 6)
    0.428341
    """
    d = checked(oscillation, "oscillation")
    lo, hi = checked(low, "low", high=1.0), checked(high, "high", low=1.0)
    with np.errstate(divide="ignore"):
        log_lo, log_hi = np.log(lo), np.log(hi)
    one_side = np.maximum(_masked(d, log_hi), lo * _masked(d, -log_lo))
    return np.where(d > log_hi - log_lo, 1.0, one_side)[()]


def _masked(d: Array, log_cap: Array) -> Array:
    """(e^D - C)/(e^D - 1), zero while D <= log C."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return np.where(d > log_cap, np.expm1(log_cap - d) / np.expm1(-d), 0.0)[()]


def oscillation_of_masked_mass(beta: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    """Return the largest D with `masked_mass_from_oscillation` at most `beta` (F6).

    At beta = 0 it is min(log high, -log low), the condition for masking nothing.  Arguments
    as in `masked_mass_from_oscillation`.

    Examples
    --------
    >>> round(float(oscillation_of_masked_mass(0.0, 0.5, 1.2)), 6)
    0.182322
    """
    b = checked(beta, "beta")
    lo, hi = checked(low, "low", high=1.0), checked(high, "high", low=1.0, high=LARGEST)
    held = np.minimum(b, 1.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        upper = np.log1p((hi - 1.0) / (1.0 - held))
        lower = np.where(held >= lo, np.inf, np.log1p((1.0 - lo) / (lo - held)))
        both = np.log(hi) - np.log(lo)
    return np.where(b >= 1.0, np.inf, np.minimum(np.minimum(upper, lower), both))[()]


def masked_mass_from_tv(tv: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    """Bound masked plus missing training mass by the total variation (D10).

    ``TV (high/(high-1) + low/(1-low))``, at most 1: mass p(w > C) takes p - q > p (1 - 1/C),
    mass p(w < c) takes q - p > p (1/c - 1), and each sums to at most TV.  Sharp as a
    supremum: each masked side just outside its threshold, until its mass fills 1.  It has
    no use at thresholds near 1, where a mask cuts into the bulk of w.

    Parameters
    ----------
    tv : probability, any shape
    low : ratio, in [0, 1]
    high : ratio, at least 1

    Examples
    --------
    >>> float(masked_mass_from_tv(0.01, 0.0, 2.0))
    0.02
    """
    theta = checked(tv, "tv", high=1.0)
    factor = mask_factor(low, high)
    with np.errstate(invalid="ignore"):
        return np.where(theta == 0.0, 0.0, np.minimum(theta * factor, 1.0))[()]


def mask_factor(low: ArrayLike, high: ArrayLike) -> Array:
    """Return high/(high-1) + low/(1-low), infinite where a threshold is 1 (D10)."""
    lo, hi = checked(low, "low", high=1.0), checked(high, "high", low=1.0, high=LARGEST)
    with np.errstate(divide="ignore"):
        return hi / (hi - 1.0) + lo / (1.0 - lo)


def clip_never_binds(oscillation: ArrayLike, clip: ArrayLike) -> NDArray[np.bool_]:
    """Say where no token leaves [1-c, 1+c] because of the kernels: D <= log(1+c) (D18).

    Sharp: at any larger D a rare token is clipped.

    Parameters
    ----------
    oscillation : dimensionless, any shape
    clip : ratio, broadcast against it
        c, at least 0.
    """
    return checked(oscillation, "oscillation") <= np.log1p(checked(clip, "clip"))


def is_phantom_clip(log_ratio: ArrayLike, clip: float) -> NDArray[np.bool_]:
    """Say which tokens leave [1-c, 1+c] before any update, trust region spent on numerics (D18).

    Its mean over tokens drawn from q is the phantom clip rate.

    Parameters
    ----------
    log_ratio : nats, any shape
    clip : float, ratio
        c, at least 0.
    """
    ell, c = checked_log_ratio(log_ratio), float(checked(clip, "clip"))
    floor = math.log1p(-c) if c < 1.0 else -math.inf
    return (ell > math.log1p(c)) | (ell < floor)
