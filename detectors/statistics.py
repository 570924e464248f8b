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

from paritas.contracts.bounds.gradient import bias_statistic
from paritas.contracts.model import Clause, Estimator
from paritas.detectors.evidence import PairBatch, segment_sum
from paritas.detectors.objectives import OBJECTIVE_VALUES, ppo_min_bias
from paritas.detectors.pairs import BAD, Floats
from paritas.detectors.rows import own_estimator
from paritas.records import LogprobSemantics, TokenStatus

__all__ = ["UNIT_VALUES", "gradient_bias", "sizes", "token_bets", "unit_values"]

Mask = NDArray[np.bool_] | None
UnitValues = Callable[[PairBatch, Clause, Mask], Floats]

DEFAULT_ABOVE = 2.0  # IcePop and TIS cap at 2: a ratio beyond it is what trainers truncate
DEFAULT_CAP = 2.0
# exp(50) squared is still finite in float64; a ratio beyond it refutes any limit as it stands.
LOG_RATIO_CEILING = 50.0
BLOCK = 32  # factors lie between 0.1 and the cap: a product of so many neither under- nor overflows


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
    estimate, exact = -np.minimum(_excess(batch), 0.0), batch.top.exact_tv
    unknown = np.isnan(exact)
    return batch.means(estimate if unknown.all() else np.where(unknown, estimate, exact), mask)


def _tv_topk(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    """Hybrid TV; a sequence's mean above 1, which only a sequence of lost tokens has, counts as 1."""
    return np.minimum(batch.means(batch.top.hybrid_tv, mask), 1.0)


def _oscillation(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    """Mean oscillation, or the share of tokens above the limit where a quantile is bound."""
    values = batch.top.oscillation
    if clause.quantile is None:
        return batch.means(values, mask)
    return batch.means(np.where(np.isnan(values), np.nan, values > (clause.at_most or 0.0)), mask)


def _flips(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    return batch.means(batch.top.flip, mask)


def _abs_diff(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    return batch.means(sizes(batch), mask)


def _ratio_tail(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    return batch.shares(sizes(batch) > np.log(clause.above or DEFAULT_ABOVE), mask)


def _mean_ratio(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    return batch.means(_capped(batch, clause), mask)


def _top1(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    return batch.means(_surprise(batch), mask)


def _sequence_tv(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    """(1-W)+ per complete sequence (B7); NaN where tokens are missing or sliced away."""
    total = batch.sums(batch.log_ratio)
    whole = (batch.counts() > 0) & (_tally(batch, *BAD, TokenStatus.MISSING) == 0)
    if mask is not None:
        whole &= batch.counts(mask) == batch.counts()
    return np.where(whole, -np.expm1(np.minimum(total, 0.0)), np.nan)


def _gradient_bias(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    """D3 with the estimator the clause alone names: clip where it gives `clip`, otherwise tis."""
    return gradient_bias(batch, own_estimator(clause), mask)


def gradient_bias(batch: PairBatch, estimator: Estimator, mask: Mask = None) -> Floats:
    """Mean over tokens of the D3 statistic of `estimator`, in units of A_max G, shape (n,).

    PPO's min depends on the sign of each advantage, the label `advantage` of a sequence: NaN without it.
    """
    if estimator.kind == "ppo_min":
        return ppo_min_bias(batch, estimator, mask)
    return batch.means(np.asarray(bias_statistic(batch.log_ratio, estimator), dtype=np.float64), mask)


def _calibration(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    return batch.means(batch.top.gap, mask)


def _k3(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    return batch.means(_excess(batch) - _cut(batch), mask)


def _chi_square(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    return batch.means(_excess(batch) ** 2, mask)


def _square_ratio(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    """w^2, whose mean above 1/limit refutes an ESS limit (A6)."""
    return batch.means(np.exp(2.0 * _cut(batch)), mask)


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
    generated = (s for s in TokenStatus if s not in (TokenStatus.MASKED, TokenStatus.PROMPT))
    total, out = _tally(batch, *generated), np.full(len(batch), np.nan)
    return np.asarray(np.divide(_tally(batch, *statuses), total, out=out, where=total > 0))


def _tally(batch: PairBatch, *statuses: TokenStatus) -> Floats:
    """Tokens of each pair with one of `statuses`, shape (n,)."""
    return np.asarray(batch.statuses()[:, [int(s) for s in statuses]].sum(axis=1))


def sizes(batch: PairBatch) -> Floats:
    """|ell| of each token, nats."""
    return batch.once("sizes", lambda: np.abs(batch.log_ratio))


def _cut(batch: PairBatch) -> Floats:
    """Ell of each token, at most `LOG_RATIO_CEILING`, nats."""
    return batch.once("cut", lambda: np.minimum(batch.log_ratio, LOG_RATIO_CEILING))


def _excess(batch: PairBatch) -> Floats:
    """W - 1 of each token, with `LOG_RATIO_CEILING`."""
    return batch.once("excess", lambda: np.expm1(_cut(batch)))


def _capped(batch: PairBatch, clause: Clause) -> Floats:
    """min(w, cap) of each token."""
    cap = clause.cap or DEFAULT_CAP
    return batch.once(f"capped at {cap}", lambda: capped_ratio(batch.log_ratio, cap))


def capped_ratio(ell: Floats, cap: float) -> Floats:
    """min(w, cap) = exp(min(ell, log cap)); -inf gives 0."""
    return np.exp(np.minimum(ell, np.log(cap)))


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
    gain, limit = _gain(batch, clause), clause.at_most or 0.0
    known = ~np.isnan(gain) if mask is None else mask & ~np.isnan(gain)
    if not known.any():
        return np.zeros((len(batch), len(bets)))
    blocks = _Blocks.of(batch)
    odds = {sign: _odds(sign * gain, limit, known) for sign in {copysign(1.0, bet) for bet in bets.tolist()}}
    columns = [blocks.log_products(abs(bet) * odds[copysign(1.0, bet)]) for bet in bets.tolist()]
    return np.stack(columns, axis=1)


def _odds(gain: Floats, limit: float, known: NDArray[np.bool_]) -> Floats:
    """What a bet of one wins by each token; nothing where it is not known."""
    odds = gain - limit
    return odds if known.all() else np.where(known, odds, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Blocks:
    """Tokens of a batch in blocks of `BLOCK` inside each pair.

    A logarithm a block instead of one a token; a block starts where its pair does, so a pair's
    value does not depend on the batch it travels in.

    Attributes
    ----------
    starts : shape (b,), int64
        First token of each block.
    offsets : shape (n + 1,), int64
        Blocks of pair i are ``offsets[i]:offsets[i + 1]``.
    """

    starts: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, batch: PairBatch) -> "_Blocks":
        counts = -(-batch.counts() // BLOCK)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        return cls(np.repeat(batch.offsets[:-1], counts) + BLOCK * within, offsets)

    def log_products(self, gains: Floats) -> Floats:
        """Log of the product of one plus each of a pair's gains, shape (n,), nats; `gains` are overwritten."""
        gains += 1.0
        return segment_sum(np.log(np.multiply.reduceat(gains, self.starts)), self.offsets)


def _gain(batch: PairBatch, clause: Clause) -> Floats:
    if clause.statistic == "mean_ratio":
        return _capped(batch, clause)
    return _surprise(batch)


def _surprise(batch: PairBatch) -> Floats:
    """1{sampled = top-1} - q(top-1) of each token."""
    return batch.once("surprise", lambda: batch.top.is_top1 - batch.top.top1_q)
