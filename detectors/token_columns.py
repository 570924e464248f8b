"""Columns of a batch that several statistics and the fingerprints share, each computed once.

A pass over the tokens costs more than what is done in it, so what two consumers need is made for
both.  Every column has one value a token of the batch, shape (m,), float64.
"""

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.evidence import PairBatch
from paritas.detectors.pairs import BAD, Floats, is_reported
from paritas.records import TokenStatus

__all__ = [
    "LOG_RATIO_CEILING",
    "capped_mean",
    "capped_rise",
    "cut",
    "excess",
    "is_calm",
    "k3",
    "owner",
    "rise",
    "sizes",
    "surprise",
    "whole",
]

# exp(50) squared is still finite in float64; a ratio beyond it refutes any limit as it stands.
LOG_RATIO_CEILING = 50.0
LOST = [int(status) for status in (*BAD, TokenStatus.MISSING)]


def sizes(batch: PairBatch) -> Floats:
    """|ell| of each token, nats."""
    return batch.once("sizes", lambda: np.abs(batch.log_ratio))


def is_calm(batch: PairBatch) -> bool:
    """Whether no |ell| is above `LOG_RATIO_CEILING`, so that nothing has to be cut."""
    return batch.once("calm", lambda: bool(sizes(batch).max(initial=0.0) <= LOG_RATIO_CEILING))


def cut(batch: PairBatch) -> Floats:
    """Ell of each token, at most `LOG_RATIO_CEILING`, nats."""
    if is_calm(batch):
        return batch.log_ratio
    return batch.once("cut", lambda: np.minimum(batch.log_ratio, LOG_RATIO_CEILING))


def excess(batch: PairBatch) -> Floats:
    """W - 1 of each token, with `LOG_RATIO_CEILING`."""
    return batch.once("excess", lambda: np.expm1(cut(batch)))


def k3(batch: PairBatch) -> Floats:
    """W - 1 - ell of each token, with `LOG_RATIO_CEILING`, nats."""
    return batch.once("k3", lambda: excess(batch) - cut(batch))


def rise(cap: float) -> str:
    """Name of `capped_rise`."""
    return f"capped at {cap}"


def capped_rise(batch: PairBatch, cap: float) -> Floats:
    """min(w, cap) - 1 of each token."""
    return batch.once(rise(cap), lambda: np.minimum(excess(batch), cap - 1.0))


def capped_mean(batch: PairBatch, cap: float, mask: NDArray[np.bool_] | None = None) -> Floats:
    """Mean of min(w, cap) - 1 over each pair, shape (n,)."""
    return batch.mean_of(rise(cap), lambda: capped_rise(batch, cap), mask)


def surprise(batch: PairBatch) -> Floats:
    """1{sampled = top-1} - q(top-1) of each token; NaN without a list."""
    if not is_reported(batch.top.top1_q):
        return batch.top.top1_q
    return batch.once("surprise", lambda: batch.top.is_top1 - batch.top.top1_q)


def whole(batch: PairBatch) -> NDArray[np.bool_]:
    """Pairs with tokens of which none is missing or broken, so that the sequence ratio exists, shape (n,)."""
    return batch.once("whole", lambda: (batch.counts() > 0) & (batch.statuses()[:, LOST].sum(axis=1) == 0))


def owner(batch: PairBatch) -> NDArray[np.int64]:
    """Pair of each token, shape (m,), int64."""
    return batch.once("owner", lambda: np.repeat(np.arange(len(batch)), batch.counts()))
