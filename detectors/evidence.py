"""Evidence: per-unit bounded values, vectorised over many sequences at once.

A batch concatenates the tokens of many pairs; every statistic is then a handful of array
operations and one `np.add.reduceat`.  No Python object per token.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.pairs import Floats, PairedTrace, TopColumns, is_reported, unreported
from paritas.records import TokenStatus

__all__ = ["PairBatch", "segment_count", "segment_mean", "segment_sum"]

T = TypeVar("T")
Mask = NDArray[np.bool_]
KEPT_BYTES = 31 << 20  # below the largest that glibc learns from, 32 MiB; nothing is written to it


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
    _derived: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, pairs: Sequence[PairedTrace]) -> "PairBatch":
        """Concatenate `pairs`; an empty sequence gives an empty batch."""
        _keep_freed_memory()
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

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """Return what is called `name`, computed when first asked for; several statistics share it."""
        if name not in self._derived:
            self._derived[name] = compute()
        told: T = self._derived[name]
        return told

    def total(self, name: str, column: Callable[[], Floats]) -> Floats:
        """Sum over each pair, shape (n,), of the column called `name`; several statistics share it."""
        return self.once(f"sum of {name}", lambda: self.sums(column()))

    def mean_of(self, name: str, column: Callable[[], Floats], mask: Mask | None = None) -> Floats:
        """Return `means` of the column called `name`, from its shared `total` where all tokens count."""
        if mask is not None or np.isnan(self.total(name, column)).any():
            return self.means(column(), mask)
        return self._per_token(self.total(name, column))

    def sums(self, values: Floats, mask: Mask | None = None) -> Floats:
        """Sum of per-token `values` over each pair, shape (n,)."""
        if mask is None and self.is_filled():
            return np.add.reduceat(values, self.offsets[:-1])
        return segment_sum(values if mask is None else np.where(mask, values, 0.0), self.offsets)

    def means(self, values: Floats, mask: Mask | None = None) -> Floats:
        """Mean over each pair's masked, non-NaN tokens, shape (n,); NaN where there are none."""
        if not is_reported(values):
            return np.full(len(self), np.nan)
        if mask is not None:
            return segment_mean(values, mask & ~np.isnan(values), self.offsets)
        total = self.sums(values)
        if np.isnan(total).any():  # only then is it worth a look at every token
            return segment_mean(values, ~np.isnan(values), self.offsets)
        return self._per_token(total)

    def shares(self, hits: Mask, mask: Mask | None = None) -> Floats:
        """Share of each pair's masked tokens that are hits, shape (n,); NaN where there are none."""
        kept = hits if mask is None else hits & mask
        hit = segment_count(kept, self.offsets)
        return self._per_token(hit) if mask is None else _over(hit, self.counts(mask))

    def _per_token(self, total: Floats | NDArray[np.int64]) -> Floats:
        """Totals over the number of tokens, shape (n,); NaN where there are none."""
        return np.asarray(total / self.counts()) if self.is_filled() else _over(total, self.counts())

    def counts(self, mask: Mask | None = None) -> NDArray[np.int64]:
        """Tokens of each pair under `mask`, shape (n,)."""
        if mask is not None:
            return segment_count(mask, self.offsets)
        return self.once("counts", lambda: np.diff(self.offsets))

    def is_filled(self) -> bool:
        """Whether there are pairs, and each has tokens."""
        return self.once("filled", lambda: bool(len(self.pairs) and self.counts().all()))

    def statuses(self) -> Floats:
        """Tokens of each pair by `TokenStatus`, shape (n, statuses)."""
        return self.once("statuses", lambda: _statuses(self.pairs))


def _join(columns: Sequence[Floats]) -> Floats:
    """Columns end to end; what nobody reported is not written out."""
    if columns and not any(map(is_reported, columns)):
        return unreported(sum(map(len, columns)))
    return np.concatenate([np.zeros(0), *columns])


def _statuses(pairs: Sequence[PairedTrace]) -> Floats:
    tally = np.zeros((len(pairs), len(TokenStatus)))
    for row, pair in zip(tally, pairs, strict=True):
        for status, tokens in pair.counts.items():
            row[status] = tokens
    return tally


def _keep_freed_memory() -> None:
    """Let glibc keep freed columns instead of giving every page back and asking for it again.

    It keeps as much as the largest array that was ever freed, mallopt(3) "dynamic mmap threshold";
    elsewhere this does nothing.
    """
    np.empty(KEPT_BYTES, np.uint8)


def _over(total: Floats | NDArray[np.int64], count: Floats | NDArray[np.int64]) -> Floats:
    """total / count, NaN where there is nothing."""
    out = np.full(total.shape, np.nan)
    np.divide(total, count, out=out, where=count > 0)
    return out


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


def segment_count(hits: Mask, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Hits in each segment ``offsets[i]:offsets[i+1]``; cheap where hits are rare.

    Examples
    --------
    >>> segment_count(np.array([True, False, True]), np.array([0, 2, 2, 3]))
    array([1, 0, 1])
    """
    before = np.searchsorted(np.flatnonzero(hits), offsets)
    return np.asarray(before[1:] - before[:-1])


def segment_mean(values: Floats, known: Mask, offsets: NDArray[np.int64]) -> Floats:
    """Mean of each segment's known values; NaN for segments without any."""
    unknown = np.flatnonzero(~known)
    if unknown.size == known.size:
        return np.full(len(offsets) - 1, np.nan)
    some = values.copy()
    some[unknown] = 0.0
    count = np.diff(offsets) - np.diff(np.searchsorted(unknown, offsets))
    return _over(segment_sum(some, offsets), count)
