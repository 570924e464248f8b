"""The options of objective clauses: read, refused with a hint, written back, and compared."""

import json

import pytest
from contract_cases import clause_contract, contract

from paritas.contracts.budget import forecasts
from paritas.contracts.diff import Effect, compare_contracts
from paritas.contracts.dump import resolved
from paritas.contracts.load import load_text
from paritas.errors import ContractError

GROUP = "  compare: {unit: group}\n"
CLAUSES = {
    "ppo_clip_rate": "{id: a, statistic: ppo_clip_rate, clip: 0.2, clip_high: 0.28, at_most: 0.02}",
    "gspo_clip_rate": "{id: a, statistic: gspo_clip_rate, clip: 0.05, at_most: 0.02}",
    "dpo_margin_drift": "{id: a, statistic: dpo_margin_drift, beta: 0.1, at_most: 0.02}",
    "confidence_drift": "{id: a, statistic: confidence_drift, temperature: 1.5, smoothing: 0.1, at_most: 0.02}",
    "reward_loss": "{id: a, statistic: reward_loss, reward_range: [-1, 3], at_most: 0.02}",
}


def one(text, extra=GROUP):
    return clause_contract(text, "statistical", extra)


@pytest.mark.parametrize("name", CLAUSES)
def test_a_clause_survives_being_written_and_read(name):
    first = one(CLAUSES[name])
    again = load_text(json.dumps(resolved(first)), "again.json")
    assert again.clauses == first.clauses
    assert again.digest == first.digest


def test_options_are_read():
    (clause,) = one(CLAUSES["confidence_drift"]).clauses
    assert (clause.temperature, clause.smoothing) == (1.5, 0.1)
    (clause,) = one(CLAUSES["ppo_clip_rate"]).clauses
    assert (clause.clip, clause.clip_high) == (0.2, 0.28)
    (clause,) = one(CLAUSES["reward_loss"]).clauses
    assert clause.reward_range == (-1.0, 3.0)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "{id: a, statistic: dpo_margin_drift, at_most: 0.02}",
            "dpo_margin_drift needs 'beta'",
            "write beta: 0.1, the factor of your loss",
        ),
        (
            "{id: a, statistic: ppo_clip_rate, at_most: 0.02}",
            "ppo_clip_rate needs 'clip'",
            "write clip: 0.2, the clip range of your loss",
        ),
        (
            "{id: a, statistic: trust_region_kl, beta: 0.1, at_most: 0.02}",
            "trust_region_kl takes no 'beta'",
            "it takes: no options",
        ),
        (
            "{id: a, statistic: reward_loss, reward_range: [1, 0], at_most: 0.02}",
            "the lowest reward must be below the highest, got 1 and 0",
            "",
        ),
        (
            "{id: a, statistic: reward_gain}",
            "reward_gain needs 'at_most'",
            "write at_most: a limit in share of the reward range, or declare spec.budget to derive it",
        ),
        (
            "{id: a, statistic: trust_region_kl, at_most: 1.5}",
            "must be at most 1, got 1.5",
            "",
        ),
    ],
)
def test_what_is_wrong_is_said_with_a_hint(text, message, hint):
    with pytest.raises(ContractError) as caught:
        one(text)
    ((told, advice),) = caught.value.problems
    assert told.endswith(message)
    assert advice == hint


CHANGES = [
    ("ppo_clip_rate", "clip_high: 0.28", "clip_high: 0.4", "clip_high", Effect.LOOSENS),
    ("gspo_clip_rate", "clip: 0.05", "clip: 0.01", "clip", Effect.TIGHTENS),
    ("dpo_margin_drift", "beta: 0.1", "beta: 0.2", "beta", Effect.TIGHTENS),
    ("confidence_drift", "smoothing: 0.1", "smoothing: 0.2", "smoothing", Effect.LOOSENS),
    ("confidence_drift", "temperature: 1.5", "temperature: 2", "temperature", Effect.INCOMPARABLE),
    ("reward_loss", "[-1, 3]", "[0, 3]", "reward_range", Effect.INCOMPARABLE),
]


@pytest.mark.parametrize(("name", "old", "new", "option", "effect"), CHANGES)
def test_a_change_says_which_way_it_goes(name, old, new, option, effect):
    before, after = one(CLAUSES[name]), one(CLAUSES[name].replace(old, new))
    found = {change.path: change.effect for change in compare_contracts(before, after).changes}
    assert found[f"clauses.a.{option}"] is effect


def test_a_reward_clause_forecasts_the_drift_in_units_of_the_reward():
    text = "  budget: {reward_drift: 0.1, reward_range: [-1, 1], max_tokens: 8}\n"
    declared = contract(text + "  clauses:\n    statistical:\n      - {id: a, statistic: reward_loss}\n")
    (found,) = forecasts(declared)
    assert (found.level, found.forecast, found.is_sufficient) == ("reward_drift", 0.1, True)


def test_the_budget_may_declare_the_norm_of_the_score():
    text = "  budget: {gradient_bias: 0.05, estimator: {kind: tis}, score_norm: 50}\n"
    loaded = one("{id: a, statistic: gradient_bias}", text)
    assert loaded.budget.score_norm == 50
    assert load_text(json.dumps(resolved(loaded)), "again.json").budget == loaded.budget
