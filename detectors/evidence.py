"""Evidence: per-unit bounded values, vectorised over many sequences at once.

A batch concatenates the tokens of many pairs; every statistic is then a handful of array
operations and one `np.add.reduceat`.  No Python object per token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.pairs import Floats, PairedTrace, TopColumns

__all__ = ["PairBatch", "segment_mean", "segment_sum"]

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class PairBatch:
    """Many pairs, tokens concatenated.

    Attributes
    ----------
    pairs : tuple of PairedTrace
        The n sequences, in the order of the rows.
    offsets : shape (n + 1,), int64
        Tokens of pair i are ``offsets[i]:offsets[i + 1]``.
    log_ratio, logprob_q : shape (m,), float64, nats
        As in `PairedTrace`.
    position : shape (m,), int64
        Position in the response.
    top : TopColumns, each shape (m,)
        Per-token numbers from top-k lists.
    """

    pairs: tuple[PairedTrace, ...]
    offsets: NDArray[np.int64]
    log_ratio: Floats
    logprob_q: Floats
    position: NDArray[np.int64]
    top: TopColumns

    @classmethod
    def of(cls, pairs: Sequence[PairedTrace]) -> "PairBatch":
        """Concatenate `pairs`; an empty sequence gives an empty batch."""
        lengths = np.array([0, *(p.tokens for p in pairs)], dtype=np.int64)
        tops = (_join([getattr(p.top, name) for p in pairs]) for name in TopColumns.__slots__)
        return cls(
            tuple(pairs),
            np.cumsum(lengths),
            _join([p.log_ratio for p in pairs]),
            _join([p.logprob_q for p in pairs]),
            np.concatenate([np.zeros(0, np.int64), *(p.position for p in pairs)]),
            TopColumns(*tops),
        )

    def __len__(self) -> int:
        return len(self.pairs)

    def sums(self, values: Floats, mask: Mask | None = None) -> Floats:
        """Sum of per-token `values` over each pair, shape (n,)."""
        return segment_sum(values if mask is None else np.where(mask, values, 0.0), self.offsets)

    def means(self, values: Floats, mask: Mask | None = None) -> Floats:
        """Mean over each pair's masked, non-NaN tokens, shape (n,); NaN where there are none."""
        known = ~np.isnan(values) if mask is None else mask & ~np.isnan(values)
        return segment_mean(values, known, self.offsets)

    def counts(self, mask: Mask | None = None) -> NDArray[np.int64]:
        """Tokens of each pair under `mask`, shape (n,)."""
        if mask is None:
            return np.diff(self.offsets)
        return segment_sum(mask.astype(np.float64), self.offsets).astype(np.int64)


def _join(columns: Sequence[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *columns])


def segment_sum(values: Floats, offsets: NDArray[np.int64]) -> Floats:
    """Sum of each segment ``offsets[i]:offsets[i+1]``; empty segments sum to 0.

    Only non-empty segments are handed to `np.add.reduceat`, which would return the next element
    for an empty one.  Each segment is summed on its own in the same order wherever it stands, so
    a unit's value does not depend on the batch it travels in.

    Examples
    --------
    >>> segment_sum(np.array([1.0, 2.0, 3.0]), np.array([0, 2, 2, 3]))
    array([3., 0., 3.])
    """
    filled = np.diff(offsets) > 0
    sums = np.zeros(len(offsets) - 1)
    if filled.any():
        sums[filled] = np.add.reduceat(values, offsets[:-1][filled])
    return sums


def segment_mean(values: Floats, known: Mask, offsets: NDArray[np.int64]) -> Floats:
    """Mean of each segment's known values; NaN for segments without any."""
    total = segment_sum(np.where(known, values, 0.0), offsets)
    count = segment_sum(known.astype(np.float64), offsets)
    out = np.full(total.shape, np.nan)
    np.divide(total, count, out=out, where=count > 0)
    return out
