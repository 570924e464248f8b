"""Per-token numbers from the two kernels' top-k lists (A1, A17, A18), or from whole distributions.

Where a scorer held both whole distributions (`paritas.exact`), its numbers take the place of
what the lists only estimate or bound.

The lists must not depend on the sampled token: an API that appends it to its top-k biases
the hybrid estimator, so readers cut the lists back to the k best first.
"""

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.pairs import Floats, TopColumns, unreported
from paritas.records import TokenTrace, TopK
from paritas.tokens import SLACK_NATS

__all__ = ["top_columns"]

NEAR = (0, 1, -1)  # ranks by which entries of two close kernels are usually apart


def top_columns(inference: TokenTrace, train: TokenTrace, mask: NDArray[np.bool_]) -> TopColumns:
    """Compute `TopColumns` for the masked tokens; what is missing gives NaN columns."""
    n = int(mask.sum())
    top1_q, is_top1 = _top1(inference, mask, n)
    nothing = unreported(n)
    if train.exact is not None:
        told = train.exact
        tv, osc, flip, gap = (
            c[mask].astype(np.float64) for c in (told.tv, told.oscillation, told.flip, told.gap)
        )
        return TopColumns(top1_q, is_top1, tv, osc, flip, gap, tv)
    q_top, p_top = _lists(inference), _lists(train)
    if q_top is None or p_top is None:
        return TopColumns(top1_q, is_top1, nothing, nothing, nothing, nothing, nothing)
    both = _Both(q_top, p_top, mask)
    token = inference.token[mask]
    q, p = (t.logprob[mask].astype(np.float64) for t in (inference, train))
    hybrid = both.hybrid_tv(token, p - q)
    return TopColumns(top1_q, is_top1, hybrid, both.oscillation(), both.flip(), both.gap(), nothing)


def _lists(trace: TokenTrace) -> TopK | None:
    """The trace's lists if they hold at least one entry; one above zero is no log-probability and not there."""
    if trace.top is None or not trace.top.token.shape[1]:
        return None
    above = trace.top.logprob > SLACK_NATS
    if not above.any():
        return trace.top
    return TopK(trace.top.token, np.where(above, np.float32(np.nan), trace.top.logprob))


def _top1(trace: TokenTrace, mask: NDArray[np.bool_], n: int) -> tuple[Floats, Floats]:
    """Probability of the logged top-1 and whether it was sampled."""
    top = _lists(trace)
    if top is None:
        return unreported(n), unreported(n)
    best = top.logprob[mask, 0].astype(np.float64)
    hit = (top.token[mask, 0] == trace.token[mask]).astype(np.float64)
    known = np.isfinite(best)
    return np.where(known, np.exp(best), np.nan), np.where(known, hit, np.nan)


class _Both:
    """Matched top-k lists: `p_at_q` is the train log-probability of each inference entry, NaN where it has none."""

    def __init__(self, inference: TopK, train: TopK, mask: NDArray[np.bool_]) -> None:
        (self.q_token, self.q), (self.p_token, self.p) = _listed(inference, mask), _listed(train, mask)
        self._q_known, self._p_known = np.isfinite(self.q), np.isfinite(self.p)
        self.p_at_q = np.full(self.q.shape, np.nan)
        for shift in NEAR:
            self._match_at(shift)
        self._match_anywhere()
        self.shared = ~np.isnan(self.p_at_q)  # (n, k) over inference entries

    def _match_at(self, shift: int) -> None:
        """Match entries that are `shift` ranks further down in the train list; nearly all are near."""
        width = min(self.q.shape[1] + min(shift, 0), self.p.shape[1] - max(shift, 0))
        q_ranks, p_ranks = (slice(first, first + max(width, 0)) for first in (max(-shift, 0), max(shift, 0)))
        same = self.q_token[:, q_ranks] == self.p_token[:, p_ranks]
        same &= self._q_known[:, q_ranks]
        same &= self._p_known[:, p_ranks]
        np.copyto(self.p_at_q[:, q_ranks], self.p[:, p_ranks], where=same)

    def _match_anywhere(self) -> None:
        """Look for the other entries in the whole train list."""
        row, rank = np.nonzero(self._q_known & np.isnan(self.p_at_q))
        same = (self.p_token[row] == self.q_token[row, rank][:, None]) & self._p_known[row]
        self.p_at_q[row, rank] = np.where(same.any(axis=1), self.p[row, same.argmax(axis=1)], np.nan)

    def hybrid_tv(self, token: NDArray[np.uint64], ell: Floats) -> Floats:
        """``sum_S (q-p)+ + 1{x not in S}(1-w)+`` with S the shared ids; in [0, 2).

        Not cut at 1: a token outside both lists that the trainer cannot produce exceeds it, and
        cutting it there would make the estimate of missing support too small.
        """
        gain = np.exp(self.q) - np.exp(self.p_at_q)
        np.copyto(gain, 0.0, where=~(gain > 0.0))
        inside = ((self.q_token == token[:, None]) & self.shared).any(axis=1)
        outside = np.where(inside, 0.0, -np.expm1(np.minimum(ell, 0.0)))
        return np.asarray(gain.sum(axis=1) + outside)

    def oscillation(self) -> Floats:
        """max - min of log p - log q over shared ids; NaN with fewer than two."""
        drift = self.p_at_q - self.q
        high = np.where(self.shared, drift, -np.inf).max(axis=1, initial=-np.inf)
        low = np.where(self.shared, drift, np.inf).min(axis=1, initial=np.inf)
        enough = np.count_nonzero(self.shared, axis=1) >= 2
        return np.asarray(np.subtract(high, low, out=np.full(len(high), np.nan), where=enough))

    def flip(self) -> Floats:
        """1 where the two most likely tokens differ; NaN where either list is empty."""
        known = self._q_known[:, 0] & self._p_known[:, 0]
        return np.where(known, self.q_token[:, 0] != self.p_token[:, 0], np.nan)

    def gap(self) -> Floats:
        """q(a) - p(a) at the training top-1 a; NaN where a is not in the inference list."""
        row = (self.q_token == self.p_token[:, :1]) & self._q_known & self._p_known[:, :1]
        q_of_a = self.q[np.arange(len(row)), row.argmax(axis=1)]
        return np.where(row.any(axis=1), np.exp(q_of_a) - np.exp(self.p[:, 0]), np.nan)


def _listed(top: TopK, mask: NDArray[np.bool_]) -> tuple[NDArray[np.uint64], Floats]:
    """Ids and log-probabilities of the masked tokens, each shape (n, k)."""
    if mask.all():
        return top.token, top.logprob.astype(np.float64)
    return top.token[mask], top.logprob[mask].astype(np.float64)
