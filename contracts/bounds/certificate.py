"""Always-valid limits on the running mean of a bounded statistic (docs/mathematics.md D15, D16).

No i.i.d. assumption, valid at every moment and under any stopping rule, and the state is
three numbers that shards add.  The statistics of `ratio`, `gradient` and `reward` go in.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from paritas.contracts.bounds.numerics import SMALLEST, Array, checked

__all__ = ["MeanLimits", "exponential_psi", "mean_radius", "smallest_certified_cap"]

BETS = np.ldexp(0.5, -np.arange(12))  # lambda_j = 2^(-1-j)
BET_SHARES = (13.0 / 12.0) / ((np.arange(12) + 1.0) * (np.arange(12) + 2.0))  # sum to 1
ROUNDING = 1e-9  # share of the range by which a value may overshoot it


def exponential_psi(bet: ArrayLike) -> Array:
    """Return psi(lambda) = -log(1-lambda) - lambda, the price of a bet (D15).

    ``exp(lambda x - psi(lambda) x^2) <= 1 + lambda x`` for x >= -1; equality at x = -1.

    Parameters
    ----------
    bet : dimensionless in [0, 1), any shape
    """
    lam = checked(bet, "bet", high=float(np.nextafter(1.0, 0.0)))
    return -np.log1p(-lam) - lam


def mean_radius(squares: ArrayLike, count: ArrayLike, *, alpha: float) -> Array:
    """Return the half-width that holds at every moment with probability 1 - alpha, one side (D16).

    Parameters
    ----------
    squares : any shape
        V, sum of squared distances of values in [0, 1] to their predictable running mean.
    count : values, broadcast against it
        N; the radius is infinite at 0.
    alpha : float
        Error probability of one side.

    Examples
    --------
    >>> round(float(mean_radius(0.3, 1000, alpha=0.05)), 4)
    0.0073
    """
    level = checked(alpha, "alpha", low=SMALLEST, high=1.0)
    v, n = checked(squares, "squares")[..., np.newaxis], checked(count, "count")[..., np.newaxis]
    with np.errstate(divide="ignore"):
        radius: Array = (_log_price(level) + exponential_psi(BETS) * v) / (BETS * n)
    best: Array = radius.min(axis=-1)
    return best


def _log_price(level: Array) -> Array:
    return -np.log(level) - np.log(BET_SHARES)


@dataclass(frozen=True, slots=True)
class MeanLimits:
    """Running state of a mean over values in [low, high], and its limits.

    ``m_t`` is the conditional mean of value t given the past.  With probability at least
    1 - alpha the mean of m_1 … m_N stays below `upper(alpha)` at *every* N, and the same for
    `lower(alpha)`; for both together use alpha/2 each, for M slices or monitors alpha/M.

    Attributes
    ----------
    low, high : float
        Range of the values, in their unit.
    count : int
        N, number of values.
    total : float
        Sum of the values rescaled to [0, 1].
    squares : float
        V, sum of squared distances to the predictable running mean, rescaled.

    Examples
    --------
    >>> state = MeanLimits().observe(np.zeros(1000))
    >>> state.lower(0.05), round(state.upper(0.05), 4)
    (0.0, 0.0074)
    """

    low: float = 0.0
    high: float = 1.0
    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a state that no stream can have."""
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"low must be below high, both finite, got {self.low:g} and {self.high:g}")
        if not (0.0 <= self.total <= self.count and 0.0 <= self.squares <= self.count):
            told = f"count {self.count}, total {self.total:g}, squares {self.squares:g}"
            raise ValueError(f"total and squares must be between 0 and count, got {told}")

    def observe(self, values: ArrayLike) -> "MeanLimits":
        """Return the state after `values`, shape (n,), in arrival order.

        Splitting the values over several calls changes nothing beyond rounding.

        Raises
        ------
        ValueError
            A value is NaN or outside [low, high] by more than rounding.
        """
        x = self._rescaled(values)
        before = self.total + np.concatenate([[0.0], np.cumsum(x)[:-1]]) if x.size else x
        predicted = (before + 0.5) / (self.count + 1.0 + np.arange(x.size))
        squares = self.squares + float(np.square(x - predicted).sum())
        return replace(self, count=self.count + x.size, total=self.total + float(x.sum()), squares=squares)

    def _rescaled(self, values: ArrayLike) -> Array:
        slack = ROUNDING * (self.high - self.low)
        raw = checked(np.ravel(values), "values", low=self.low - slack, high=self.high + slack)
        return np.clip((raw - self.low) / (self.high - self.low), 0.0, 1.0)

    def merge(self, other: "MeanLimits") -> "MeanLimits":
        """Return the state of both streams together; they must share their range and be independent.

        Raises
        ------
        ValueError
            The ranges differ.
        """
        if (self.low, self.high) != (other.low, other.high):
            raise ValueError(
                f"ranges differ: [{self.low:g}, {self.high:g}] and [{other.low:g}, {other.high:g}]"
            )
        added = {name: getattr(self, name) + getattr(other, name) for name in ("count", "total", "squares")}
        return replace(self, **added)

    @property
    def mean(self) -> float:
        """Mean of the values in their unit; NaN before the first."""
        return self.low + (self.high - self.low) * self.total / self.count if self.count else math.nan

    def radius(self, alpha: float) -> float:
        """Return the half-width of one side at level `alpha`, in the unit of the values (D16).

        Infinity before the first value.
        """
        return float(mean_radius(self.squares, self.count, alpha=alpha)) * (self.high - self.low)

    def lower(self, alpha: float) -> float:
        """Return the lower limit at level `alpha`; `low` before the first value."""
        return max(self.low, self.mean - self.radius(alpha)) if self.count else self.low

    def upper(self, alpha: float) -> float:
        """Return the upper limit at level `alpha`; `high` before the first value."""
        return min(self.high, self.mean + self.radius(alpha)) if self.count else self.high

    def as_dict(self) -> dict[str, float]:
        """Return the state as plain JSON-ready numbers."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, float]) -> "MeanLimits":
        """Return the state that `as_dict` gave; KeyError or ValueError if it is not one."""
        ranges = {"low": state["low"], "high": state["high"]}
        return cls(**ranges, count=int(state["count"]), total=state["total"], squares=state["squares"])


def smallest_certified_cap(
    caps: Sequence[float], limits: Sequence[MeanLimits], *, beta: float, alpha: float
) -> float | None:
    """Choose the smallest truncation whose bias certificate fits: least variance (D9, D16).

    Parameters
    ----------
    caps : increasing, ratio
        The grid, fixed in advance.
    limits : one state per cap
        Of the statistic ``1 - min(w, C)``.
    beta : float
        Tolerated bias in units of A_max G.
    alpha : float
        Level of the whole grid; each cap gets its share.

    Returns
    -------
    float or None
        None when no truncation is certified: missing support, or not yet resolved.
    """
    level = alpha / len(caps)
    passing = (cap for cap, state in zip(caps, limits, strict=True) if state.upper(level) <= beta)
    return next(passing, None)
