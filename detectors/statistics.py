"""Per-unit values of every catalogue statistic (`contracts.catalogue` says what each means).

Each function takes a `PairBatch`, the clause and a token mask (or None) and returns one value
per pair, shape (n,), float64, in the statistic's own unit; NaN where the pair cannot tell.
Ratios are computed from float64 log-ratios by forms that neither overflow nor cancel
(docs/mathematics.md F, "ratio numerics"), on raw values, before any repair.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import copysign
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from paritas.contracts.bounds.estimator import weighting_of
from paritas.contracts.bounds.gradient import bias_statistic
from paritas.contracts.model import Clause, Estimator
from paritas.detectors.evidence import PairBatch
from paritas.detectors.objectives import OBJECTIVE_VALUES, ppo_min_bias
from paritas.detectors.pairs import BAD, Floats, is_reported
from paritas.detectors.rows import own_estimator
from paritas.detectors.token_columns import capped_mean, capped_rise, excess, k3, sizes, surprise, whole
from paritas.records import LogprobSemantics, TokenStatus

__all__ = ["UNIT_VALUES", "gradient_bias", "sizes", "token_bets", "unit_values"]

Mask = NDArray[np.bool_] | None
UnitValues = Callable[[PairBatch, Clause, Mask], Floats]

DEFAULT_ABOVE = 2.0  # IcePop and TIS cap at 2: a ratio beyond it is what trainers truncate
DEFAULT_CAP = 2.0
BLOCK = 32  # factors lie between 0.1 and the cap: a product of so many neither under- nor overflows
GENERATED = tuple(s for s in TokenStatus if s not in (TokenStatus.MASKED, TokenStatus.PROMPT))
FAR = 2.0**16  # the largest bet over the smallest that share a pass
TINY = 1e-300  # a bet of nothing, as a divisor


def unit_values(batch: PairBatch, clause: Clause, mask: Mask = None) -> Floats:
    """Return the value of `clause.statistic` for each pair of `batch`, shape (n,).

    Raises
    ------
    KeyError
        If the statistic is judged from states rather than from unit values.
    """
    return UNIT_VALUES[clause.statistic](batch, clause, mask)


def _tv(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    """(1-w)+ = -expm1(min(ell, 0)) (A19), or what it estimates where whole distributions were compared."""
    estimate, exact = np.minimum(excess(batch), 0.0), batch.top.exact_tv
    if is_reported(exact):
        estimate = np.where(np.isnan(exact), estimate, -exact)
    return 0.0 - batch.means(estimate, mask)


def _tv_topk(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    """Hybrid TV; a sequence's mean above 1, which only a sequence of lost tokens has, counts as 1."""
    return np.minimum(batch.means(batch.top.hybrid_tv, mask), 1.0)


