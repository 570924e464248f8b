"""Display series: what dashboards draw, by river's own statistics; never what a verdict rests on.

A `Series` is itself a statistic of river, so that it links (``|``) and aggregates
(`river.feature_extraction.Agg`) like any other.  River values are fed per sequence, finite and bounded,
because one NaN poisons most of its objects for ever.
"""

import math

from river import drift, stats

__all__ = ["Series"]

FADING = 0.01  # weight of the newest sequence: a memory of about a hundred
ADWIN_RANGE = 8.0  # ADWIN assumes values in [0, 1]: x / (8 limit), capped (docs/how-it-decides.md)


class Series(stats.base.Univariate):
    """Smoothed mean, median, spread and an advisory change point of one clause's values.

    Parameters
    ----------
    limit : float
        The clause's limit, which scales the change detector; in the values' unit.

    Attributes
    ----------
    changes : int
        How often ADWIN has seen the level change.  Advisory: it controls no error.
    skipped : int
        Values that were not finite and were left out.

    Examples
    --------
    >>> series = Series(limit=0.02)
    >>> series
    Series: None
    >>> for value in (0.01, 0.03, math.nan):
    ...     series.update(value)
    >>> round(series.get(), 4), series.skipped
    (0.0102, 1)
    """

    def __init__(self, limit: float = 0.02) -> None:
        self.limit = limit
        self.changes = 0
        self.skipped = 0
        self._mean = stats.EWMean(fading_factor=FADING)
        self._median = stats.Quantile(0.5)
        self._high = stats.Quantile(0.99)
        self._variance = stats.Var()
        self._adwin = drift.ADWIN(delta=0.002)

    def update(self, x: float) -> None:
        """Fold one sequence's value in; what is not finite is counted and left out."""
        if not math.isfinite(x):
            self.skipped += 1
            return
        for statistic in (self._mean, self._median, self._high, self._variance):
            statistic.update(x)
        scale = ADWIN_RANGE * self.limit if self.limit > 0 else 1.0
        self._adwin.update(min(max(x / scale, 0.0), 1.0))
        self.changes += int(self._adwin.drift_detected)

    def get(self) -> float | None:
        """Return the smoothed mean in the values' unit; None before the first value, as `river.stats.Link` expects."""
        mean = self.as_dict()["ew_mean"]
        return None if math.isnan(mean) else mean

    def as_dict(self) -> dict[str, float]:
        """Current values in the statistic's unit; NaN before the first value."""
        get = {"ew_mean": self._mean, "median": self._median, "p99": self._high, "variance": self._variance}
        told = {name: statistic.get() for name, statistic in get.items()}
        empty = told["median"] is None  # river's means say 0 before the first value
        return {
            **{k: math.nan if empty or v is None else float(v) for k, v in told.items()},
            "changes": float(self.changes),
        }
