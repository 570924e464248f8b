"""Cases outside what a certificate assumes: they must be withdrawn, and some of them show why.

Each row breaks one assumption on purpose.  "would be wrong" counts cases whose bound, kept in spite
of it, lies below the truth; "seen" counts those a check on what is logged finds.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from paritas.commands.experiments.laws import BANDIT, Laws, decode
from paritas.commands.experiments.result import Floats, Table
from paritas.commands.experiments.search import is_broken
from paritas.commands.experiments.statements import (
    ESTIMATORS,
    TOKEN_STATEMENTS,
    Judged,
    update_bias,
    weights_of,
)
from paritas.contracts.bounds import bias_statistic, capped_ratio, gradient_bias, reward_drift_from_tv

__all__ = ["assumption_table"]

DECLARED_SHARE = 0.5  # of the true score norm
REWARDS_BEYOND = 4.0  # times the declared range
SAMPLED_AT = 0.6  # temperature of the sampler whose log says 1
SEEN = 1e-3  # drift of an integrity mean that a long stream makes certain
COLUMNS = ("assumption", "what was done", "cases", "withdrawn", "seen by", "seen", "would be wrong")

Broken = tuple[Judged, NDArray[np.bool_]]


def assumption_table(seed: int, cases: int) -> Table:
    """Break each assumption in `cases` random cases."""
    drawn = np.random.default_rng([seed, 99]).normal(size=(cases, BANDIT.width))
    rows = tuple(_row(*told, drawn) for told in _BREAKS)
    return Table(
        "assumptions", "cases made to break one assumption: none is judged, each is withdrawn", COLUMNS, rows
    )


def _row(
    name: str, done: str, seen_by: str, breaks: Callable[[Floats], Broken], drawn: Floats
) -> tuple[str, str, int, int, str, int, int]:
    judged, seen = breaks(drawn)
    outside = ~judged.stands
    return (
        name,
        done,
        int(outside.sum()),
        int(outside.sum()),
        seen_by,
        int((seen & outside).sum()),
        int((is_broken(judged) & outside).sum()),
    )


def _none(laws: Laws) -> NDArray[np.bool_]:
    return np.zeros(len(laws.p), dtype=np.bool_)


def _score_norm(drawn: Floats) -> Broken:
    """PPO's certificate with a declared score norm that is half the true one."""
    statement = next(s for s in TOKEN_STATEMENTS if s.name == "ppo-clip")
    judged, laws = statement.judge(drawn), decode(drawn, BANDIT)
    declared = DECLARED_SHARE * laws.score_norm
    return Judged(judged.truth, judged.bound * DECLARED_SHARE, _none(laws)), laws.score_norm > declared


def _reward_range(drawn: Floats) -> Broken:
    """Rewards in [-4, 4] under a contract that declares [0, 1]."""
    laws = decode(drawn, BANDIT)
    reward = REWARDS_BEYOND * laws.advantage
    drift = np.abs(np.einsum("ns,nsv->n", laws.weight, (laws.p - laws.q) * reward))
    bound = reward_drift_from_tv(np.einsum("ns,ns->n", laws.weight, laws.tv), 1.0)
    outside = np.asarray(((reward < 0.0) | (reward > 1.0)).any(axis=(1, 2)))
    return Judged(drift, bound, ~outside), outside


def _support(drawn: Floats) -> Broken:
    """A bound from D, which is finite only on the common support, where the sampler lost mass."""
    statement = next(s for s in TOKEN_STATEMENTS if s.name == "tis-prior")
    laws = decode(drawn, BANDIT)
    kept = laws.mean(capped_ratio(laws.log_ratio, 2.0))
    return statement.judge(drawn), kept < 1.0 - SEEN


def _law(drawn: Floats) -> Broken:
    """Tokens drawn at temperature 0.6, log-probabilities logged at 1: the log is not the sampling law."""
    laws = decode(drawn, BANDIT, masked=False)
    power = laws.q ** (1.0 / SAMPLED_AT)
    drawn_from = replace(laws, q=power / power.sum(axis=-1, keepdims=True))
    beta = drawn_from.mean(bias_statistic(laws.log_ratio, ESTIMATORS["tis"]))
    weights = weights_of("tis", laws, laws.advantage)
    bound = gradient_bias(np.maximum(beta, 0.0), advantage=laws.largest_advantage, score_norm=laws.score_norm)
    truth = update_bias(drawn_from, weights, laws.advantage)
    return Judged(truth, bound, _none(laws)), _integrity(laws, drawn_from)


def _integrity(logged: Laws, drawn_from: Laws) -> NDArray[np.bool_]:
    """A21: the logged top-1 comes as often as logged, and E min(w, 2) is at most 1."""
    top = logged.q == logged.q.max(axis=-1, keepdims=True)
    surprise = np.einsum("ns,nsv->n", logged.weight, (drawn_from.q - logged.q) * top)
    mean_ratio = drawn_from.mean(capped_ratio(logged.log_ratio, 2.0))
    return np.asarray((np.abs(surprise) > SEEN) | (mean_ratio > 1.0 + SEEN))


_BREAKS = (
    ("score norm", "declared G is half the true one (PPO clip)", "label score_norm", _score_norm),
    ("reward range", "rewards in [-4, 4], declared [0, 1]", "label reward", _reward_range),
    ("support", "sampler cut tokens, bound from D (D4)", "mean of min(w, 2)", _support),
    ("sampling law", "sampled at 0.6, logged at 1 (min(w, 2))", "top-1 frequency, mean ratio (A21)", _law),
)
