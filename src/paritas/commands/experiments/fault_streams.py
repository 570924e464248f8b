"""Streams of per-sequence values for the comparison of delays: healthy, allowed and faulty.

The moments are those of softmax pools with the usual noise of bfloat16 (docs/benchmarks.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from paritas.commands.experiments.result import Floats

__all__ = ["CHANGE", "UNITS", "Fault", "faults", "lognormal"]

UNITS, CHANGE = 6000, 3000
Z99 = 2.3263  # standard normal quantile
LIMIT, HEALTHY, P99 = 0.01, 0.0085, 0.026  # per-sequence total variation
TAIL_LIMIT, TAIL_HEALTHY, TAIL_FAULT = 0.001, 0.0003, 0.01  # share of sequences beyond 0.1

Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]


@dataclass(frozen=True, slots=True)
class Fault:
    """One scenario: a limit, what is allowed, and what is not.

    Attributes
    ----------
    healthy, faulty : callable
        Values before and after the change; (units, streams) in, an array of that shape out.
    allowed : mapping of str to callable
        Streams whose mean never exceeds the limit; the first is the same law exactly at it.
    """

    name: str
    limit: float
    healthy: Draw
    faulty: Draw
    allowed: dict[str, Draw]

    def changed(self, rng: np.random.Generator, streams: int, units: int) -> Floats:
        """Streams that are healthy up to `CHANGE` and faulty for `units` from there on."""
        before = self.healthy(rng, (CHANGE, streams))
        return np.concatenate([before, self.faulty(rng, (units, streams))])


def lognormal(mean: float, p99: float) -> Draw:
    """Values with this mean and this 99 % quantile."""
    sigma = Z99 - sqrt(Z99**2 - 2.0 * log(p99 / mean))
    return lambda rng, shape: rng.lognormal(log(mean) - sigma**2 / 2.0, sigma, shape)


def faults() -> tuple[Fault, ...]:
    """Mean up by half, mean times three, and one broken sequence in a hundred."""
    tv = {
        "at the limit": lognormal(LIMIT, P99 * LIMIT / HEALTHY),
        "at the limit, heavy tail": _heavy,
        "0.5 to 0.95 of the limit": _steps((0.5, 0.95)),
        "day and night": _steps((0.6, 1.0) * 6),
        "slow rise to the limit": _steps(tuple(np.linspace(0.3, 1.0, 60))),
    }
    tail = {
        "at the limit": _rate(TAIL_LIMIT),
        "0.1 to 1 of the limit": lambda rng, shape: (
            rng.random(shape) < TAIL_LIMIT * _levels((0.1, 1.0), shape)
        ).astype(np.float64),
    }
    healthy = lognormal(HEALTHY, P99)
    return (
        Fault("mean × 1.5", LIMIT, healthy, lognormal(0.0126, 0.037), tv),
        Fault("mean × 3", LIMIT, healthy, lognormal(0.0251, 0.075), tv),
        Fault("1 % broken", TAIL_LIMIT, _rate(TAIL_HEALTHY), _rate(TAIL_FAULT), tail),
    )


def _rate(share: float) -> Draw:
    return lambda rng, shape: (rng.random(shape) < share).astype(np.float64)


def _heavy(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """The healthy law with one sequence in two hundred at twenty times its mean, exactly at the limit."""
    rare = rng.random(shape) < 0.005
    values = lognormal(HEALTHY, P99)(rng, shape) * np.where(rare, 20.0, 1.0)
    return np.minimum(values * (LIMIT / (HEALTHY * (1.0 + 19.0 * 0.005))), 1.0)


def _levels(shares: tuple[float, ...], shape: tuple[int, int]) -> Floats:
    """Stretches of equal length at these shares of the limit, shape (units, 1)."""
    places = np.arange(shape[0]) * len(shares) // shape[0]
    return np.array(shares)[places][:, None]


def _steps(shares: tuple[float, ...]) -> Draw:
    """The healthy law, its mean moved to shares of the limit that are all allowed."""
    law = lognormal(LIMIT, P99 * LIMIT / HEALTHY)
    return lambda rng, shape: law(rng, shape) * _levels(shares, shape)
