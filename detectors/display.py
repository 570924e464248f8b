"""Display series: what dashboards draw, by river's own statistics; never what a verdict rests on.

River values are fed per sequence, finite and bounded, because one NaN poisons most of its
objects for ever.
"""

import math
from dataclasses import dataclass, field

from river import drift, stats

__all__ = ["Series"]

FADING = 0.01  # weight of the newest sequence: a memory of about a hundred
ADWIN_RANGE = 8.0  # ADWIN assumes values in [0, 1]: x / (8 limit), capped (docs/how-it-decides.md)


@dataclass(slots=True)
class Series:
    """Smoothed mean, median, spread and an advisory change point of one clause's values.

    Attributes
    ----------
    limit : float
        The clause's limit, which scales the change detector; in the values' unit.
    changes : int
        How often ADWIN has seen the level change.  Advisory: it controls no error.
    """

    limit: float
    changes: int = 0
    skipped: int = 0
    _mean: stats.EWMean = field(default_factory=lambda: stats.EWMean(fading_factor=FADING))
    _median: stats.Quantile = field(default_factory=lambda: stats.Quantile(0.5))
    _high: stats.Quantile = field(default_factory=lambda: stats.Quantile(0.99))
    _variance: stats.Var = field(default_factory=stats.Var)
    _adwin: drift.ADWIN = field(default_factory=lambda: drift.ADWIN(delta=0.002))

    def update(self, value: float) -> None:
        """Fold one sequence's value in; what is not finite is counted and left out."""
        if not math.isfinite(value):
            self.skipped += 1
            return
        for statistic in (self._mean, self._median, self._high, self._variance):
            statistic.update(value)
        scale = ADWIN_RANGE * self.limit if self.limit > 0 else 1.0
        self._adwin.update(min(max(value / scale, 0.0), 1.0))
        self.changes += int(self._adwin.drift_detected)

    def as_dict(self) -> dict[str, float]:
        """Current values in the statistic's unit; NaN before the first value."""
        get = {"ew_mean": self._mean, "median": self._median, "p99": self._high, "variance": self._variance}
        told = {name: statistic.get() for name, statistic in get.items()}
        empty = told["median"] is None  # river's means say 0 before the first value
        return {
            **{k: math.nan if empty or v is None else float(v) for k, v in told.items()},
            "changes": float(self.changes),
        }
