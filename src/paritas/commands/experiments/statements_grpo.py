"""GRPO: groups of three responses with normalised advantages, every group enumerated."""

import numpy as np

from paritas.commands.experiments.laws import TREE, norm
from paritas.commands.experiments.response_laws import HORIZON, Responses, enumerated, every, pulled
from paritas.commands.experiments.result import Floats
from paritas.commands.experiments.statements import CLIP, ESTIMATORS, Judged, Statement
from paritas.contracts.bounds import bias_statistic, group_advantage_bound, k_sample_drift

__all__ = ["GRPO_STATEMENTS", "group_advantages"]

GROUP = 3
NO_SPREAD = 1e-12  # a group of equal rewards teaches nothing


def group_advantages(reward: Floats) -> Floats:
    """Advantage of the first member of every group of three, shape (n, 8, 8, 8)."""
    first, second, third = (np.expand_dims(reward, axis) for axis in ((2, 3), (1, 3), (1, 2)))
    mean = (first + second + third) / GROUP
    spread = np.sqrt(((first - mean) ** 2 + (second - mean) ** 2 + (third - mean) ** 2) / GROUP)
    return np.asarray(
        np.where(spread > NO_SPREAD, (first - mean) / np.where(spread > NO_SPREAD, spread, 1.0), 0.0)
    )


def _over_others(law: Floats, values: Floats) -> Floats:
    """Mean over the two other members drawn from `law`, shape (n, 8)."""
    return np.asarray(np.einsum("nb,nc,nabc->na", law, law, values))


def _largest_of_groups(told: Responses) -> Floats:
    return np.full(len(told.p), float(group_advantage_bound(GROUP)))


def _grpo_whole(case: Floats) -> Judged:
    """GRPO without weights against groups drawn from P."""
    told = enumerated(case)
    advantages = group_advantages(told.advantage)
    under_q = told.q * _over_others(told.q, advantages)
    under_p = told.p * _over_others(told.p, advantages)
    beta = HORIZON * 2.0 * k_sample_drift(told.tv, GROUP)
    return Judged(
        pulled(told, under_q - under_p), told.certified(beta, _largest_of_groups(told)), every(told)
    )


def _grpo_parts(told: Responses) -> tuple[Floats, Floats]:
    """Expected update of clipped GRPO (n, d), and its D3 statistic summed over tokens (n,)."""
    advantages = group_advantages(told.advantage)
    ell = told.along(told.laws.log_ratio)
    update, beta = np.zeros((len(ell), told.scores.shape[-1])), np.zeros(len(ell))
    for sign in (1.0, -1.0, 0.0):
        chosen = np.sign(advantages) == sign
        weight = _kept_ratio(ell, sign) * _over_others(told.q, advantages * chosen)[..., None]
        update += np.einsum("ny,nyt,nytd->nd", told.q, weight, told.scores)
        often = told.q * _over_others(told.q, chosen.astype(np.float64))
        statistic = bias_statistic(ell, ESTIMATORS["ppo_min"], advantage=sign)
        beta += np.einsum("ny,nyt->n", often, statistic)
    return update, np.maximum(beta, 0.0)


def _kept_ratio(ell: Floats, sign: float) -> Floats:
    """Weight of PPO's min for advantages of one sign."""
    w = np.exp(ell)
    flat = (w > 1.0 + CLIP) if sign > 0 else (w < 1.0 - CLIP) if sign < 0 else np.zeros(w.shape, np.bool_)
    return np.where(flat, 0.0, w)


def _grpo_clip(case: Floats) -> Judged:
    """Clipped GRPO against the same groups with every token reweighted to p: what D3 is about."""
    told = enumerated(case)
    update, beta = _grpo_parts(told)
    mean = _over_others(told.q, group_advantages(told.advantage))
    # each token's law replaced by p: q(y) p_t / q_t where q_t > 0, and the mass q lacks on its own
    target = np.einsum("nyt,nytd->nd", _swapped(told) * mean[..., None], told.scores)
    truth = norm(update - target)
    return Judged(truth, told.certified(beta, _largest_of_groups(told)), every(told))


def _swapped(told: Responses) -> Floats:
    """Law of the response when only step t is drawn from p, shape (n, 8, horizon)."""
    p, q = told.along(told.laws.p), told.along(told.laws.q)
    others = [np.delete(q, step, axis=2).prod(axis=2) for step in range(HORIZON)]
    return np.asarray(p * np.stack(others, axis=2))


def _grpo_clip_whole(case: Floats) -> Judged:
    """Clipped GRPO against groups drawn from P: D3, and every other step of every member coupled (B2)."""
    told = enumerated(case)
    update, beta = _grpo_parts(told)
    advantages = group_advantages(told.advantage)
    true = np.einsum("ny,nyd->nd", told.p * _over_others(told.p, advantages), told.scores.sum(axis=2))
    rest = 2.0 * HORIZON * k_sample_drift(told.largest_step_tv, GROUP * HORIZON - 1)
    return Judged(norm(update - true), told.certified(beta + rest, _largest_of_groups(told)), every(told))


_G = "score norm G"
GRPO_STATEMENTS = (
    Statement(
        "grpo", "GRPO, group of 3, no weights", "2 A G H (1-(1-TV_seq)^3) (C3, D14)", _G, TREE, _grpo_whole
    ),
    Statement(
        "grpo-clip",
        "GRPO clip 0.2, the sampled groups",
        "A G sum(1 - E w 1{kept}) (D3, D14)",
        _G,
        TREE,
        _grpo_clip,
    ),
    Statement(
        "grpo-clip-whole",
        "GRPO clip 0.2, groups under p",
        "the same + 2 A G H (1-(1-a)^8) (B2)",
        _G,
        TREE,
        _grpo_clip_whole,
    ),
)
