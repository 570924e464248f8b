"""The budget compiler: what the declared tolerances give below them, and what the clauses give above.

Downward every derived limit is sufficient, never necessary.  Upward a forecast says how far the
declared level could drift while the clause still holds; above the declared level the clause alone
is not sufficient (docs/mathematics.md F).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from paritas.contracts.bounds.forecast import (
    forecast_gradient_bias,
    forecast_reward,
    forecast_sequence_tv,
    forecast_sequence_tv_from_kl,
)
from paritas.contracts.derive import derived_budgets, estimator_of
from paritas.contracts.model import Budget, Clause, Contract

__all__ = ["LEVELS", "Derived", "Forecast", "declared_levels", "derived", "forecasts"]

LEVELS = ("reward_drift", "sequence_tv", "gradient_bias", "token_tv")

LOGIT_EQUATIONS = {"token_tv": "F3", "gradient_bias": "F6"}  # F4 for the levels of the sequence

# Field of the budget records → (what a table calls it, unit, equation)
_QUANTITIES = {
    "sequence_tv": ("sequence TV", "probability", "F1"),
    "sequence_kl": ("sequence KL", "nats per response", "F5"),
    "gradient_bias": ("gradient bias", "units of A_max G", "D3"),
    "ratio_mean_floor": ("mean truncated ratio, at least", "ratio", "F6"),
    "token_tv_sup": ("token TV, every prefix", "probability", "F2"),
    "token_tv_mean": ("token TV, mean", "probability", "F2'"),
    "kl_token": ("token KL, mean", "nats", "F5"),
    "oscillation": ("oscillation D", "dimensionless", "F4"),
    "logit_oscillation": ("logit oscillation", "logits", "F4"),
    "logit_sup": ("logit drift, sup norm", "logits", "F4"),
    "logit_l2": ("logit drift, L2 norm", "logits", "F4"),
}


@dataclass(frozen=True, slots=True)
class Derived:
    """One quantity that a declared level gives; infinity means no constraint."""

    level: str
    quantity: str
    value: float
    unit: str
    equation: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a clause alone guarantees at a declared level.

    Attributes
    ----------
    clause, limit
        The clause and its limit in the statistic's unit.
    level, declared
        The budget's level and what it declares.
    forecast
        Largest drift at that level while the clause holds, in the level's unit.
    """

    clause: str
    limit: float
    level: str
    declared: float
    forecast: float

    @property
    def is_sufficient(self) -> bool:
        """Whether the clause alone keeps the level (to rounding)."""
        return self.forecast <= self.declared * (1 + 1e-9)


def declared_levels(budget: Budget) -> dict[str, float]:
    """Return the levels the budget declares, highest first."""
    values = {level: getattr(budget, level) for level in LEVELS}
    return {level: value for level, value in values.items() if value is not None}


def derived(contract: Contract) -> tuple[Derived, ...]:
    """Return everything the declared levels give below them.

    Examples
    --------
    >>> from paritas.contracts.load import load_preset
    >>> derived(load_preset("dense-bf16"))
    ()
    """
    if contract.budget is None:
        return ()
    return tuple(_rows(contract.budget))


def _rows(budget: Budget) -> Iterator[Derived]:
    for level, budgets in derived_budgets(budget):
        for field, (quantity, unit, equation) in _QUANTITIES.items():
            value = getattr(budgets, field, None)
            if value is not None and field != level:
                number = LOGIT_EQUATIONS.get(level, equation) if equation == "F4" else equation
                yield Derived(level, quantity, float(value), unit, number)


def forecasts(contract: Contract) -> tuple[Forecast, ...]:
    """Return what each clause guarantees at each declared level it says anything about."""
    if contract.budget is None:
        return ()
    declared = declared_levels(contract.budget)
    found = (
        (clause, _forecast(contract, clause)) for clause in contract.clauses if clause.at_most is not None
    )
    return tuple(
        Forecast(clause.id, clause.at_most or 0.0, level, declared[level], values[level])
        for clause, values in found
        for level in declared
        if level in values
    )


def _forecast(contract: Contract, clause: Clause) -> dict[str, float]:
    """Return what one clause says about each level; a quantile clause binds no mean and says nothing."""
    budget, limit = contract.budget or Budget(), clause.at_most or 0.0
    match clause.statistic:
        case "tv" | "tv_topk":
            values = _from_tv(budget, limit)
        case "sequence_tv":
            values = {"sequence_tv": limit}
        case "reward_loss" | "reward_gain":  # each bounds one direction, in shares of the range
            low, high = budget.reward_range or (0.0, 1.0)
            return {"reward_drift": limit * (high - low)}
        case "gradient_bias":
            is_same = estimator_of(contract, clause) == budget.estimator
            values = {"gradient_bias": limit} if is_same else {}
        case "kl_k3":
            horizon = budget.max_tokens
            values = {} if horizon is None else {"sequence_tv": forecast_sequence_tv_from_kl(limit, horizon)}
        case _:
            values = {}
    return _with_reward(budget, values)


def _from_tv(budget: Budget, limit: float) -> dict[str, float]:
    values = {"token_tv": limit}
    if budget.max_tokens is not None:
        values["sequence_tv"] = forecast_sequence_tv(limit, budget.max_tokens)
    if budget.estimator is not None:
        values["gradient_bias"] = forecast_gradient_bias(limit, budget.estimator)
    return values


def _with_reward(budget: Budget, values: dict[str, float]) -> dict[str, float]:
    if "sequence_tv" not in values or budget.reward_range is None:
        return values
    return {**values, "reward_drift": forecast_reward(values["sequence_tv"], budget.reward_range)}
