"""Per-unit values of the objectives people train with (docs/objectives.md): PPO, GRPO, GSPO, TRPO, DPO, RLHF, distillation.

Same signature and rules as `detectors.statistics`: a batch, the clause and a token mask in, one
value a pair out, shape (n,), float64; NaN where the pair cannot tell.  Advantage, reward and
preference of a sequence are labels of its trace (`advantage`, `reward`, `preference`).
"""

from collections.abc import Callable, Mapping
from math import inf, isfinite, log1p, nan, tanh
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from paritas.contracts.bounds.gradient import bias_statistic
from paritas.contracts.model import Clause, Estimator
from paritas.detectors.evidence import PairBatch
from paritas.detectors.pairs import Floats, PairedTrace, is_reported, unreported
from paritas.detectors.token_columns import excess, is_calm, k3, sizes, whole

__all__ = ["OBJECTIVE_VALUES", "label_number", "label_numbers", "ppo_min_bias", "reward_share"]

Mask = NDArray[np.bool_] | None
UnitValues = Callable[[PairBatch, Clause, Mask], Floats]

CUT_NATS = 1.0  # a token counts at most so much in truncated statistics: one bad token decides nothing
REWARD_CAP = 2.0  # C of C6: the certificate's terms lie in [-1, 1]
DEFAULT_CLIP = 0.2  # PPO's usual clip range
PREFERENCES = ("chosen", "rejected")


def label_number(pair: PairedTrace, name: str) -> float:
    """Return a label as a number; NaN where it is absent or is none.

    Labels are texts on the wire; ``true`` and ``false`` count as 1 and 0.
    """
    told = pair.attributes.get(name, "")
    try:
        value = {"true": 1.0, "false": 0.0}[told] if told in ("true", "false") else float(told)
    except ValueError:
        return nan
    return value if isfinite(value) else nan


def label_numbers(batch: PairBatch, name: str) -> Floats:
    """Return a label of every pair as a number, shape (n,)."""
    return np.array([label_number(pair, name) for pair in batch.pairs], dtype=np.float64)


def clip_ends(clause: Clause) -> tuple[float, float]:
    """Log of both ends of the clip range [1 - clip, 1 + clip_high], nats."""
    c = clause.clip or DEFAULT_CLIP
    return (log1p(-c) if c < 1.0 else -inf), log1p(clause.clip_high or c)


