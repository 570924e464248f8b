"""DPO: all pairs of responses, the reference model evaluated by another kernel."""

import numpy as np

from paritas.commands.experiments.laws import TREE, log_softmax, norm
from paritas.commands.experiments.response_laws import HORIZON, Responses, enumerated, every
from paritas.commands.experiments.result import Floats
from paritas.commands.experiments.statements import Judged, Statement
from paritas.contracts.bounds import tv_from_oscillation

__all__ = ["DPO_STATEMENTS"]

BETA = 0.5


def _margins(told: Responses) -> tuple[Floats, Floats, Floats]:
    """DPO over all pairs: weight of each pair, margin, and how far it moves, each (n, 8, 8)."""
    reference = told.along(log_softmax(told.laws.other)).sum(axis=-1)
    moved = told.along(log_softmax(told.laws.other + told.laws.drift)).sum(axis=-1)
    implicit = BETA * (np.log(told.p) - reference)
    change = BETA * (reference - moved)
    pairs = np.exp(log_softmax(np.concatenate([told.advantage, told.advantage[:, ::-1]], axis=1) * 4.0))
    chosen, rejected = pairs[:, :8], pairs[:, 8:]
    weight = chosen[:, :, None] * rejected[:, None]
    weight = weight / weight.sum(axis=(1, 2), keepdims=True)
    return weight, implicit[:, :, None] - implicit[:, None], change[:, :, None] - change[:, None]


def _pull_of(margin: Floats) -> Floats:
    """Minus the derivative of -log sigmoid, without overflow."""
    return 0.5 * (1.0 - np.tanh(margin / 2.0))


def _dpo_gradient(case: Floats) -> Judged:
    """DPO whose reference is evaluated by another kernel."""
    told = enumerated(case, masked=False)
    weight, margin, change = _margins(told)
    score = told.scores.sum(axis=2)
    pull = weight * BETA * (_pull_of(margin + change) - _pull_of(margin))
    truth = norm(np.einsum("nab,nabd->nd", pull, score[:, :, None] - score[:, None]))
    drift = (weight * tv_from_oscillation(np.abs(change))).sum(axis=(1, 2))
    beta = BETA * 2.0 * HORIZON * drift
    return Judged(truth, told.certified(beta, np.ones(len(beta))), every(told))


def _dpo_preference(case: Floats) -> Judged:
    told = enumerated(case, masked=False)
    weight, margin, change = _margins(told)
    moved = np.abs(_pull_of(margin + change) - _pull_of(margin))
    bound = (weight * tv_from_oscillation(np.abs(change))).sum(axis=(1, 2))
    return Judged((weight * moved).sum(axis=(1, 2)), bound, every(told))


DPO_STATEMENTS = (
    Statement(
        "dpo-gradient",
        "DPO, reference by another kernel",
        "2 beta H G E tanh(|m-m'|/4) (A2)",
        "score norm G",
        TREE,
        _dpo_gradient,
    ),
    Statement(
        "dpo-preference",
        "DPO preference probability",
        "E tanh(|m-m'|/4) (A2)",
        "nothing",
        TREE,
        _dpo_preference,
    ),
)