def _oscillation(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    """Mean oscillation, or the share of tokens above the limit where a quantile is bound."""
    values = batch.top.oscillation
    if clause.quantile is None or not is_reported(values):
        return batch.means(values, mask)
    return batch.means(np.where(np.isnan(values), np.nan, values > (clause.at_most or 0.0)), mask)


def _flips(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    return batch.means(batch.top.flip, mask)


def _abs_diff(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    return batch.mean_of("sizes", lambda: sizes(batch), mask)


def _ratio_tail(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    return batch.shares(sizes(batch) > np.log(clause.above or DEFAULT_ABOVE), mask)


def _mean_ratio(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    return 1.0 + capped_mean(batch, clause.cap or DEFAULT_CAP, mask)


def _top1(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    return batch.mean_of("surprise", lambda: surprise(batch), mask)


def _sequence_tv(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    """(1-W)+ per complete sequence (B7); NaN where tokens are missing or sliced away."""
    total = batch.total("ell", lambda: batch.log_ratio)
    known = whole(batch) if mask is None else whole(batch) & (batch.counts(mask) == batch.counts())
    return np.where(known, -np.expm1(np.minimum(total, 0.0)), np.nan)


def _gradient_bias(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    """D3 with the estimator the clause alone names: clip where it gives `clip`, otherwise tis."""
    return gradient_bias(batch, own_estimator(clause), mask)


def gradient_bias(batch: PairBatch, estimator: Estimator, mask: Mask = None) -> Floats:
    """Mean over tokens of the D3 statistic of `estimator`, in units of A_max G, shape (n,).

    PPO's min depends on the sign of each advantage, the label `advantage` of a sequence: NaN without it.
    """
    if estimator.kind == "ppo_min":
        return ppo_min_bias(batch, estimator, mask)
    if estimator.kind == "tis":  # 1 - min(w, cap), of which other statistics are made too
        return 0.0 - capped_mean(batch, weighting_of(estimator).cap, mask)
    return batch.means(np.asarray(bias_statistic(batch.log_ratio, estimator), dtype=np.float64), mask)


def _calibration(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    return batch.means(batch.top.gap, mask)


def _k3(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    return batch.mean_of("k3", lambda: k3(batch), mask)


def _chi_square(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    return batch.means(np.square(excess(batch)), mask)


def _square_ratio(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    """w^2, whose mean above 1/limit refutes an ESS limit (A6)."""
    ratio = 1.0 + excess(batch)
    return batch.means(np.square(ratio, out=ratio), mask)


def _ttft(batch: PairBatch, clause: Clause, _: Mask) -> Floats:
    return _duration(clause, [p.timings.ttft_s for p in batch.pairs])


def _itl(batch: PairBatch, clause: Clause, _: Mask) -> Floats:
    return _duration(clause, [p.itl_mean_s for p in batch.pairs])


def _duration(clause: Clause, seconds: list[float | None]) -> Floats:
    """Seconds, or 1{above the limit} where a quantile is bound; NaN where not reported."""
    values = np.array([np.nan if s is None else s for s in seconds], dtype=np.float64)
    if clause.quantile is None:
        return values
    return np.where(np.isnan(values), np.nan, values > (clause.at_most or 0.0))


def _lag(batch: PairBatch, _: Clause, __: Mask) -> Floats:
    """Versions the trainer is ahead; a sampler that is ahead of its trainer does not lag."""
    return np.array([np.nan if p.lag is None else max(p.lag, 0) for p in batch.pairs], dtype=np.float64)


def _nonfinite(batch: PairBatch, _: Clause, __: Mask) -> Floats:
    return _share(batch, *BAD)


def _missing(batch: PairBatch, _: Clause, __: Mask) -> Floats:
    return _share(batch, TokenStatus.MISSING)


def _semantics(batch: PairBatch, _: Clause, __: Mask) -> Floats:
    known = [p.sampling.semantics is not LogprobSemantics.UNKNOWN for p in batch.pairs]
    return np.array(known, dtype=np.float64)


def _share(batch: PairBatch, *statuses: TokenStatus) -> Floats:
    """Share of generated, unmasked tokens with one of `statuses`; NaN without such tokens."""
    total, out = batch.once("generated", lambda: _tally(batch, *GENERATED)), np.full(len(batch), np.nan)
    return np.asarray(np.divide(_tally(batch, *statuses), total, out=out, where=total > 0))


def _tally(batch: PairBatch, *statuses: TokenStatus) -> Floats:
    """Tokens of each pair with one of `statuses`, shape (n,)."""
    return np.asarray(batch.statuses()[:, [int(s) for s in statuses]].sum(axis=1))


UNIT_VALUES: Mapping[str, UnitValues] = MappingProxyType(
    {
        "tv": _tv,
        "tv_topk": _tv_topk,
        "logit_oscillation": _oscillation,
        "argmax_flip_rate": _flips,
        "logprob_abs_diff": _abs_diff,
        "ratio_tail": _ratio_tail,
        "mean_ratio": _mean_ratio,
        "top1_frequency": _top1,
        "sequence_tv": _sequence_tv,
        "gradient_bias": _gradient_bias,
        "calibration_gap": _calibration,
        "kl_k3": _k3,
        "chi_square": _chi_square,
        "ess": _square_ratio,
        "time_to_first_token": _ttft,
        "inter_token_latency": _itl,
        "weights_lag": _lag,
        "nonfinite_rate": _nonfinite,
        "missing_rate": _missing,
        "logprob_semantics_known": _semantics,
        **OBJECTIVE_VALUES,
    }
)


def token_bets(batch: PairBatch, clause: Clause, mask: Mask, bets: Floats) -> Floats:
    """Log-growth of each bet over each pair's tokens, for nulls that hold given every prefix.

    ``mean_ratio``: E[min(w, cap) | prefix] <= limit, so each token multiplies wealth by
    ``1 + lambda (min(w, cap) - limit)`` (A21).  ``top1_frequency``: the conditional mean of
    ``1{sampled = top-1} - q(top-1)`` is zero; a positive bet plays "more often than the limit
    allows", a negative one "less often".  The product over a sequence is that sequence's
    e-value, so the unit stays the sequence.

    Parameters
    ----------
    bets : shape (k,), float64
        Signed bet sizes; ``|lambda|`` small enough that wealth stays positive.

    Returns
    -------
    shape (n, k), float64, nats
    """
    gain, start = _gain(batch, clause)
    if mask is not None:
        gain = np.where(mask, gain, np.nan)
    if np.isnan(gain).all():
        return np.zeros((len(batch), len(bets)))
    blocks, out = batch.once("blocks", lambda: _Blocks.of(batch)), np.zeros((len(batch), len(bets)))
    laid, limit = blocks.lay(gain), clause.at_most or 0.0
    for sign in {copysign(1.0, bet) for bet in bets.tolist()}:
        asked = np.flatnonzero(np.copysign(1.0, bets) == sign)
        out[:, asked] = blocks.log_products(laid, (sign, sign * start - limit), np.abs(bets[asked]))
    return out


@dataclass(frozen=True, slots=True, eq=False)
class _Blocks:
    """Tokens of a batch in blocks of `BLOCK` inside each pair, laid out so that blocks stand side by side.

    A logarithm a block instead of one a token; a block starts where its pair does, so a pair's
    value does not depend on the batch it travels in.

    Attributes
    ----------
    tokens : shape (BLOCK, b), int64
        Tokens of each block, down a column.
    offsets : shape (n + 1,), int64
        Blocks of pair i are ``offsets[i]:offsets[i + 1]``.
    ends, beyond : shape (e,), int64; shape (BLOCK, e), bool
        The last block of each pair, and which of its places lie beyond the pair.
    """

    tokens: NDArray[np.int64]
    offsets: NDArray[np.int64]
    ends: NDArray[np.int64]
    beyond: NDArray[np.bool_]

    @classmethod
    def of(cls, batch: PairBatch) -> "_Blocks":
        counts = -(-batch.counts() // BLOCK)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        starts = np.repeat(batch.offsets[:-1], counts) + BLOCK * within
        ends, down = offsets[1:][counts > 0] - 1, np.arange(BLOCK)[:, None]
        held = batch.offsets[1:][counts > 0] - starts[ends]
        return cls(starts + down, offsets, ends, down >= held)

    def lay(self, values: Floats) -> Floats:
        """One value a token, block by block; NaN beyond a pair; shape (BLOCK, b)."""
        out = np.take(values, self.tokens, mode="clip")
        out[:, self.ends] = np.where(self.beyond, np.nan, out[:, self.ends])
        return out

    def log_products(self, gain: Floats, odds_of: tuple[float, float], bets: Floats) -> Floats:
        """Log of the product of one plus bet times odds over a pair, shape (n, k), nats.

        Odds are ``slope * gain + start``; tokens whose gain is NaN count for nothing.  One plus a bet
        times the odds is, but for a constant, the odds of the largest bet plus a number: one pass
        instead of two.
        """
        slope, start = odds_of
        largest = max(float(bets.max()), TINY)
        odds = gain * (slope * largest)
        odds += start * largest
        products = np.empty((len(bets), odds.shape[1]))
        odds.ravel()[np.flatnonzero(np.isnan(odds))] = 0.0
        factor = np.empty_like(odds)
        for k, bet in enumerate(bets.tolist()):
            times = largest / max(bet, TINY)
            if times > FAR:  # its power might overflow
                np.multiply(odds, 1.0 / times, out=factor)
                times = 1.0
                factor += times
            else:
                np.add(odds, times, out=factor)
            np.multiply.reduce(factor, axis=0, out=products[k])
            products[k] *= times**-BLOCK  # bets halve: exact
        with np.errstate(divide="ignore"):  # -inf for a bet that lost everything
            return self._over_pairs(np.log(products, out=products))

    def _over_pairs(self, logs: Floats) -> Floats:
        """Sum over the blocks of each pair, shape (n, k)."""
        filled = np.diff(self.offsets) > 0
        out = np.zeros((len(filled), len(logs)))
        out[filled] = np.add.reduceat(logs, self.offsets[:-1][filled], axis=1).T
        return out


def _gain(batch: PairBatch, clause: Clause) -> tuple[Floats, float]:
    """What each token wins before the limit, less a number, and that number; NaN where it is not known."""
    if clause.statistic == "mean_ratio":
        return capped_rise(batch, clause.cap or DEFAULT_CAP), 1.0
    return surprise(batch), 0.0
