"""What the falsification experiment tries to break: objectives on whole responses, enumerated."""

import numpy as np

from paritas.commands.experiments.laws import TREE, norm
from paritas.commands.experiments.response_laws import HORIZON, enumerated, every, largest_advantage, pulled
from paritas.commands.experiments.result import Floats
from paritas.commands.experiments.statements import Judged, Statement
from paritas.commands.experiments.statements_dpo import DPO_STATEMENTS
from paritas.commands.experiments.statements_grpo import GRPO_STATEMENTS
from paritas.contracts.bounds import (
    capped_ratio,
    outcome_bias_from_sup,
    reward_drift_from_tv,
    reward_drift_statistics,
    sequence_bias_from_chi2,
    truncated_sequence_bias,
)

__all__ = ["SEQUENCE_STATEMENTS"]

CAP = 2.0


def _uncorrected(case: Floats) -> Judged:
    told = enumerated(case)
    truth = pulled(told, (told.q - told.p) * told.advantage)
    return Judged(truth, told.certified(HORIZON * 2.0 * told.tv, largest_advantage(told)), every(told))


def _chi2(case: Floats) -> Judged:
    told = enumerated(case)
    chi2 = np.maximum((np.square(told.q) / told.p).sum(axis=1) - 1.0, 0.0)
    truth = pulled(told, (told.q - told.p) * told.advantage)
    bound = told.certified(sequence_bias_from_chi2(chi2, HORIZON), largest_advantage(told))
    return Judged(truth, bound, every(told))


def _truncated(case: Floats) -> Judged:
    told = enumerated(case)
    weight = np.minimum(np.exp(told.log_ratio), CAP)
    truth = pulled(told, (told.q * weight - told.p) * told.advantage)
    kept = (told.q * capped_ratio(told.log_ratio, CAP)).sum(axis=1)
    return Judged(
        truth, told.certified(truncated_sequence_bias(kept, HORIZON), largest_advantage(told)), every(told)
    )


def _token_weights(case: Floats) -> Judged:
    """Token-level weights with the advantage of the whole response."""
    told = enumerated(case)
    weights = told.along(told.laws.ratio)
    pull = (told.q[..., None] * weights - told.p[..., None]) * told.advantage[..., None]
    truth = norm(np.einsum("nyt,nytd->nd", pull, told.scores))
    bound = told.certified(outcome_bias_from_sup(told.largest_step_tv, HORIZON), largest_advantage(told))
    return Judged(truth, bound, ~told.laws.missing)


def _reward_tv(case: Floats) -> Judged:
    told = enumerated(case)
    reward = 0.5 * (1.0 + told.advantage)
    drift = np.abs(((told.p - told.q) * reward).sum(axis=1))
    return Judged(drift, reward_drift_from_tv(told.tv, np.ptp(reward, axis=1)), every(told))


def _reward_direct(case: Floats) -> Judged:
    """C6, upward: signed on both sides."""
    told = enumerated(case)
    reward = 0.5 * (1.0 + told.advantage)
    upper = reward_drift_statistics(told.log_ratio, reward, CAP).upper
    return Judged(((told.p - told.q) * reward).sum(axis=1), (told.q * upper).sum(axis=1), every(told))


_G, _F = "score norm G", "score norm G, full support"
SEQUENCE_STATEMENTS = (
    Statement("seq-uncorrected", "REINFORCE on responses", "2 A G H TV_seq (D2)", _G, TREE, _uncorrected),
    Statement("seq-chi2", "REINFORCE on responses", "A G sqrt(H chi2(Q, P)) (D12)", _G, TREE, _chi2),
    Statement(
        "seq-truncated", "responses weighted min(W, 2)", "A G H (1 - E min(W, 2)) (D11)", _G, TREE, _truncated
    ),
    Statement(
        "seq-token-weights", "responses, token weights", "2 a H (H-1) A G (D11)", _F, TREE, _token_weights
    ),
    *GRPO_STATEMENTS,
    *DPO_STATEMENTS,
    Statement("reward-tv", "reward drift", "range TV_seq (C1)", "reward range", TREE, _reward_tv),
    Statement(
        "reward-direct",
        "reward drift, upward",
        "E (1 - min(W, 2))(1 - R) (C6)",
        "reward range",
        TREE,
        _reward_direct,
    ),
)
