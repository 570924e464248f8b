"""Shape of latencies against what was usual: a two-sample test by betting, with a witness chosen before it looks.

The first windows are the reference, and frozen.  Afterwards the claim is that the distribution of a window
keeps within a Kolmogorov distance ``d`` of it.  At every reference quantile the share of requests above it is
compared; which quantile is bet on, and in which direction, follows from the windows *before*.  So under
the claim the expected difference is at most d given the past, and the bank's bets hold; any such choice is
valid, a good one is fast.  The reference counts as it was seen: what it misses of the usual belongs to d.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, log2
from sys import float_info

import numpy as np
from numpy.typing import NDArray

from paritas.contracts.catalogue import CATALOGUE

__all__ = ["SHAPES", "Shape", "bucket_of", "windows_of"]

SHAPES = tuple(name for name, entry in CATALOGUE.items() if entry.baseline)
SCALE = 32  # buckets an octave, 2.2 % wide; a quantile is a bucket's bound and therefore exact
ZERO = -(1 << 20)  # bucket of what took no time
LONGEST_S = float_info.max  # infinity, what never came, is in its bucket
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
MEMORY = 0.95  # of the witness: about the last twenty windows

Buckets = Mapping[int, int]


def bucket_of(seconds: float) -> int:
    """Return the bucket of a duration.

    Examples
    --------
    >>> bucket_of(1.0), bucket_of(1.01), bucket_of(0.0)
    (-1, 0, -1048576)
    """
    return ceil(log2(min(seconds, LONGEST_S)) * SCALE) - 1 if seconds > 0.0 else ZERO


def windows_of(statistic: str, declared: int | None) -> int:
    """Windows that the reference of a statistic takes; 0 where it is no shape."""
    return (declared or CATALOGUE[statistic].baseline) if statistic in SHAPES else 0


@dataclass(slots=True)
class Shape:
    """The reference of one clause in one slice instance, and the witness against it.

    Attributes
    ----------
    windows : int
        Windows that the reference takes.
    learned : int
        Those it has.
    reference : dict
        Bucket → requests.
    cuts : shape (q,), int64
        Last bucket below each reference quantile.
    usual : shape (q,)
        Share of the reference above each.
    drift : shape (q,)
        Recent differences to it, summed with forgetting.
    """

    windows: int
    learned: int = 0
    reference: dict[int, int] = field(default_factory=dict)
    cuts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    usual: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    drift: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def take(self, window: Buckets) -> float | None:
        """Take one window; return the witnessed difference in shares, or None while the reference is learned."""
        if self.learned < self.windows:
            self._learn(window)
            return None
        difference = _above(window, self.cuts) - self.usual
        place = int(np.argmax(np.abs(self.drift)))
        sign = 1.0 if self.drift[place] >= 0.0 else -1.0
        self.drift = MEMORY * self.drift + difference
        return sign * float(difference[place])

    def _learn(self, window: Buckets) -> None:
        for bucket, requests in window.items():
            self.reference[bucket] = self.reference.get(bucket, 0) + requests
        self.learned += 1
        if self.learned == self.windows:
            self.cuts = _cuts(self.reference)
            self.usual = _above(self.reference, self.cuts)
            self.drift = np.zeros(len(self.cuts))


def _cuts(buckets: Buckets) -> NDArray[np.int64]:
    """The bucket in which each quantile lies."""
    index = np.array(sorted(buckets), np.int64)
    share = np.cumsum([buckets[i] for i in index.tolist()])
    places = np.searchsorted(share, np.array(QUANTILES) * share[-1])
    return np.asarray(index[np.minimum(places, len(index) - 1)])


def _above(buckets: Buckets, cuts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of requests in buckets above each cut."""
    index, requests = (np.array(list(part), np.int64) for part in (buckets.keys(), buckets.values()))
    hits = index[:, None] > cuts[None, :]
    return np.asarray((requests[:, None] * hits).sum(axis=0) / requests.sum(), np.float64)
