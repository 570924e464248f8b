"""Wealth of fixed bets behind river's face: what all our river detectors share.

river gives drift detectors a base class and few conventions; its checks are written for estimators.
What they ask of an estimator (`_tags`, `_unit_test_params`, `_unit_test_skips`) is here too, so that
``river.checks.check_estimator`` takes a detector of ours as it is.
"""

import abc
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from river import base

__all__ = ["BETS", "Wealth"]

# Half the bets timid for small shifts, half bold for large ones (docs/how-it-decides.md).
BETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.6, 0.9)
LOG_CEILING = 700.0  # exp of it is still finite in float64
WORST = 1.0  # of a bounded statistic: what cannot be read must not look healthy


class Wealth(base.Base):
    """Wealth per bet in nats, one value at a time or many; stands before a river base class.

    Parameters are kept as they came and everything else is made by `_reset`, as river's `clone` expects.
    Values must be finite and non-negative; anything else is counted in `n_bad` and folded in as 1.

    Attributes
    ----------
    n_units, n_bad : int
        Values since the last reset, and those of them that could not be read.
    """

    _drift_detected: bool

    def __init__(self, limit: float, bets: tuple[float, ...]) -> None:
        super().__init__()
        require(0.0 < limit < math.inf, f"limit must be above 0 and finite, got {limit}")
        require(bool(bets) and all(0.0 < b < 1.0 for b in bets), f"bets must lie between 0 and 1, got {bets}")
        self.limit = limit
        self.bets = bets
        self._reset()

    def _reset(self) -> None:
        super()._reset()  # type: ignore[misc]  # of the river base class that follows this one
        self.n_units = 0
        self.n_bad = 0
        self._log_wealth = [self._start()] * len(self.bets)

    @abc.abstractmethod
    def _start(self) -> float:
        """Log-wealth of a bet before the first value."""

    @abc.abstractmethod
    def _log_mass(self) -> float:
        """Log of the wealth that may start with the value at hand; -inf where none may."""

    @abc.abstractmethod
    def _log_threshold(self) -> float:
        """Evidence at which it alarms, nats."""

    def update(self, x: float) -> None:
        """Fold one value in; after a drift, begin anew with it."""
        if self._drift_detected:
            self._reset()
        value = self._readable(x)
        self.n_units += 1
        mass = self._log_mass()
        for k, bet in enumerate(self.bets):
            factor = math.log1p(bet / self.limit * (value - self.limit))
            self._log_wealth[k] = min(_log_sum(self._log_wealth[k], mass) + factor, LOG_CEILING)
        self._judge()

    def update_many(self, x: NDArray[np.float64] | Sequence[float]) -> int:
        """Fold values in until one alarms; return how many were taken.

        Stopping at the alarm leaves what to do next to the caller, as `update` does.
        """
        values = np.asarray(x, np.float64).tolist()
        for taken, value in enumerate(values, start=1):
            self.update(value)
            if self._drift_detected:
                return taken
        return len(values)

    def _readable(self, x: float) -> float:
        if math.isfinite(x) and x >= 0:
            return float(x)
        self.n_bad += 1
        return WORST

    def _judge(self) -> None:
        self._drift_detected = self.log_evidence >= self._log_threshold()

    @property
    def log_evidence(self) -> float:
        """Log of the mean wealth over bets, nats; -inf before the first value of a detector that starts with none.

        Blind to how long ago the change began, and to any mean at or below `limit`.
        """
        top = max(self._log_wealth)
        if top == -math.inf:
            return -math.inf
        return top + math.log(sum(math.exp(w - top) for w in self._log_wealth) / len(self._log_wealth))

    def state_dict(self) -> dict[str, object]:
        """JSON-ready state; pickles are tied to river's version, this is not.  Flags follow from the wealth."""
        wealth = [None if w == -math.inf else w for w in self._log_wealth]
        return {"n_units": self.n_units, "n_bad": self.n_bad, "wealth": wealth}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what `state_dict` gave."""
        wealth = state["wealth"]
        assert isinstance(wealth, list)
        self.n_units, self.n_bad = int(str(state["n_units"])), int(str(state["n_bad"]))
        self._log_wealth = [-math.inf if w is None else float(w) for w in wealth]
        self._judge()

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, object]]:
        """Parameters to be tested with; river's checks ask for them."""
        yield {}
        yield {"limit": 0.3, "bets": (0.1, 0.5)}

    @classmethod
    def _unit_test_skips(cls) -> set[str]:
        """Names of river's checks that do not hold; none."""
        return set()

    @property
    def _tags(self) -> set[str]:
        """River's tags tell of an estimator's features; a detector takes one number."""
        return set()


def require(holds: bool, says: str) -> None:
    """Raise the error of a parameter that cannot be, as river's own constructors do.

    Raises
    ------
    ValueError
        If it does not hold.
    """
    if not holds:
        raise ValueError(says)


def _log_sum(a: float, b: float) -> float:
    """Return log(exp(a) + exp(b)), also where one or both are -inf."""
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
