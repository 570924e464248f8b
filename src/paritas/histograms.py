"""Exponential histograms in the bucket mapping of OpenTelemetry: merged exactly, and asked without guessing.

With the base ``b = 2^(2^-scale)`` bucket i holds the values in ``(b^i, b^(i+1)]``, and the zero bucket those
up to `zero_threshold` (OpenTelemetry metrics data model, exponential histograms).  Halving the resolution
joins buckets 2i and 2i + 1, so two histograms merge by their counts at the coarser scale of both.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isnan

import numpy as np
from numpy.typing import NDArray

__all__ = ["SCALES", "ExponentialHistogram"]

Counts = NDArray[np.int64]
SCALES = range(-10, 21)  # finer ones resolve no float, coarser ones nothing at all
NAN = float("nan")
BUCKETS_AT_MOST = 16_384  # a wider range is held at a coarser scale


@dataclass(frozen=True, slots=True, eq=False)
class ExponentialHistogram:
    """Numbers of values at or above zero, by size.

    Attributes
    ----------
    scale : int
        Resolution, one of `SCALES`.
    zero_count : int
        Values up to `zero_threshold`.
    offset : int
        Index of the first bucket of `counts`.
    counts : shape (n,), int64
        Values in each bucket from `offset` on.
    low, high : float
        Least and largest value where they are told, else NaN.

    Examples
    --------
    >>> h = ExponentialHistogram.of(np.array([0.5, 1.5, 3.0]), scale=0)
    >>> h.offset, h.counts, h.share_above(2.0), h.share_above(2.5)
    (-2, array([1, 0, 1, 1]), (0.3333333333333333, 0.3333333333333333), (0.0, 0.3333333333333333))
    """

    scale: int
    zero_count: int
    offset: int
    counts: Counts
    zero_threshold: float = 0.0
    low: float = NAN
    high: float = NAN

    def __post_init__(self) -> None:
        """Check once, at the edge."""
        bad = self.zero_count < 0 or self.zero_threshold < 0 or (self.counts < 0).any()
        if self.scale not in SCALES or self.counts.ndim != 1 or bad:
            msg = f"no exponential histogram: scale {self.scale}, zero count {self.zero_count}"
            raise ValueError(msg)

    @classmethod
    def of(cls, values: NDArray[np.float64], *, scale: int) -> "ExponentialHistogram":
        """Count values of shape (n,), each at least zero, at `scale` or, over a very wide range, a coarser one.

        Raises
        ------
        ValueError
            If a value is negative, infinite or not a number.
        """
        if not (np.isfinite(values) & (values >= 0.0)).all():
            msg = "values must be finite and at least 0"
            raise ValueError(msg)
        index = _index(values[values > 0.0], scale)
        scale, index = _held(scale, index)
        offset = int(index.min()) if len(index) else 0
        counts = np.bincount(index - offset).astype(np.int64)
        ends = (float(values.min()), float(values.max())) if len(values) else (NAN, NAN)
        return cls(scale, int((values == 0.0).sum()), offset, counts, 0.0, *ends)

    @property
    def total(self) -> int:
        """Number of values."""
        return self.zero_count + int(self.counts.sum())

    def bounds(self) -> NDArray[np.float64]:
        """Lower bound of each bucket and, last, the upper bound of the last one, shape (n + 1,)."""
        index = np.arange(self.offset, self.offset + len(self.counts) + 1, dtype=np.float64)
        with np.errstate(over="ignore"):
            return np.exp2(np.ldexp(index, -self.scale))

    def coarser(self, scale: int) -> "ExponentialHistogram":
        """Return the same values at a lower resolution; no value is moved out of its bucket's union.

        Raises
        ------
        ValueError
            If `scale` is finer than this one.
        """
        if scale > self.scale:
            msg = f"scale {self.scale} cannot be refined to {scale}"
            raise ValueError(msg)
        index = np.arange(self.offset, self.offset + len(self.counts)) >> (self.scale - scale)
        offset = int(index[0]) if len(index) else 0
        counts = np.zeros(int(index[-1]) - offset + 1 if len(index) else 0, np.int64)
        np.add.at(counts, index - offset, self.counts)
        return replace(self, scale=scale, offset=offset, counts=counts)

    def merged(self, other: "ExponentialHistogram") -> "ExponentialHistogram":
        """Return the histogram of the values of both; exact, in any order, at the coarser scale."""
        scale = _common(self, other)
        one, two = (h.coarser(scale) for h in (self, other))
        threshold = max(one.zero_threshold, two.zero_threshold)
        one, two = (h.with_threshold(threshold) for h in (one, two))
        if one.zero_threshold != two.zero_threshold:  # a threshold inside a bucket rises to its end
            return one.merged(two)
        start, counts = _sum(one, two, np.add)
        return ExponentialHistogram(
            scale,
            one.zero_count + two.zero_count,
            start,
            counts,
            one.zero_threshold,
            _end(min, self, other, "low"),
            _end(max, self, other, "high"),
        )

    def since(self, earlier: "ExponentialHistogram") -> "ExponentialHistogram | None":
        """Return what came between two cumulative histograms; None if counting began anew in between."""
        scale = _common(self, earlier)
        threshold = max(self.zero_threshold, earlier.zero_threshold)
        now, then = (h.coarser(scale).with_threshold(threshold) for h in (self, earlier))
        start, counts = _sum(now, then, np.subtract)
        zeros = now.zero_count - then.zero_count
        if now.zero_threshold != then.zero_threshold or zeros < 0 or (counts < 0).any():
            return None
        return ExponentialHistogram(scale, zeros, start, counts, now.zero_threshold)

    def with_threshold(self, threshold: float) -> "ExponentialHistogram":
        """Move buckets that begin below a larger zero threshold into the zero bucket."""
        if threshold <= self.zero_threshold:
            return self
        bounds = self.bounds()
        inside = int(np.searchsorted(bounds[:-1], threshold, side="left"))
        inside = max((i + 1 for i in range(inside) if self.counts[i]), default=0)
        reach = max(threshold, float(bounds[inside])) if inside else threshold
        moved = int(self.counts[:inside].sum())
        rest = replace(self, offset=self.offset + inside, counts=self.counts[inside:])
        return replace(rest, zero_count=self.zero_count + moved, zero_threshold=reach)

    def count_above(self, limit: float) -> tuple[int, int]:
        """Least and largest number of values above `limit`: they differ where it lies inside a bucket."""
        if self.high <= limit:
            return 0, 0
        if self.low > limit:
            return self.total, self.total
        bounds = self.bounds()
        least = int(self.counts[bounds[:-1] >= limit].sum())
        most = int(self.counts[bounds[1:] > limit].sum())
        return least, most + (self.zero_count if self.zero_threshold > limit else 0)

    def share_above(self, limit: float) -> tuple[float, float]:
        """Do the same as shares of all values; NaN without values."""
        total = self.total
        least, most = self.count_above(limit)
        return (least / total, most / total) if total else (NAN, NAN)


def _index(values: NDArray[np.float64], scale: int) -> Counts:
    """Bucket of each positive value: upper bounds belong to it, and powers of two are exact."""
    if scale <= 0:
        mantissa, exponent = np.frexp(values)
        exact = np.where(mantissa == 0.5, exponent - 2, exponent - 1).astype(np.int64)
        return np.asarray(exact >> -scale)
    index = np.ceil(np.ldexp(np.log2(values), scale)).astype(np.int64) - 1
    upper = np.exp2(np.ldexp((index + 1).astype(np.float64), -scale))
    lower = np.exp2(np.ldexp(index.astype(np.float64), -scale))
    return np.asarray(index + (values > upper) - (values <= lower))


def _held(scale: int, index: Counts) -> tuple[int, Counts]:
    """Scale and buckets that keep within `BUCKETS_AT_MOST`."""
    while len(index) and int(index.max()) - int(index.min()) >= BUCKETS_AT_MOST:
        scale, index = scale - 1, index >> 1
    return scale, index


def _common(one: ExponentialHistogram, two: ExponentialHistogram) -> int:
    """Finest scale at which both can be held together."""
    scale = min(one.scale, two.scale)
    held = [h for h in (one, two) if len(h.counts)]
    ends = [end >> (h.scale - scale) for h in held for end in (h.offset, h.offset + len(h.counts) - 1)]
    return _held(scale, np.array(ends, np.int64))[0]


def _end(
    function: Callable[[float, float], float], one: ExponentialHistogram, two: ExponentialHistogram, name: str
) -> float:
    """Least or largest value of both; an empty histogram says nothing, and NaN is not told."""
    ends = [float(getattr(h, name)) for h in (one, two) if h.total]
    if not ends or any(map(isnan, ends)):
        return NAN
    return ends[0] if len(ends) == 1 else function(*ends)


def _sum(one: ExponentialHistogram, two: ExponentialHistogram, function: np.ufunc) -> tuple[int, Counts]:
    """Combine the counts of two histograms of one scale; offset and counts."""
    held = [h for h in (one, two) if len(h.counts)]
    if not held:
        return 0, np.zeros(0, np.int64)
    start = min(h.offset for h in held)
    wide = np.zeros((2, max(h.offset + len(h.counts) for h in held) - start), np.int64)
    for row, h in zip(wide, (one, two), strict=True):
        if len(h.counts):
            row[h.offset - start : h.offset - start + len(h.counts)] = h.counts
    return start, np.asarray(function(wide[0], wide[1]))
