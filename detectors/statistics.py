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
from paritas.detectors.pairs import BAD, Floats, PairedTrace
from paritas.detectors.rows import own_estimator
from paritas.records import LogprobSemantics, TokenStatus

__all__ = ["UNIT_VALUES", "gradient_bias", "token_bets", "unit_values"]

Mask = NDArray[np.bool_] | None
UnitValues = Callable[[PairBatch, Clause, Mask], Floats]

DEFAULT_ABOVE = 2.0  # IcePop and TIS cap at 2: a ratio beyond it is what trainers truncate
DEFAULT_CAP = 2.0
DEFAULT_CLIP = 0.2  # PPO's usual clip range
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
    estimate = -np.expm1(np.minimum(batch.log_ratio, 0.0))
    exact = batch.top.exact_tv
    return batch.means(np.where(np.isnan(exact), estimate, exact), mask)


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
    return batch.means(np.abs(batch.log_ratio), mask)


def _ratio_tail(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    log_above = np.log(clause.above or DEFAULT_ABOVE)
    return batch.means((np.abs(batch.log_ratio) > log_above).astype(np.float64), mask)


def _mean_ratio(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    return batch.means(capped_ratio(batch.log_ratio, clause.cap or DEFAULT_CAP), mask)


def _top1(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    return batch.means(batch.top.is_top1 - batch.top.top1_q, mask)


def _sequence_tv(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    """(1-W)+ per complete sequence (B7); NaN where tokens are missing or sliced away."""
    total = batch.sums(batch.log_ratio)
    whole = np.array([p.complete and p.tokens > 0 for p in batch.pairs], dtype=bool)
    if mask is not None:
        whole &= batch.counts(mask) == batch.counts()
    return np.where(whole, -np.expm1(np.minimum(total, 0.0)), np.nan)


def _gradient_bias(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    """D3 with the estimator the clause alone names: clip where it gives `clip`, otherwise tis."""
    return gradient_bias(batch, own_estimator(clause), mask)


def gradient_bias(batch: PairBatch, estimator: Estimator, mask: Mask = None) -> Floats:
    """Mean over tokens of the D3 statistic of `estimator`, in units of A_max G, shape (n,).

    PPO's min depends on the sign of each advantage, which no trace carries: NaN.
    """
    if estimator.kind == "ppo_min":
        return np.full(len(batch), np.nan)
    return batch.means(np.asarray(bias_statistic(batch.log_ratio, estimator), dtype=np.float64), mask)


def _phantom_clip(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    c = clause.clip or DEFAULT_CLIP
    ell = batch.log_ratio
    low = np.log1p(-c) if c < 1.0 else -np.inf
    return batch.means(((ell > np.log1p(c)) | (ell < low)).astype(np.float64), mask)


def _calibration(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    return batch.means(batch.top.gap, mask)


def _k3(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    ell = np.minimum(batch.log_ratio, LOG_RATIO_CEILING)
    return batch.means(np.expm1(ell) - ell, mask)


def _chi_square(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    return batch.means(np.expm1(np.minimum(batch.log_ratio, LOG_RATIO_CEILING)) ** 2, mask)


def _square_ratio(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    """w^2, whose mean above 1/limit refutes an ESS limit (A6)."""
    return batch.means(np.exp(2.0 * np.minimum(batch.log_ratio, LOG_RATIO_CEILING)), mask)


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
    return np.array([_share(p, *BAD) for p in batch.pairs], dtype=np.float64)


def _missing(batch: PairBatch, _: Clause, __: Mask) -> Floats:
    return np.array([_share(p, TokenStatus.MISSING) for p in batch.pairs], dtype=np.float64)


def _semantics(batch: PairBatch, _: Clause, __: Mask) -> Floats:
    known = [p.sampling.semantics is not LogprobSemantics.UNKNOWN for p in batch.pairs]
    return np.array(known, dtype=np.float64)


def _share(pair: PairedTrace, *statuses: TokenStatus) -> float:
    """Share of generated, unmasked tokens with one of `statuses`; NaN without such tokens."""
    skipped = (TokenStatus.MASKED, TokenStatus.PROMPT)
    total = sum(n for s, n in pair.counts.items() if s not in skipped)
    return sum(pair.counts.get(s, 0) for s in statuses) / total if total else float("nan")


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
        "phantom_clip_rate": _phantom_clip,
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
    gain, limit = _gain(batch, clause)
    known = ~np.isnan(gain) if mask is None else mask & ~np.isnan(gain)
    blocks = _Blocks.of(batch)
    odds = {sign: np.where(known, sign * gain - limit, 0.0) for sign in (1.0, -1.0)}
    columns = [blocks.log_products(1.0 + abs(bet) * odds[copysign(1.0, bet)]) for bet in bets.tolist()]
    return np.stack(columns, axis=1) if columns else np.zeros((len(batch), 0))


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

    def log_products(self, factors: Floats) -> Floats:
        """Log of the product of each pair's factors, shape (n,), nats."""
        if not self.starts.size:
            return np.zeros(len(self.offsets) - 1)
        return segment_sum(np.log(np.multiply.reduceat(factors, self.starts)), self.offsets)


def _gain(batch: PairBatch, clause: Clause) -> tuple[Floats, float]:
    if clause.statistic == "mean_ratio":
        return capped_ratio(batch.log_ratio, clause.cap or DEFAULT_CAP), clause.at_most or 0.0
    return batch.top.is_top1 - batch.top.top1_q, clause.at_most or 0.0
