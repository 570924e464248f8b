"""Float-safe pieces the bounds are made of: exact near 0 and 1, finite where the value is.

Everything is float64, vectorised over any shape and pure.  Arguments are checked once, at
the door of each public bound, by `checked`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "LARGEST",
    "SMALLEST",
    "Array",
    "Interval",
    "binary_kl",
    "checked",
    "expm1_minus",
    "log_cosh",
    "log_expm1",
    "log_softmax",
    "logit",
    "neg_log1m_square",
    "sigmoid",
    "union_of_independent",
]

LARGEST = float(np.finfo(np.float64).max)
SMALLEST = float(np.finfo(np.float64).smallest_subnormal)
SERIES_BELOW = 1e-3  # below it exp(x) - 1 - x cancels, and four terms are exact to rounding

Array = NDArray[np.float64]
"""A float64 array of any shape; a float64 scalar where the arguments were scalars."""


class Interval(NamedTuple):
    """A lower and an upper limit, elementwise."""

    lower: Array
    upper: Array


def checked(values: ArrayLike, name: str, *, low: float = 0.0, high: float = np.inf) -> Array:
    """Return `values` as float64 once every entry lies in [low, high].

    Raises
    ------
    ValueError
        If an entry is NaN or outside; the message names the first one.

    Examples
    --------
    >>> checked(2, "tv", high=1.0)
    Traceback (most recent call last):
        ...
    ValueError: tv must be between 0 and 1, got 2
    """
    array = np.asarray(values, dtype=np.float64)
    wrong = ~((array >= low) & (array <= high))  # written so that NaN is wrong
    if wrong.any():
        raise ValueError(f"{name} must be {_range_text(low, high)}, got {array[wrong].flat[0]:g}")
    return array


def _range_text(low: float, high: float) -> str:
    if high == LARGEST and low <= -LARGEST:
        return "finite" if low == -LARGEST else "below infinity"
    least = "" if low == -np.inf else "above 0" if low == SMALLEST else f"{low:g} or more"
    most = "" if high >= LARGEST else f"{high:g} or less"
    if least and most:
        return f"between {low:g} and {high:g}" if low != SMALLEST else f"above 0 and at most {high:g}"
    return least or most or "a number"


def sigmoid(x: ArrayLike) -> Array:
    """Return 1/(1+exp(-x)) without overflow and with full relative precision in both tails.

    Examples
    --------
    >>> float(sigmoid(-745.0)) > 0, float(sigmoid(np.inf))
    (True, 1.0)
    """
    value = np.asarray(x, dtype=np.float64)
    small = np.exp(-np.abs(value))
    return np.where(value >= 0, 1.0, small)[()] / (1.0 + small)


def logit(probability: ArrayLike) -> Array:
    """Return log(p/(1-p)); minus and plus infinity at 0 and 1."""
    p = np.asarray(probability, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.log(p) - np.log1p(-p)


def log_cosh(x: ArrayLike) -> Array:
    """Return log(cosh(x)), exact to rounding near 0 and without overflow.

    Examples
    --------
    >>> f"{log_cosh(1e-8):.6g}", float(log_cosh(1e308)) == 1e308
    ('5e-17', True)
    """
    size = np.abs(np.asarray(x, dtype=np.float64))
    near = np.log1p(2.0 * np.sinh(np.minimum(size, 1.0) / 2.0) ** 2)
    far = size + np.log1p(np.exp(-2.0 * np.minimum(size, 400.0))) - np.log(2.0)
    return np.where(size < 1.0, near, far)[()]


def log_expm1(x: ArrayLike) -> Array:
    """Return log(exp(x)-1) for x >= 0 without overflow; minus infinity at 0."""
    value = np.asarray(x, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return value + np.log(-np.expm1(-value))


def log_softmax(logits: ArrayLike) -> Array:
    """Return the log of the softmax over the last axis."""
    value = np.asarray(logits, dtype=np.float64)
    largest: Array = value.max(axis=-1, keepdims=True)
    shifted = value - largest
    total: Array = np.exp(shifted).sum(axis=-1, keepdims=True)
    return shifted - np.log(total)


def neg_log1m_square(t: ArrayLike) -> Array:
    """Return -log(1-t^2) for 0 <= t <= 1 without cancellation; infinity at 1 (F4, F5).

    Examples
    --------
    >>> float(neg_log1m_square(1e-9)), float(neg_log1m_square(1.0))
    (1e-18, inf)
    """
    value = np.asarray(t, dtype=np.float64)
    with np.errstate(divide="ignore"):
        far = -(np.log1p(value) + np.log1p(-value))
    return np.where(value < 0.5, -np.log1p(-np.square(np.minimum(value, 0.5))), far)[()]


def union_of_independent(probability: ArrayLike, count: ArrayLike) -> Array:
    """Return 1-(1-a)^k, the chance that one of k independent events happens (B2, C3, C4).

    Examples
    --------
    >>> float(union_of_independent(1e-20, 2)), float(union_of_independent(1.0, 0))
    (2e-20, 0.0)
    """
    a, k = np.broadcast_arrays(np.asarray(probability, np.float64), np.asarray(count, np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = k * np.log1p(-a)
    return -np.expm1(np.where((a == 0.0) | (k == 0.0), 0.0, exponent))[()] + 0.0  # no minus zero


def binary_kl(first: ArrayLike, second: ArrayLike) -> Array:
    """Return the KL divergence between two coins in nats, without cancellation when they are close.

    Infinite where `second` is 0 or 1 and `first` is not.

    Examples
    --------
    >>> round(float(binary_kl(0.5, 0.5 + 1e-9)) * 1e18, 6)
    2.0
    """
    x, y = np.broadcast_arrays(np.asarray(first, np.float64), np.asarray(second, np.float64))
    return _kl_term(x, y - x) + _kl_term(1.0 - x, x - y)


def _kl_term(mass: Array, step: Array) -> Array:
    """Non-negative share of a KL: mass (r - 1 - log r) with r = 1 + step / mass."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        near = mass * expm1_minus(np.log1p(step / mass))
        far = step - mass * (np.log(mass + step) - np.log(mass))
    close = np.abs(step) < mass / 2.0
    return np.where(mass == 0.0, step, np.where(close, near, far))[()]


def expm1_minus(x: ArrayLike) -> Array:
    """Return exp(x) - 1 - x without cancellation near 0.

    Examples
    --------
    >>> round(float(expm1_minus(-1e-9)) * 1e18, 6)
    0.5
    """
    value = np.asarray(x, dtype=np.float64)
    near = np.clip(value, -SERIES_BELOW, SERIES_BELOW)
    series = near**2 * (0.5 + near * (1.0 / 6.0 + near * (1.0 / 24.0 + near / 120.0)))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(np.abs(value) < SERIES_BELOW, series, np.expm1(value) - np.minimum(value, LARGEST))[
            ()
        ]
