"""River citizens: our sequential tests as drift detectors of river.

| question | detector | river's base class |
|---|---|---|
| Has the mean of a value risen above a limit, and is it about to? | `SRDetector` | `DriftAndWarningDetector` |
| Has a model's error rate? | `BinarySRDetector` | `BinaryDriftAndWarningDetector` |
| The same, at one false-alarm budget a period, as the `Bank` decides | `BudgetDetector` | `DriftDetector` |
| Was it ever above, from the first value on? | `EProcess` | `DriftDetector` |

All play fixed bets ``1 + bet / limit * (x - limit)`` and average their wealth.  Parameters only in
`__init__`, state in `_reset`, Python floats throughout; `clone`, pickle and ``river.checks`` work as
for river's own (docs/river.md).  A drift stays up until the next value, which starts the test anew.
"""

import math

import numpy as np
from river import base

from paritas.detectors.river_wealth import BETS, WORST, Wealth, require
from paritas.detectors.sequential import Grid, StartMass

__all__ = ["BETS", "BinarySRDetector", "BudgetDetector", "EProcess", "SRDetector"]

GRID_BETS = tuple(Grid().fractions().tolist())
MASS = StartMass()


class _ShiryaevRoberts(Wealth):
    """The classic recursion ``R <- (R + 1) * factor``, with a second, lower threshold for warnings."""

    _warning_detected: bool

    def __init__(
        self,
        limit: float = 0.02,
        threshold: float = 1e5,
        warning_threshold: float = 1e3,
        bets: tuple[float, ...] = BETS,
    ) -> None:
        require(threshold > 1.0, f"threshold must be above 1, got {threshold}")
        require(warning_threshold > 1.0, f"warning_threshold must be above 1, got {warning_threshold}")
        self.threshold = threshold
        self.warning_threshold = warning_threshold
        super().__init__(limit, bets)

    def _start(self) -> float:
        return -math.inf

    def _log_mass(self) -> float:
        return 0.0

    def _log_threshold(self) -> float:
        return math.log(self.threshold)

    def _judge(self) -> None:
        """River's wrappers train a second model while a warning lasts, and look for a drift only then."""
        super()._judge()
        is_near = self.log_evidence >= math.log(self.warning_threshold)
        self._warning_detected = is_near and not self._drift_detected


class SRDetector(_ShiryaevRoberts, base.DriftAndWarningDetector):
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
    warning_threshold : float
        The same of warnings, which last while R is between the two and are not latched.
    bets : tuple of float
        Fractions of the largest legal bet, in (0, 1).

    Raises
    ------
    ValueError
        If a parameter is outside its range.

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


class BinarySRDetector(_ShiryaevRoberts, base.BinaryDriftAndWarningDetector):
    """`SRDetector` for a stream of errors: has the error rate risen above `limit`?

    For river's wrappers that feed "was the prediction wrong?", such as
    `river.drift.DriftRetrainingClassifier`.  Unlike DDM it is told which error rate is fine, and
    keeps its promise however often one looks.

    Parameters
    ----------
    limit : float
        Largest error rate that is still fine, in (0, 1).
    threshold, warning_threshold, bets
        As of `SRDetector`.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Examples
    --------
    >>> detector = BinarySRDetector(limit=0.1)
    >>> for place, wrong in enumerate([0, 1, 0, 0, 1] + [1] * 20):
    ...     detector.update(wrong)
    ...     if detector.warning_detected:
    ...         print(place, "warning")
    ...     if detector.drift_detected:
    ...         print(place, "drift")
    ...         break
    7 warning
    8 warning
    9 drift
    """

    def _readable(self, x: float) -> float:
        """Anything but 0 and 1 counts as an error."""
        if x in (0, 1):
            return float(x)
        self.n_bad += 1
        return WORST


class BudgetDetector(Wealth, base.DriftDetector):
    """What the `Bank` decides of one row: false alarms by a budget a period, whatever the traffic.

    The e-detector of `SRDetector` with a start mass that sums to at most one a period
    (`paritas.detectors.sequential.StartMass`) instead of one a value: the probability of any false
    alarm in the first period is at most `alpha`, within n periods at most ``(0.75 + 0.25 n) alpha``.
    A river detector has no clock: the period is counted in values, evenly spaced.

    Parameters
    ----------
    limit : float
        Largest mean that is still fine; positive.
    alpha : float
        False-alarm budget of a period, in (0, 1).
    period : int
        Values a period; at least 1.
    bets : tuple of float
        Fractions of the largest legal bet; the bank's by default.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Examples
    --------
    >>> detector = BudgetDetector(limit=0.01, alpha=0.001, period=100_000)
    >>> for _ in range(50):
    ...     detector.update(0.05)
    ...     if detector.drift_detected:
    ...         break
    >>> detector.n_units
    7
    """

    def __init__(
        self,
        limit: float = 0.02,
        alpha: float = 0.01,
        period: int = 100_000,
        bets: tuple[float, ...] = GRID_BETS,
    ) -> None:
        require(0.0 < alpha < 1.0, f"alpha must lie between 0 and 1, got {alpha}")
        require(period >= 1, f"period must be at least 1, got {period}")
        self.alpha = alpha
        self.period = period
        super().__init__(limit, bets)

    def _start(self) -> float:
        return -math.inf

    def _log_mass(self) -> float:
        share = 0.0 if self.n_units == 1 else 1.0 / self.period
        return math.log(float(MASS.of(np.array(self.n_units), np.array(share))))

    def _log_threshold(self) -> float:
        return -math.log(self.alpha)


class EProcess(Wealth, base.DriftDetector):
    """Betting e-process of "the mean exceeds `limit`" from the first unit on (Waudby-Smith, Ramdas).

    The probability that it ever reaches ``1 / alpha`` while the mean is at most `limit` is at
    most `alpha` (Ville), however often one looks.

    Parameters
    ----------
    limit : float
        Largest mean that is still fine; positive.
    alpha : float
        Error probability, in (0, 1).
    bets : tuple of float
        Fractions of the largest legal bet, in (0, 1).

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Examples
    --------
    >>> process = EProcess(limit=0.01, alpha=0.01)
    >>> process.update(0.5)
    >>> process.drift_detected, round(process.log_evidence, 2)
    (False, 2.64)
    """

    def __init__(self, limit: float = 0.02, alpha: float = 0.01, bets: tuple[float, ...] = BETS) -> None:
        require(0.0 < alpha < 1.0, f"alpha must lie between 0 and 1, got {alpha}")
        self.alpha = alpha
        super().__init__(limit, bets)

    def _start(self) -> float:
        return 0.0

    def _log_mass(self) -> float:
        return -math.inf

    def _log_threshold(self) -> float:
        return -math.log(self.alpha)
