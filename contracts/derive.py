"""Limits a contract leaves out are derived from its budget (docs/mathematics.md F): declare high, derive low."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from paritas.contracts.bounds.budget import (
    LogitBudgets,
    derive_from_gradient_bias,
    derive_from_reward_drift,
    derive_from_sequence_tv,
    derive_from_token_tv,
)
from paritas.contracts.catalogue import CATALOGUE, Test
from paritas.contracts.model import Budget, Clause, Contract, Estimator, Place
from paritas.contracts.problems import Problems

__all__ = ["Source", "derive_limits", "estimator_of", "limits_from"]

HORIZON_HINT = "write max_tokens: the longest response"


@dataclass(frozen=True, slots=True)
class Source:
    """A limit the budget gives: the declared level it comes from, and whether it is that level itself."""

    limit: float
    level: str
    is_declared: bool


def estimator_of(contract: Contract, clause: Clause) -> Estimator:
    """Return the policy-gradient estimator a `gradient_bias` clause is about.

    The budget's kind with the clause's cap and clip; without one, ``clip`` if the clause names a
    clip range only, else ``tis``.
    """
    declared = contract.budget.estimator if contract.budget is not None else None
    kind = "clip" if clause.cap is None and clause.clip is not None else "tis"
    base = declared or Estimator(kind)
    return replace(base, cap=clause.cap or base.cap, clip=clause.clip or base.clip)


def derive_limits(contract: Contract, problems: Problems) -> Contract:
    """Fill in the limits of clauses that have none; what cannot be derived goes to `problems`."""
    clauses = tuple(_completed(contract, clause, problems) for clause in contract.clauses)
    return replace(contract, clauses=clauses)


def _completed(contract: Contract, clause: Clause, problems: Problems) -> Clause:
    is_state = CATALOGUE[clause.statistic].test is Test.STATE
    if is_state or clause.at_most is not None or clause.at_least is not None:
        return clause
    source = _strictest(contract, clause, problems)
    if source is None:
        return clause
    text = clause.source or ("" if source.is_declared else "derived from ") + f"budget.{source.level}"
    return replace(clause, at_most=source.limit, derived=not source.is_declared, source=text)


def _strictest(contract: Contract, clause: Clause, problems: Problems) -> Source | None:
    budget, place = contract.budget or Budget(), clause.place or Place(contract.file, 1, 1)
    path = f"clause {clause.id}"
    if budget.max_tokens is None and _needs_horizon(clause.statistic, budget):
        message = f"deriving {clause.statistic} needs budget.max_tokens"
        problems.add(budget.place or place, path, message, HORIZON_HINT)
        return None
    sources = sorted(limits_from(clause.statistic, budget), key=lambda s: s.limit)
    if not sources:
        hint = "write at_most, or declare reward_drift, sequence_tv, gradient_bias or token_tv in the budget"
        problems.add(place, path, f"nothing in the budget limits {clause.statistic}", hint)
        return None
    if sources[0].limit >= CATALOGUE[clause.statistic].hi or math.isinf(sources[0].limit):
        message = f"budget.{sources[0].level} is so wide that it asks nothing of {clause.statistic}"
        problems.add(place, path, message, "write at_most, or a smaller budget")
        return None
    return sources[0]


def _needs_horizon(statistic: str, budget: Budget) -> bool:
    is_declared_above = budget.reward_drift is not None or budget.sequence_tv is not None
    return is_declared_above and statistic not in {
        *("sequence_tv", "gradient_bias", "reward_gain", "reward_loss")
    }


def limits_from(statistic: str, budget: Budget) -> Iterator[Source]:
    """Yield every limit on `statistic` that the declared levels give; each alone suffices.

    A `tv` clause averages the mean of each sequence, so the horizon divides, not the mean length:
    long sequences could hide their drift in the shorter ones' average (F2').
    """
    if statistic == "sequence_tv":
        yield from _sequence_limits(budget)
    elif statistic in {"reward_gain", "reward_loss"}:
        yield from _reward_limits(budget)
    elif statistic == "gradient_bias" and budget.gradient_bias is not None:
        yield Source(budget.gradient_bias, "gradient_bias", is_declared=True)
    elif statistic in {"tv", "tv_topk", "kl_k3", "logit_oscillation"}:
        yield from _token_limits(statistic, budget)


def _sequence_limits(budget: Budget) -> Iterator[Source]:
    if budget.sequence_tv is not None:
        yield Source(budget.sequence_tv, "sequence_tv", is_declared=True)
    if budget.reward_drift is not None and budget.reward_range is not None:
        low, high = budget.reward_range
        yield Source(min(budget.reward_drift / (high - low), 1.0), "reward_drift", is_declared=False)


def _reward_limits(budget: Budget) -> Iterator[Source]:
    """The declared drift itself, as a share of the declared range (C6)."""
    if budget.reward_drift is not None and budget.reward_range is not None:
        low, high = budget.reward_range
        yield Source(min(budget.reward_drift / (high - low), 1.0), "reward_drift", is_declared=True)


def _token_limits(statistic: str, budget: Budget) -> Iterator[Source]:
    if budget.token_tv is not None and statistic in {"tv", "tv_topk"}:
        yield Source(budget.token_tv, "token_tv", is_declared=True)
    field = {"kl_k3": "kl_token", "logit_oscillation": "logit_oscillation"}.get(statistic, "token_tv_mean")
    for level, budgets in derived_budgets(budget):
        if hasattr(budgets, field):
            yield Source(float(getattr(budgets, field)), level, is_declared=False)


def derived_budgets(budget: Budget) -> Iterator[tuple[str, LogitBudgets]]:
    """Yield what each declared level gives below it; levels that lack the horizon give nothing."""
    tau, horizon = budget.temperature, budget.max_tokens
    if budget.reward_drift is not None and budget.reward_range is not None and horizon is not None:
        yield (
            "reward_drift",
            derive_from_reward_drift(
                budget.reward_drift, reward_range=budget.reward_range, horizon=horizon, temperature=tau
            ),
        )
    if budget.sequence_tv is not None and horizon is not None:
        yield "sequence_tv", derive_from_sequence_tv(budget.sequence_tv, horizon=horizon, temperature=tau)
    if budget.gradient_bias is not None and budget.estimator is not None:
        yield (
            "gradient_bias",
            derive_from_gradient_bias(budget.gradient_bias, budget.estimator, temperature=tau),
        )
    if budget.token_tv is not None:
        yield "token_tv", derive_from_token_tv(budget.token_tv, temperature=tau)
