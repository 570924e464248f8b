"""Token sums: moments of the drift, of the two laws, and of each token with the one before, pair by pair."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.evidence import PairBatch, segment_count, segment_sum
from paritas.detectors.pairs import Floats, is_reported
from paritas.detectors.token_columns import (
    LOG_RATIO_CEILING,
    capped_rise,
    is_calm,
    k3,
    rise,
    sizes,
    surprise,
)

__all__ = ["CEILING", "Tokens", "moments", "neighbours", "spans"]

CEILING = LOG_RATIO_CEILING  # nats; squares and fourth powers of |ell| stay finite and comparable
CAP = 2.0
Counts = NDArray[np.int64]
Sums = Iterator[tuple[str, Floats | Counts]]


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """The tokens of a batch that has some, with ell cut at `CEILING` on both sides.

    Attributes
    ----------
    batch : PairBatch
    ell, size, square : shape (m,), float64, nats, nats, nats^2
        Ell, |ell| and its square.
    """

    batch: PairBatch
    ell: Floats
    size: Floats
    square: Floats

    @classmethod
    def of(cls, batch: PairBatch) -> "Tokens":
        """Cut what is large; where nothing is, the columns are the batch's own."""
        ell, size = batch.log_ratio, sizes(batch)
        if not is_calm(batch):
            ell, size = np.clip(ell, -CEILING, CEILING), np.minimum(size, CEILING)
        return cls(batch, ell, size, size * size)

    def whole(self, values: Floats) -> Floats:
        """Sum over each pair, shape (n,)."""
        return self.batch.sums(values)

    def count(self, hits: NDArray[np.bool_]) -> Counts:
        """Number of hits in each pair, shape (n,)."""
        return segment_count(hits, self.batch.offsets)


def moments(tokens: Tokens) -> Sums:
    """Yield the sums that need no other token."""
    batch, calm = tokens.batch, is_calm(tokens.batch)
    yield "tokens", batch.counts()
    yield "abs", batch.total("sizes", lambda: tokens.size) if calm else tokens.whole(tokens.size)
    yield "ell", batch.total("ell", lambda: tokens.ell) if calm else tokens.whole(tokens.ell)
    yield "ell2", tokens.whole(tokens.square)
    yield "ell4", tokens.whole(np.square(tokens.square))
    yield "not_above", tokens.count(tokens.ell <= 0.0)
    yield "equal", tokens.count(tokens.ell == 0.0)
    yield "k3", _k3(tokens)
    yield "capped", batch.counts() + batch.total(rise(CAP), lambda: capped_rise(batch, CAP))
    yield from _loud(tokens)
    yield from _top1(batch)


def _k3(tokens: Tokens) -> Floats:
    """Sum of w - 1 - ell."""
    if is_calm(tokens.batch):
        return tokens.batch.total("k3", lambda: k3(tokens.batch))
    return tokens.whole(np.expm1(tokens.ell) - tokens.ell)


def _loud(tokens: Tokens) -> Sums:
    """Yield how many ratios are beyond 1.5 and 2 each way, looking only at those beyond 1.5."""
    at = np.flatnonzero(tokens.size > np.log(1.5))
    ell = tokens.ell[at]
    for name, ratio in (("15", 1.5), ("2", 2.0)):
        for way, hits in (("up", ell > np.log(ratio)), ("down", ell < -np.log(ratio))):
            yield f"{way}{name}", np.diff(np.searchsorted(at[hits], tokens.batch.offsets))


def _top1(batch: PairBatch) -> Sums:
    """Yield how often the likeliest token was drawn beyond its chance, and the variance of that."""
    if not is_reported(batch.top.top1_q):
        return
    q, gain = batch.top.top1_q, batch.total("surprise", lambda: surprise(batch))
    if not np.isnan(gain).any():
        yield from (("top1_n", batch.counts()), ("top1_gain", gain))
    else:
        known = ~np.isnan(q)
        yield "top1_n", segment_count(known, batch.offsets)
        q = np.where(known, q, 0.0)
        yield "top1_gain", segment_sum(np.where(known, batch.top.is_top1 - q, 0.0), batch.offsets)
    variance = 1.0 - q
    variance *= q
    yield "top1_variance", segment_sum(variance, batch.offsets)


def neighbours(tokens: Tokens) -> Sums:
    """Yield the sums over the laws, over tokens and the ones beside them within a sequence."""
    q = _above(tokens.batch.logprob_q)
    p = _above(tokens.batch.logprob_q + tokens.batch.log_ratio)
    yield "pq", tokens.whole(p * q)
    for name, values in (("p", p), ("q", q), ("pp", p * p), ("qq", q * q)):
        whole, but_last, but_first = _edged(values, tokens.batch)
        yield name, whole
        own = name.startswith("p")
        yield f"back_{name}", but_first if own else but_last
        yield f"ahead_{name}", but_last if own else but_first
    yield from _beside(tokens, p, q)


def _above(logprob: Floats) -> Floats:
    """Log-probabilities, at least -`CEILING`."""
    return logprob if logprob.min() >= -CEILING else np.maximum(logprob, -CEILING)


def _beside(tokens: Tokens, p: Floats, q: Floats) -> Sums:
    """Yield products with the token before or after; and of signed roots, so that no token rules."""
    first, last = (
        tokens.batch.offsets[:-1],
        np.maximum(tokens.batch.offsets[1:] - 1, tokens.batch.offsets[:-1]),
    )
    size = np.sqrt(tokens.size)
    root = np.copysign(size, tokens.ell)
    yield from (("root", tokens.whole(root)), ("size", tokens.whole(size)))
    for name, one, other in (
        ("back_pq", q, p),
        ("ahead_pq", p, q),
        ("next_root", root, root),
        ("next_size", size, size),
    ):
        yield name, spans(one[:-1] * other[1:], first, last)
    yield from (("back_n", last - first), ("ahead_n", last - first))


def _edged(values: Floats, batch: PairBatch) -> tuple[Floats, Floats, Floats]:
    """Sum over each pair, over all but its last token, and over all but its first one, shape (n,) each."""
    length, edges = batch.counts(), batch.once("edges", lambda: _edges(batch))
    parts = np.zeros((len(batch), 3))
    parts[length > 0] = np.add.reduceat(values, edges).reshape(-1, 3)
    parts[length < 3, 1] = parts[length < 2, 2] = 0.0
    first, middle, last = parts.T
    return first + middle + last, np.where(length > 1, first + middle, 0.0), middle + last


def _edges(batch: PairBatch) -> Counts:
    """First token of each pair that has some, the one after it, and its last one."""
    filled = batch.counts() > 0
    start, stop = batch.offsets[:-1][filled], batch.offsets[1:][filled]
    return np.stack([start, np.minimum(start + 1, batch.offsets[-1] - 1), stop - 1], axis=1).ravel()


def spans(values: Floats, first: Counts, stop: Counts) -> Floats:
    """Sum of ``values[first[i]:stop[i]]`` of spans in order that do not overlap; 0 for an empty one."""
    out, filled = np.zeros(len(first)), stop > first
    if filled.any():
        edges = np.empty(2 * int(np.count_nonzero(filled)), np.int64)
        edges[::2], edges[1::2] = first[filled], stop[filled]
        out[filled] = np.add.reduceat(values, edges[:-1] if edges[-1] == len(values) else edges)[::2]
    return out
