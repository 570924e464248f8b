"""Change detectors people use, each reduced to one number that is tuned: river's own objects where it has them.

A detector alarms at the first unit whose score reaches its threshold.  What it does after an alarm
does not matter here: a stream's first alarm is either early or the one that counts.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from paritas.commands.experiments.result import Floats

__all__ = ["Adwin", "Detector", "Scored", "Tuning", "page_hinkley", "peers"]

Places = NDArray[np.int64]
MIN_INSTANCES, FADING = 30, 0.9999  # PageHinkley's defaults
KSWIN_WARM, KSWIN_STREAMS, KSWIN_UNITS = 100, 20, 800  # 0.4 ms an update: fewer and shorter streams
ADWIN_STREAMS, DEEPEST = 150, 40.0  # smallest delta tried: 1e-40


@dataclass(frozen=True, slots=True)
class Tuning:
    """What one stream law asks of a detector.

    Attributes
    ----------
    setting : float
        Sharpest setting that keeps the target there; larger is stricter.
    share : callable
        Setting in, share of these streams with a false alarm out.
    """

    setting: float
    share: Callable[[float], float]


class Detector(Protocol):
    """One detector with one number left to tune, its strictness."""

    @property
    def name(self) -> str:
        """Name with its fixed settings."""

    def tune(self, null: Floats, target: float) -> Tuning:
        """Find the sharpest setting that alarms in at most `target` of these streams."""

    def alarms(self, values: Floats) -> Callable[[float], Places]:
        """Return what gives the place of each stream's first alarm at a setting, `len(values)` for none."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A detector whose alarm is a threshold on a score, shape (units, streams).

    `units` and `streams` cut what a slow one is tuned on; fewer units ask less of it.
    """

    name: str
    score: Callable[[Floats], Floats]
    units: int = 0
    streams: int = 0

    def tune(self, null: Floats, target: float) -> Tuning:
        """Threshold that at most `target` of the streams ever reach."""
        peaks = np.sort(self.score(null[: self.units or None, : self.streams or None]).max(axis=0))[::-1]
        setting = float(np.nextafter(peaks[int(target * len(peaks))], np.inf))
        return Tuning(setting, lambda threshold: float((peaks >= threshold).mean()))

    def alarms(self, values: Floats) -> Callable[[float], Places]:
        """First unit whose score reaches the threshold; the score is computed once."""
        told = self.score(values)

        def first(threshold: float) -> Places:
            hit = told >= threshold
            return np.where(hit.any(axis=0), hit.argmax(axis=0), len(told))

        return first


@dataclass(frozen=True, slots=True)
class Adwin:
    """river's ADWIN on ``x / scale + shift`` cut to [0, 1]; the setting is -log10 of its delta.

    Delta also decides where the window is cut, so each setting is a run of its own.
    """

    name: str
    scale: float
    shift: float = 0.0

    def tune(self, null: Floats, target: float) -> Tuning:
        """Bisect for the largest delta that keeps the target."""
        first = self.alarms(null[:, :ADWIN_STREAMS])

        def share(setting: float) -> float:
            return float((first(setting) < len(null)).mean())

        low, high = 0.5, DEEPEST
        while high - low > 0.25:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if share(middle) <= target else (middle, high)
        return Tuning(high, share)

    def alarms(self, values: Floats) -> Callable[[float], Places]:
        """First alarm at delta = 10^-setting."""
        columns = np.clip(values / self.scale + self.shift, 0.0, 1.0).T.tolist()

        def first(setting: float) -> Places:
            from river.drift import ADWIN

            return np.array([_first(ADWIN(delta=10.0**-setting), column) for column in columns])

        return first


def _first(detector: object, column: list[float]) -> int:
    update = detector.update  # type: ignore[attr-defined]  # river annotates only a part of itself
    for place, value in enumerate(column):
        update(value)
        if detector.drift_detected:  # type: ignore[attr-defined]  # as above
            return place
    return len(column)


def peers(limit: float) -> tuple[Detector, ...]:
    """Every peer, with several settings of what is not tuned."""
    hinkley = (
        Scored(f"PageHinkley delta {share:g} limit", _hinkley(share * limit)) for share in (0.05, 0.2, 0.5)
    )
    cusum = (Scored(f"CUSUM k {share:g} limit", _cusum(limit, share * limit)) for share in (0.1, 0.3, 0.8))
    window = (Scored(f"z-window {size}", _window(limit, size)) for size in (50, 200, 500))
    kswin = Scored("KSWIN", _kswin, KSWIN_UNITS, KSWIN_STREAMS)
    return (Adwin(f"ADWIN on min(x/{5.0 * limit:g}, 1)", 5.0 * limit), *hinkley, *cusum, *window, kswin)


def _cusum(limit: float, slack: float) -> Callable[[Floats], Floats]:
    """One-sided CUSUM that knows the limit: S <- max(0, S + x - limit - k)."""

    def score(values: Floats) -> Floats:
        out, level = np.empty_like(values), np.zeros(values.shape[1])
        for place, row in enumerate(values):
            level = np.maximum(level + row - limit - slack, 0.0)
            out[place] = level
        return out

    return score


def _window(limit: float, size: int) -> Callable[[Floats], Floats]:
    """z of the mean of the last `size` values against the limit, with their own deviation."""

    def score(values: Floats) -> Floats:
        sums, squares = (_moving(values**power, size) for power in (1, 2))
        spread = np.sqrt(np.maximum(squares / size - (sums / size) ** 2, 1e-12) / size)
        return np.concatenate([np.full((size - 1, values.shape[1]), -np.inf), (sums / size - limit) / spread])

    return score


def _moving(values: Floats, size: int) -> Floats:
    total = np.cumsum(np.concatenate([np.zeros((1, values.shape[1])), values]), axis=0)
    return np.asarray(total[size:] - total[:-size])


def _hinkley(delta: float) -> Callable[[Floats], Floats]:
    """Test statistic of river's PageHinkley, upwards, silent until it may alarm."""

    def score(values: Floats) -> Floats:
        told = page_hinkley(values, delta)
        told[: MIN_INSTANCES - 1] = -np.inf
        return told

    return score


def page_hinkley(values: Floats, delta: float) -> Floats:
    """Statistic of river's PageHinkley(mode="up") after each value, all streams at once.

    river's own recursion on columns: its object takes a microsecond a value, which a table of
    thousands of streams cannot pay.  A test compares the two.
    """
    mean, level, least = (
        np.zeros(values.shape[1]),
        np.zeros(values.shape[1]),
        np.full(values.shape[1], np.inf),
    )
    out = np.empty_like(values)
    for place, row in enumerate(values):
        mean = mean + (row - mean) / (place + 1)
        level = FADING * level + (row - mean) - delta
        least = np.minimum(least, level)
        out[place] = level - least
    return out


def _kswin(values: Floats) -> Floats:
    """-log10 of the p-value of river's KSWIN; -inf until its window is full."""
    return np.stack([_kswin_path(i, column) for i, column in enumerate(values.T.tolist())], axis=1)


def _kswin_path(seed: int, column: list[float]) -> Floats:
    from river.drift import KSWIN

    detector, path = KSWIN(alpha=1e-300, seed=seed), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for place, value in enumerate(column, start=1):
            detector.update(value)
            path.append(-np.log10(detector.p_value) if place >= KSWIN_WARM else -np.inf)
    return np.array(path)