def phantom_clip_rate(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    """Share of tokens outside the clip range whatever their advantage (D18)."""
    low, high = clip_ends(clause)
    ell = batch.log_ratio
    return batch.shares((ell > high) | (ell < low), mask)


def ppo_clip_rate(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    """Share of tokens that PPO's min drops: beyond the end its advantage pushes to (D10)."""
    low, high = clip_ends(clause)
    advantage = np.repeat(label_numbers(batch, "advantage"), batch.counts())
    ell = batch.log_ratio
    dropped = ((advantage > 0.0) & (ell > high)) | ((advantage < 0.0) & (ell < low))
    return batch.means(np.where(np.isnan(advantage), nan, dropped), mask)


def ppo_min_bias(batch: PairBatch, estimator: Estimator, mask: Mask) -> Floats:
    """Mean D3 statistic of PPO's min, which depends on the sign of each sequence's advantage (D10)."""
    advantage = np.repeat(label_numbers(batch, "advantage"), batch.counts())
    known = ~np.isnan(advantage)
    told = bias_statistic(batch.log_ratio, estimator, advantage=np.where(known, advantage, 0.0))
    return batch.means(np.where(known, told, nan), mask)


def gspo_clip_rate(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    """1 where the geometric mean of a whole sequence's ratios leaves the clip range."""
    low, high = clip_ends(clause)
    mean = batch.mean_of("ell", lambda: batch.log_ratio)
    return np.where(_whole(batch, mask), (mean > high) | (mean < low), nan)


def trust_region_kl(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    """Mean of min(w - 1 - ell, 1 nat): at most KL(q||p), and at least TV^2 / 2 (A19)."""
    return batch.means(np.minimum(k3(batch), CUT_NATS), mask)


def distillation_drift(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    """Mean of min(|ell|, 1 nat)."""
    return batch.means(np.minimum(sizes(batch), CUT_NATS), mask)


def probability_gap(batch: PairBatch, _: Clause, mask: Mask) -> Floats:
    """Mean of |p - q| of the sampled token."""
    q = np.exp(batch.logprob_q)
    if is_calm(batch):
        gap = np.minimum(q * excess(batch), 1.0 - q)  # p - q = q (w - 1), with p at most 1
    else:
        gap = np.exp(np.minimum(batch.logprob_q + batch.log_ratio, 0.0)) - q
    return batch.means(np.abs(gap, out=gap), mask)


def reward_share(pair: PairedTrace, clause: Clause) -> float:
    """Return the reward on [0, 1] of its declared range; NaN where it is absent or outside."""
    low, high = clause.reward_range or (0.0, 1.0)
    share = (label_number(pair, "reward") - low) / (high - low)
    return share if 0.0 <= share <= 1.0 else nan


def reward_loss(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    """(1 - min(W, 2)) R per whole sequence: its mean bounds E_Q R - E_P R (C6)."""
    return _reward_gap(batch, mask) * _rewards(batch, clause) + 0.0


def reward_gain(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    """(1 - min(W, 2)) (1 - R) per whole sequence: its mean bounds E_P R - E_Q R (C6)."""
    return _reward_gap(batch, mask) * (1.0 - _rewards(batch, clause)) + 0.0


def _rewards(batch: PairBatch, clause: Clause) -> Floats:
    return np.array([reward_share(pair, clause) for pair in batch.pairs], dtype=np.float64)


def _reward_gap(batch: PairBatch, mask: Mask) -> Floats:
    """1 - min(W, 2), exact near W = 1; NaN for a sequence that is not whole."""
    total = batch.total("ell", lambda: batch.log_ratio)
    return np.where(_whole(batch, mask), -np.expm1(np.minimum(total, np.log(REWARD_CAP))), nan)


def _whole(batch: PairBatch, mask: Mask) -> NDArray[np.bool_]:
    """Pairs whose every generated token is there and inside the slice."""
    return whole(batch) if mask is None else whole(batch) & (batch.counts(mask) == batch.counts())


def confidence_drift(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    """Mean |h(q(a)) - h(p(a))| over tokens whose most likely token is the same on both sides (E3)."""
    q, told = batch.top.top1_q, batch.top.gap
    if not (is_reported(q) and is_reported(told)):
        return batch.means(unreported(len(q)))
    if _is_plain(clause) and _are_chances(q) and _are_chances(q - told):
        gap = np.abs(told)
    else:
        gap = _recalibrated(q, clause) - _recalibrated(q - told, clause)
        np.abs(gap, out=gap)
    gap[np.flatnonzero(batch.top.flip != 0.0)] = nan  # NaN is not 0 either
    return batch.means(gap, mask)


def _is_plain(clause: Clause) -> bool:
    """Whether a confidence stays what it is."""
    return (clause.temperature or 1.0) == 1.0 and not clause.smoothing


def _are_chances(values: Floats) -> bool:
    """Whether all lie in [0, 1]; NaN does not."""
    return bool(values.min(initial=0.0) >= 0.0 and values.max(initial=0.0) <= 1.0)


def _recalibrated(confidence: Floats, clause: Clause) -> Floats:
    """(1 - smoothing) sigmoid(logit f / temperature), as f^a / (f^a + (1-f)^a); 0 and 1 stay."""
    power = 1.0 / (clause.temperature or 1.0)
    f = np.clip(confidence, 0.0, 1.0)
    if power == 1.0:
        return (1.0 - (clause.smoothing or 0.0)) * f
    up, down = f**power, (1.0 - f) ** power
    return (1.0 - (clause.smoothing or 0.0)) * up / (up + down)


def dpo_margin_drift(batch: PairBatch, clause: Clause, mask: Mask) -> Floats:
    """tanh(beta |L_chosen - L_rejected| / 4), told by both members of a pair, whose mean it then is (A2).

    A group is a unit, so both stand in one batch; without its other half, or with several of one
    kind, a sequence cannot tell.
    """
    total = np.where(_whole(batch, mask), batch.sums(batch.log_ratio), nan)
    out = np.full(len(batch), nan)
    for chosen, rejected in _preferences(batch):
        margin = (clause.beta or 0.1) * (total[chosen] - total[rejected])
        out[[chosen, rejected]] = tanh(abs(margin) / 4.0)
    return out


def _preferences(batch: PairBatch) -> list[tuple[int, int]]:
    """Places of the chosen and the rejected answer of each group that has one of each."""
    groups: dict[tuple[str, str], dict[str, list[int]]] = {}
    for place, pair in enumerate(batch.pairs):
        kind = pair.attributes.get("preference", "")
        if pair.group_id and kind in PREFERENCES:
            key = (pair.run_id, pair.group_id)
            groups.setdefault(key, {name: [] for name in PREFERENCES})[kind].append(place)
    found = (tuple(kinds[name] for name in PREFERENCES) for kinds in groups.values())
    return [(c[0], r[0]) for c, r in found if len(c) == len(r) == 1]


OBJECTIVE_VALUES: Mapping[str, UnitValues] = MappingProxyType(
    {
        "confidence_drift": confidence_drift,
        "distillation_drift": distillation_drift,
        "dpo_margin_drift": dpo_margin_drift,
        "gspo_clip_rate": gspo_clip_rate,
        "phantom_clip_rate": phantom_clip_rate,
        "ppo_clip_rate": ppo_clip_rate,
        "probability_gap": probability_gap,
        "reward_gain": reward_gain,
        "reward_loss": reward_loss,
        "trust_region_kl": trust_region_kl,
    }
)
