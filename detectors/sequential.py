"""Sequential tests: wealth that a fair game would not give.

Two processes, both from fixed bets ``1 + lambda (x - tau)`` on one unit at a time
(docs/how-it-decides.md):

`restart` is the Shiryaev-Roberts e-detector.  Instead of the classic start mass of one a
unit it spends a total of one per period: half on the first unit, a quarter over units
as 1/(k(k+1)), a quarter in proportion to elapsed time.  The probability of any false alarm in
the first period at threshold 1/alpha is then at most alpha, within n periods at most
(0.75 + 0.25 n) alpha, whatever the traffic; a certified recovery starts a new first period;
with the classic mass the same recursion is R <- (R + 1)(1 + lambda (x - tau)), alarm at A.

Without a start mass the same bets give the plain e-process from the first unit, used for PASS.

State arrays have shape (rows, k): one row a clause and slice, one column a bet.  Every unit
is folded in on its own, so cutting the input anywhere changes nothing, bit for bit.

Wealth is told in nats and kept as a plain number between `FLOOR` and `CEILING`, which are all of
float64 but a margin: one multiplication a bet and unit, where logarithms would cost ten times as much.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.pairs import Floats

__all__ = ["CEILING", "FLOOR", "Grid", "StartMass", "grown", "log_mean", "mean_wealth", "restart", "scaled"]

LOG_ZERO = -np.inf
# Wealth is kept in nats; beyond this the answer no longer changes and JSON stays readable.
LOG_CEILING = 700.0
CEILING = float(np.exp(LOG_CEILING)) * (1.0 - 2.0**-40)  # its logarithm, rounded, is not above `LOG_CEILING`
FLOOR = 1.0 / CEILING


@dataclass(frozen=True, slots=True)
class Grid:
    """Bet sizes as fractions of the largest legal bet, most timid first.

    Halving steps: the growth rate is flat around its optimum (a factor of two off loses about
    a quarter of it at most), so finer grids buy nothing and each extra bet costs log K.
    """

    size: int = 10
    largest: float = 0.9

    def fractions(self) -> Floats:
        """Shape (size,), float64, in (0, 1)."""
        return self.largest * 0.5 ** np.arange(self.size - 1, -1, -1, dtype=np.float64)

    def up(self, limit: float) -> Floats:
        """Bets against "mean <= limit": at most ``largest / limit``."""
        return self.fractions() / limit

    def down(self, limit: float) -> Floats:
        """Bets against "mean >= limit" for values in [0, 1]: at most ``largest / (1 - limit)``.

        Geometric in steps of 0.8: certifying wants large bets (docs/how-it-decides.md).
        """
        return self.largest * 0.8 ** np.arange(self.size - 1, -1, -1, dtype=np.float64) / (1.0 - limit)

    def both(self, largest: float) -> Floats:
        """Half the bets up, half down (negative), each at most `largest`."""
        half = Grid(self.size // 2, self.largest).fractions() * largest
        return np.concatenate([half, -half])


@dataclass(frozen=True, slots=True)
class StartMass:
    """How much a change is expected to start at a unit; sums to at most one a period."""

    first: float = 0.5
    by_count: float = 0.25
    by_time: float = 0.25

    def of(self, index: NDArray[np.int64], elapsed_share: Floats) -> Floats:
        """Mass of each row's unit number `index` (from 1), both arguments of shape (rows,).

        Parameters
        ----------
        elapsed_share : shape (rows,), share of a period
            Time since the row's last unit.

        Examples
        --------
        >>> StartMass().of(np.array([1, 2]), np.array([0.0, 0.5]))
        array([0.625     , 0.16666667])
        """
        start = np.where(index == 1, self.first, 0.0)
        by_count = self.by_count / (index * (index + 1.0))
        return np.asarray(start + by_count + self.by_time * np.clip(elapsed_share, 0.0, 1.0))


def restart(log_wealth: Floats, log_mass: Floats, log_factor: Floats) -> Floats:
    """One step of the e-detector: ``R <- (R + mass) * factor``, in nats, shape (rows, k).

    Parameters
    ----------
    log_wealth, log_factor : shape (rows, k), nats
    log_mass : shape (rows, 1), nats
        -inf where nothing may start.
    """
    return np.minimum(np.logaddexp(log_wealth, log_mass) + log_factor, LOG_CEILING)


def log_mean(log_wealth: Floats) -> Floats:
    """Log of the mean wealth over bets, shape (rows,): the mixture's wealth."""
    top = log_wealth.max(axis=1)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        mean = np.log(np.exp(log_wealth - safe[:, None]).mean(axis=1))
    return np.asarray(safe + mean)


def grown(wealth: Floats, mass: Floats, factor: Floats) -> Floats:
    """One step of the e-detector, ``R <- (R + mass) * factor``, on wealth itself.

    Parameters
    ----------
    wealth, factor, mass : shapes that broadcast; factors at most `CEILING`

    Examples
    --------
    >>> grown(np.array([0.5]), np.array([0.25]), np.array([2.0]))
    array([1.5])
    """
    with np.errstate(over="ignore"):  # infinity is above the ceiling
        return np.minimum(wealth * factor + mass * factor, CEILING)


def scaled(wealth: Floats, factor: Floats) -> Floats:
    """One step of an e-process without a start mass, ``E <- E * factor``, on wealth itself."""
    with np.errstate(over="ignore"):
        return np.minimum(np.maximum(wealth * factor, FLOOR), CEILING)


def mean_wealth(wealth: Floats, axis: int) -> Floats:
    """Mean over bets: the mixture's wealth.

    Bets are added one after the other, so that a row's sum does not depend on the rows beside it.
    """
    bets = np.moveaxis(wealth, axis, 0)
    with np.errstate(over="ignore"):  # infinity is above the ceiling
        total = bets[0].copy()
        for one in bets[1:]:
            total += one
        return np.asarray(np.minimum(total / len(bets), CEILING))
