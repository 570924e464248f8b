"""Streams of per-sequence values for the comparison of delays: healthy, allowed and faulty.

The moments are those of softmax pools with the usual noise of bfloat16 (docs/benchmarks.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, log1p, pi, sqrt
from typing import Protocol

import numpy as np

from paritas.commands.experiments.result import Floats

__all__ = ["CHANGE", "UNITS", "Fault", "Law", "LogNormal", "Rate", "faults"]

UNITS, CHANGE = 6000, 3000
Z99 = 2.3263  # standard normal quantile
LIMIT, HEALTHY, P99 = 0.01, 0.0085, 0.026  # per-sequence total variation
TAIL_LIMIT, TAIL_HEALTHY, TAIL_FAULT = 0.001, 0.0003, 0.01  # share of sequences beyond 0.1

Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]


class Law(Protocol):
    """Independent values of one law whose density is known: what an oracle may use."""

    def __call__(self, rng: np.random.Generator, shape: tuple[int, int], /) -> Floats:
        """Draw values."""

    def log_density(self, values: Floats, /) -> Floats:
        """Log of the density or of the probability of each value."""


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Log-normal values with this mean and this 99 % quantile."""

    mean: float
    p99: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return Z99 - sqrt(Z99**2 - 2.0 * log(self.p99 / self.mean))

    def __call__(self, rng: np.random.Generator, shape: tuple[int, int], /) -> Floats:
        """Draw values."""
        return rng.lognormal(log(self.mean) - self.sigma**2 / 2.0, self.sigma, shape)

    def log_density(self, values: Floats, /) -> Floats:
        """Log of the density, by d log x."""
        z = (np.log(values) - log(self.mean)) / self.sigma + self.sigma / 2.0
        return np.asarray(-0.5 * z**2 - log(self.sigma * sqrt(2.0 * pi)))


@dataclass(frozen=True, slots=True)
class Rate:
    """1 with this probability, else 0."""

    share: float

    def __call__(self, rng: np.random.Generator, shape: tuple[int, int], /) -> Floats:
        """Draw values."""
        return (rng.random(shape) < self.share).astype(np.float64)

    def log_density(self, values: Floats, /) -> Floats:
        """Log of the probability."""
        return np.where(values > 0.0, log(self.share), log1p(-self.share))


@dataclass(frozen=True, slots=True)
class Fault:
    """One scenario: a limit, what is allowed, and what is not.

    Attributes
    ----------
    healthy, at_limit, faulty : Law
        Values before the change, exactly at the limit, and after the change.
    allowed : mapping of str to callable
        Streams whose mean never exceeds the limit; the first is the same law exactly at it.
    """

    name: str
    limit: float
    healthy: Law
    at_limit: Law
    faulty: Law
    allowed: dict[str, Draw]

    def changed(self, rng: np.random.Generator, streams: int, units: int) -> Floats:
        """Streams that are healthy up to `CHANGE` and faulty for `units` from there on."""
        before = self.healthy(rng, (CHANGE, streams))
        return np.concatenate([before, self.faulty(rng, (units, streams))])


def faults() -> tuple[Fault, ...]:
    """Mean up by half, mean times three, and one broken sequence in a hundred."""
    tv_limit, rate_limit = LogNormal(LIMIT, P99 * LIMIT / HEALTHY), Rate(TAIL_LIMIT)
    tv: dict[str, Draw] = {
        "at the limit": tv_limit,
        "at the limit, heavy tail": _heavy,
        "0.5 to 0.95 of the limit": _steps((0.5, 0.95)),
        "day and night": _steps((0.6, 1.0) * 6),
        "slow rise to the limit": _steps(tuple(np.linspace(0.3, 1.0, 60))),
    }
    tail: dict[str, Draw] = {
        "at the limit": rate_limit,
        "0.1 to 1 of the limit": lambda rng, shape: (
            rng.random(shape) < TAIL_LIMIT * _levels((0.1, 1.0), shape)
        ).astype(np.float64),
    }
    healthy = LogNormal(HEALTHY, P99)
    return (
        Fault("mean × 1.5", LIMIT, healthy, tv_limit, LogNormal(0.0126, 0.037), tv),
        Fault("mean × 3", LIMIT, healthy, tv_limit, LogNormal(0.0251, 0.075), tv),
        Fault("1 % broken", TAIL_LIMIT, Rate(TAIL_HEALTHY), rate_limit, Rate(TAIL_FAULT), tail),
    )


def _heavy(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """The healthy law with one sequence in two hundred at twenty times its mean, exactly at the limit."""
    rare = rng.random(shape) < 0.005
    values = LogNormal(HEALTHY, P99)(rng, shape) * np.where(rare, 20.0, 1.0)
    return np.minimum(values * (LIMIT / (HEALTHY * (1.0 + 19.0 * 0.005))), 1.0)


def _levels(shares: tuple[float, ...], shape: tuple[int, int]) -> Floats:
    """Stretches of equal length at these shares of the limit, shape (units, 1)."""
    places = np.arange(shape[0]) * len(shares) // shape[0]
    return np.array(shares)[places][:, None]


def _steps(shares: tuple[float, ...]) -> Draw:
    """The healthy law, its mean moved to shares of the limit that are all allowed."""
    law = LogNormal(LIMIT, P99 * LIMIT / HEALTHY)
    return lambda rng, shape: law(rng, shape) * _levels(shares, shape)
