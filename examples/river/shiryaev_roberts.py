"""An e-detector in the manner of river's own modules; it needs river and nothing else.

Run it to see the doctest pass and a stream judged beside river's Page-Hinkley:

    python examples/river/shiryaev_roberts.py
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from river import base


class ShiryaevRoberts(base.DriftAndWarningDetector):
    r"""Shiryaev-Roberts e-detector for the mean of non-negative values.

    Raises an alarm when the mean of the stream has risen above a declared `limit`, with a bound on
    false alarms that holds for every distribution of non-negative values, however often one looks.

    Most detectors ask whether the level has changed. This one asks whether it is still acceptable:
    a change that stays below `limit` is no drift.

    The detector bets against "the mean is at most $m$", where $m$ is `limit`. A bet of size
    $\lambda_k = b_k / m$ multiplies its wealth by $1 + \lambda_k (x - m)$, which is positive because
    $b_k < 1$, and at most 1 on average as long as the limit is kept. One unit of wealth is put on every bet
    at every value:

    $$R_k \leftarrow (R_k + 1) (1 + \lambda_k (x - m))$$

    An alarm is raised when the average of $R_k$ over the bets reaches `threshold`. Under the limit, the
    expected number of values until a false alarm is at least `threshold`, and the probability of one
    among the first $n$ values is at most $n$ / `threshold`. No variance, window or warm-up is needed.

    Values that are negative, infinite or not a number count as 1, so that an unreadable stream does
    not look healthy.

    Parameters
    ----------
    limit
        The largest mean that is acceptable.
    threshold
        The alarm is raised when the average wealth reaches this value.
    warning_threshold
        A warning is signalled while the average wealth lies between this value and `threshold`.
    bets
        The sizes of the bets, as fractions of the largest possible one. Small fractions find small
        shifts, large ones find large shifts soon.

    Examples
    --------
    >>> import random
    >>> from river import drift

    >>> rng = random.Random(42)
    >>> detector = ShiryaevRoberts(limit=0.1)

    >>> # The error rate is 5%, then 9%, which is still acceptable, then 25%
    >>> stream = [rng.random() < 0.05 for _ in range(1000)]
    >>> stream += [rng.random() < 0.09 for _ in range(1000)]
    >>> stream += [rng.random() < 0.25 for _ in range(1000)]

    >>> for i, x in enumerate(stream):
    ...     detector.update(x)
    ...     if detector.drift_detected:
    ...         print(f"Change detected at index {i}")
    ...         break
    Change detected at index 2134

    It can be used wherever river takes a drift detector:

    >>> from river import evaluate
    >>> from river import metrics
    >>> from river import naive_bayes
    >>> from river.datasets import synth

    >>> def dataset():
    ...     return synth.ConceptDriftStream(
    ...         stream=synth.SEA(seed=42, variant=0),
    ...         drift_stream=synth.SEA(seed=42, variant=3),
    ...         seed=1, position=1500, width=50,
    ...     ).take(3000)

    >>> model = naive_bayes.GaussianNB()
    >>> evaluate.progressive_val_score(dataset(), model, metrics.Accuracy())
    Accuracy: 89.63%

    >>> model = drift.DriftRetrainingClassifier(
    ...     model=naive_bayes.GaussianNB(),
    ...     drift_detector=ShiryaevRoberts(limit=0.1, threshold=1e3, warning_threshold=30),
    ... )
    >>> evaluate.progressive_val_score(dataset(), model, metrics.Accuracy())
    Accuracy: 93.33%

    References
    ----------
    [^1]: Jaehyeok Shin, Aaditya Ramdas, Alessandro Rinaldo: E-detectors: A Nonparametric Framework for
    Sequential Change Detection. The New England Journal of Statistics in Data Science, 2(2), 2024.
    [^2]: Ian Waudby-Smith, Aaditya Ramdas: Estimating means of bounded random variables by betting.
    Journal of the Royal Statistical Society, Series B, 86(1), 2024.
    [^3]: Moshe Pollak: Optimal detection of a change in distribution. The Annals of Statistics, 13(1), 1985.

    """

    # The logarithm of wealth stops here, far above any threshold: its exponential is still finite
    _LOG_CEILING = 700.0

    def __init__(
        self,
        limit: float = 0.05,
        threshold: float = 1e5,
        warning_threshold: float = 1e3,
        bets: tuple[float, ...] = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.6, 0.9),
    ) -> None:
        super().__init__()
        if not 0 < limit < math.inf:
            raise ValueError("limit must be positive and finite")
        if min(threshold, warning_threshold) <= 1:
            raise ValueError("threshold and warning_threshold must be larger than 1")
        if not bets or not all(0 < bet < 1 for bet in bets):
            raise ValueError("bets must lie between 0 and 1")
        self.limit = limit
        self.threshold = threshold
        self.warning_threshold = warning_threshold
        self.bets = bets
        self._reset()

    def _reset(self) -> None:
        super()._reset()
        self._log_wealth = [-math.inf] * len(self.bets)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict]:
        yield {"limit": 0.05}
        yield {"limit": 0.2, "threshold": 1e3, "warning_threshold": 30.0, "bets": (0.1, 0.5)}

    @property
    def log_evidence(self) -> float:
        """The logarithm of the average wealth."""
        top = max(self._log_wealth)
        if top == -math.inf:
            return top
        return top + math.log(sum(math.exp(w - top) for w in self._log_wealth) / len(self.bets))

    def update(self, x: float) -> None:
        if self.drift_detected:
            self._reset()

        value = float(x) if math.isfinite(x) and x >= 0 else 1.0
        for k, bet in enumerate(self.bets):
            log_factor = math.log1p(bet / self.limit * (value - self.limit))
            grown = self._log_add_one(self._log_wealth[k]) + log_factor
            self._log_wealth[k] = min(grown, self._LOG_CEILING)

        evidence = self.log_evidence
        self._drift_detected = evidence >= math.log(self.threshold)
        self._warning_detected = not self._drift_detected and evidence >= math.log(self.warning_threshold)

    @staticmethod
    def _log_add_one(log_wealth: float) -> float:
        """The logarithm of wealth + 1, without leaving the logarithm."""
        return max(log_wealth, 0.0) + math.log1p(math.exp(-abs(log_wealth)))


def _alarms(detector: base.DriftDetector, stream: list[bool]) -> list[int]:
    """The places at which a detector is up."""
    places = []
    for place, x in enumerate(stream):
        detector.update(x)
        if detector.drift_detected:
            places.append(place)
    return places


def main() -> int:
    import doctest
    import random

    from river import drift

    failed, tried = doctest.testmod()
    print(f"doctest: {tried} examples, {failed} failed")
    rng, n = random.Random(7), 2000  # noqa: S311  # a simulation
    rates = (0.05, 0.08, 0.25)
    stream = [rng.random() < rate for rate in rates for _ in range(n)]
    detectors = {
        "ShiryaevRoberts(limit=0.1)": ShiryaevRoberts(limit=0.1),
        "PageHinkley()": drift.PageHinkley(),
    }
    for name, detector in detectors.items():
        places = _alarms(detector, stream)
        counts = ", ".join(
            f"{sum(p // n == k for p in places)} at {rate:.0%}" for k, rate in enumerate(rates)
        )
        late = min((p - 2 * n for p in places if p >= 2 * n), default=None)
        print(f"{name}: alarms at an error rate of: {counts}; the last rate is found after {late} values")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
