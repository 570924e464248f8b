"""Certificates from samples beside the exact bias: how often the limit lies below the truth, and how wide it is."""

import numpy as np
from numpy.typing import NDArray

from paritas.commands.experiments.laws import BANDIT, Laws, decode
from paritas.commands.experiments.result import Floats, Setting, Table
from paritas.commands.experiments.statements import ESTIMATORS, update_bias, weights_of
from paritas.contracts.bounds import MeanLimits, bias_statistic, bias_statistic_range, gradient_bias

__all__ = ["sampled_limits", "sampled_table"]

ALPHA = 0.05
COLUMNS = ("estimator", "cases", "tokens", "missed", "median truth / certified", "median exact / certified")


def sampled_table(setting: Setting) -> Table:
    """Draw tokens from q in random cases and compare the 95 % upper limit with the exact bias."""
    cases, tokens = setting.sized(600, 40), setting.sized(4000, 500)
    rng = np.random.default_rng([setting.seed, 77])
    laws = decode(rng.normal(size=(cases, BANDIT.width)), BANDIT)
    drawn = _draw(laws, rng, tokens)
    rows = tuple(_row(kind, laws, drawn) for kind in ESTIMATORS)
    return Table("sampled", f"upper limit at {1 - ALPHA:.0%} from tokens drawn from q (D16)", COLUMNS, rows)


def _draw(laws: Laws, rng: np.random.Generator, tokens: int) -> NDArray[np.int64]:
    """Flat places (context, action) of tokens drawn from q, shape (n, tokens)."""
    mass = (laws.weight[..., None] * laws.q).reshape(len(laws.q), -1)
    edges = np.cumsum(mass, axis=1) / mass.sum(axis=1, keepdims=True)
    uniform = rng.random((len(mass), tokens))
    return np.stack([np.searchsorted(e, u, side="right") for e, u in zip(edges, uniform, strict=True)])


def _row(kind: str, laws: Laws, drawn: NDArray[np.int64]) -> tuple[str, int, int, float, float, float]:
    statistic = bias_statistic(laws.log_ratio, ESTIMATORS[kind], advantage=laws.advantage)
    flat = statistic.reshape(len(statistic), -1)
    upper = sampled_limits(np.take_along_axis(flat, drawn, axis=1), bias_statistic_range(ESTIMATORS[kind]))
    truth = update_bias(laws, weights_of(kind, laws, laws.advantage), laws.advantage)
    units = {"advantage": laws.largest_advantage, "score_norm": laws.score_norm}
    certified = gradient_bias(np.maximum(upper, 0.0), **units)
    exact = gradient_bias(np.maximum(laws.mean(statistic), 0.0), **units)
    missed = float((truth > certified * (1.0 + 1e-9)).mean())
    safe = np.where(certified > 0.0, certified, 1.0)
    return (
        kind,
        len(truth),
        drawn.shape[1],
        missed,
        float(np.median(truth / safe)),
        float(np.median(exact / safe)),
    )


def sampled_limits(values: Floats, ends: tuple[float, float]) -> Floats:
    """Upper limit of the mean of each row of `values`, shape (n,)."""
    return np.array([MeanLimits(*ends).observe(row).upper(ALPHA) for row in values])
