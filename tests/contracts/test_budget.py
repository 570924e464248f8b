"""What a declared budget means for every level and clause below it."""

import pytest
from contract_cases import FOLDER, clause_contract

from paritas.contracts.bounds.forecast import forecast_gradient_bias
from paritas.contracts.budget import declared_levels, derived, forecasts
from paritas.contracts.load import load_contract
from paritas.contracts.model import Estimator


def test_every_declared_level_gives_what_is_below_it() -> None:
    rows = derived(load_contract(FOLDER / "derived.good.yaml"))
    values = {(row.level, row.quantity): row for row in rows}
    assert values["reward_drift", "sequence TV"].value == pytest.approx(0.01)
    assert values["reward_drift", "token TV, mean"].value == pytest.approx(0.01 / 1024)
    assert values["reward_drift", "logit oscillation"].equation == "F4"
    tv = values["gradient_bias", "token TV, mean"].value
    assert forecast_gradient_bias(tv, Estimator("clip", clip=0.2)) == pytest.approx(0.05)
    assert values["gradient_bias", "oscillation D"].equation == "F6"
    assert ("gradient_bias", "gradient bias") not in values  # what is declared is not derived


def test_a_forecast_compares_a_clause_with_every_level_it_speaks_of() -> None:
    found = {(f.clause, f.level): f for f in forecasts(load_contract(FOLDER / "full.good.yaml"))}
    assert set(found) == {("token-tv", "reward_drift"), ("seq-tv", "reward_drift")}
    assert found["seq-tv", "reward_drift"].forecast == 0.15
    assert found["token-tv", "reward_drift"].forecast == 1.0  # 4,096 tokens x 0.02, capped
    assert not any(f.is_sufficient for f in found.values())


def test_a_derived_clause_is_always_sufficient() -> None:
    for forecast in forecasts(load_contract(FOLDER / "derived.good.yaml")):
        own_level = {"grad": "gradient_bias"}.get(forecast.clause, "reward_drift")
        assert forecast.is_sufficient or forecast.level != own_level, forecast


def test_a_clause_about_another_estimator_says_nothing_about_the_budget() -> None:
    budget = "  budget: {gradient_bias: 0.1, estimator: {kind: tis, cap: 2}}\n"
    same = clause_contract("{id: a, statistic: gradient_bias, at_most: 0.1}", "statistical", budget)
    other = clause_contract("{id: a, statistic: gradient_bias, cap: 5, at_most: 0.1}", "statistical", budget)
    assert [f.is_sufficient for f in forecasts(same)] == [True]
    assert forecasts(other) == ()


def test_without_a_budget_there_is_nothing_to_say() -> None:
    loaded = load_contract(FOLDER / "minimal.good.yaml")
    assert derived(loaded) == ()
    assert forecasts(loaded) == ()


def test_levels_come_highest_first() -> None:
    budget = load_contract(FOLDER / "derived.good.yaml").budget
    assert budget is not None
    assert list(declared_levels(budget)) == ["reward_drift", "gradient_bias"]
