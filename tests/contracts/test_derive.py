"""Limits that a budget gives where the contract names none."""

import math

import pytest
from contract_cases import FOLDER, clause_contract
from hypothesis import given
from hypothesis import strategies as st

from paritas.contracts.derive import estimator_of, limits_from
from paritas.contracts.load import load_contract
from paritas.contracts.model import Budget, Estimator


def test_a_limit_is_derived_from_the_strictest_level() -> None:
    loaded = load_contract(FOLDER / "derived.good.yaml")
    token = loaded.clause("token-tv")
    assert token.at_most == pytest.approx(0.01 / 1024)  # drift over range, over the longest response
    assert (token.derived, token.source) == (True, "derived from budget.reward_drift")
    assert loaded.clause("seq").at_most == pytest.approx(0.01)
    assert loaded.clause("osc").at_most == pytest.approx(0.6 * 4 * 0.01 / math.sqrt(1024), rel=1e-3)


def test_the_declared_level_itself_is_not_derived() -> None:
    gradient = load_contract(FOLDER / "derived.good.yaml").clause("grad")
    assert (gradient.at_most, gradient.clip, gradient.derived, gradient.source) == (
        0.05,
        0.2,
        False,
        "budget.gradient_bias",
    )


def test_a_written_limit_stays() -> None:
    loaded = clause_contract("{id: a, statistic: tv, at_most: 0.5}", extra="  budget: {token_tv: 0.1}\n")
    assert (loaded.clauses[0].at_most, loaded.clauses[0].derived) == (0.5, False)


def test_a_reason_of_the_user_stays() -> None:
    loaded = clause_contract("{id: a, statistic: tv, source: ours}", extra="  budget: {token_tv: 0.1}\n")
    assert (loaded.clauses[0].at_most, loaded.clauses[0].source) == (0.1, "ours")


@given(st.floats(1e-4, 0.9), st.integers(1, 100_000), st.sampled_from(["tv", "kl_k3", "logit_oscillation"]))
def test_more_budget_or_a_shorter_horizon_never_derives_less(
    theta: float, horizon: int, statistic: str
) -> None:
    def limit(sequence_tv: float, max_tokens: int) -> float:
        return next(limits_from(statistic, Budget(sequence_tv=sequence_tv, max_tokens=max_tokens))).limit

    assert limit(theta, horizon) <= limit(min(1.1 * theta, 0.99), horizon) * (1 + 1e-12)
    assert limit(theta, horizon + 1) <= limit(theta, horizon)


@pytest.mark.parametrize(
    ("clause", "budget", "estimator"),
    [
        ("cap: 3", "{}", Estimator("tis", 3.0)),
        ("clip: 0.2", "{}", Estimator("clip", 2.0, clip=0.2)),
        ("clip: 0.1", "{estimator: {kind: clip, clip: 0.2}}", Estimator("clip", 2.0, clip=0.1)),
        ("cap: 4", "{estimator: {kind: mis, cap: 5, low: 0.5}}", Estimator("mis", 4.0, 0.5)),
        ("source: x", "{estimator: {kind: none}}", Estimator("none")),
        ("source: x", "{estimator: {kind: ppo_min, clip: 0.2}}", Estimator("ppo_min", 2.0, clip=0.2)),
    ],
)
def test_a_gradient_clause_is_about_one_estimator(clause: str, budget: str, estimator: Estimator) -> None:
    text = f"{{id: a, statistic: gradient_bias, at_most: 0.1, {clause}}}"
    loaded = clause_contract(text, "statistical", f"  budget: {budget}\n")
    assert estimator_of(loaded, loaded.clauses[0]) == estimator
