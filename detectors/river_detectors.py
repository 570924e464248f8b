"""River citizens: our sequential tests behind river's base classes, and river's statistics for display.

`SRDetector` and `EProcess` subclass `river.base.DriftDetector`: parameters only in `__init__`,
state in `_reset`, Python floats in the scalar path, `clone` and pickle as river does them.  They
are the classic forms (docs/how-it-decides.md); the `Bank` folds the same bets for all rows at once.
"""

import abc
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from river import base

__all__ = ["EProcess", "SRDetector"]

# Half the bets timid for small shifts, half bold for large ones (docs/how-it-decides.md).
BETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.6, 0.9)
LOG_CEILING = 700.0  # exp of it is still finite in float64


class _Wealth(base.DriftDetector):
    """Shared parts: wealth per bet in nats, one value at a time or many.

    Values must be finite and non-negative; anything else counts as 1, the worst value of a
    bounded statistic: what cannot be read must not look healthy.
    """

    def __init__(self, limit: float, bets: tuple[float, ...]) -> None:
        super().__init__()
        self.limit = limit
        self.bets = bets
        self._reset()

    def _reset(self) -> None:
        super()._reset()
        self.n_units = 0
        self.n_bad = 0
        self._log_wealth = [self._start()] * len(self.bets)

    @abc.abstractmethod
    def _start(self) -> float: ...

    @abc.abstractmethod
    def _grow(self, log_wealth: float, log_factor: float) -> float: ...

    def update(self, x: float) -> None:
        """Fold one unit's value in."""
        if self.drift_detected:
            self._reset()
        value = self._readable(x)
        self.n_units += 1
        for k, bet in enumerate(self.bets):
            factor = math.log1p(bet / self.limit * (value - self.limit))
            self._log_wealth[k] = min(self._grow(self._log_wealth[k], factor), LOG_CEILING)
        self._drift_detected = self.log_evidence >= self._log_threshold()

    def update_many(self, x: NDArray[np.float64]) -> int:
        """Fold values in until one alarms; return how many were taken.

        Stopping at the alarm leaves what to do next to the caller, as `update` does.
        """
        for taken, value in enumerate(x.tolist(), start=1):
            self.update(value)
            if self.drift_detected:
                return taken
        return len(x)

    def _readable(self, x: float) -> float:
        if math.isfinite(x) and x >= 0:
            return float(x)
        self.n_bad += 1
        return 1.0

    @abc.abstractmethod
    def _log_threshold(self) -> float: ...

    @property
    def log_evidence(self) -> float:
        """Log of the mean wealth over bets, nats."""
        top = max(self._log_wealth)
        if top == -math.inf:
            return -math.inf
        return top + math.log(sum(math.exp(w - top) for w in self._log_wealth) / len(self._log_wealth))

    def state_dict(self) -> dict[str, object]:
        """JSON-ready state; pickles are tied to river's version, this is not."""
        wealth = [None if w == -math.inf else w for w in self._log_wealth]
        return {"n_units": self.n_units, "n_bad": self.n_bad, "wealth": wealth, "drift": self.drift_detected}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what `state_dict` gave."""
        wealth = state["wealth"]
        assert isinstance(wealth, list)
        self.n_units, self.n_bad = int(str(state["n_units"])), int(str(state["n_bad"]))
        self._log_wealth = [-math.inf if w is None else float(w) for w in wealth]
        self._drift_detected = bool(state["drift"])


class SRDetector(_Wealth):
    """Shiryaev-Roberts e-detector of "the mean exceeds `limit`" (Shin, Ramdas, Rinaldo: E-detectors).

    ``R <- (R + 1)(1 + bet / limit * (x - limit))``; alarm when the mean of R over bets reaches
    `threshold`.  The average run length to a false alarm is at least `threshold`, and the
    probability of one within n units at most ``n / threshold``.

    Parameters
    ----------
    limit : float
        Largest mean that is still fine, in the unit of the values; positive.
    threshold : float
        A; see above.
    bets : tuple of float
        Fractions of the largest legal bet, in (0, 1).

    Examples
    --------
    >>> detector = SRDetector(limit=0.01, threshold=1e5)
    >>> for _ in range(50):
    ...     detector.update(0.05)
    ...     if detector.drift_detected:
    ...         break
    >>> detector.n_units
    9
    """

    def __init__(self, limit: float = 0.02, threshold: float = 1e5, bets: tuple[float, ...] = BETS) -> None:
        self.threshold = threshold
        super().__init__(limit, bets)

    def _start(self) -> float:
        return -math.inf

    def _grow(self, log_wealth: float, log_factor: float) -> float:
        if log_wealth == -math.inf:
            return log_factor
        high, low = max(log_wealth, 0.0), min(log_wealth, 0.0)
        return high + math.log1p(math.exp(low - high)) + log_factor

    def _log_threshold(self) -> float:
        return math.log(self.threshold)


class EProcess(_Wealth):
    """Betting e-process of "the mean exceeds `limit`" from the first unit on (Waudby-Smith, Ramdas).

    The probability that it ever reaches ``1 / alpha`` while the mean is at most `limit` is at
    most `alpha` (Ville), however often one looks.

    Parameters
    ----------
    limit : float
        Largest mean that is still fine; positive.
    alpha : float
        Error probability.

    Examples
    --------
    >>> process = EProcess(limit=0.01, alpha=0.01)
    >>> process.update(0.5)
    >>> process.drift_detected, round(process.log_evidence, 2)
    (False, 2.64)
    """

    def __init__(self, limit: float = 0.02, alpha: float = 0.01, bets: tuple[float, ...] = BETS) -> None:
        self.alpha = alpha
        super().__init__(limit, bets)

    def _start(self) -> float:
        return 0.0

    def _grow(self, log_wealth: float, log_factor: float) -> float:
        return log_wealth + log_factor

    def _log_threshold(self) -> float:
        return -math.log(self.alpha)
