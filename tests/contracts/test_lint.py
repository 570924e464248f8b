"""Every warning is given with its place and a way out, and only with cause."""

import pytest
from contract_cases import HEAD, clause_contract, contract

from paritas.contracts.lint import Lint, lint
from paritas.contracts.load import load_text

TOLD = "  escalation: [{when: {}, levels: [{severity: info}]}]\n"
TV = "{id: a, statistic: tv, at_most: 0.02}"


def codes(clause: str = TV, family: str = "numerical", extra: str = "") -> list[Lint]:
    return [w.code for w in lint(clause_contract(clause, family, TOLD + extra))]


def test_a_sensible_contract_has_no_warnings() -> None:
    assert codes() == []


GATE = "  promotion: {shadow: {share: 0.1}, full: {demote_on: violated}}\n"


@pytest.mark.parametrize(
    ("code", "clause", "family", "extra"),
    [
        (Lint.NEVER_PASSES, "{id: a, statistic: kl_k3, at_most: 0.01}", "statistical", GATE),
        (Lint.BUDGET_INSUFFICIENT, TV, "numerical", "  budget: {sequence_tv: 0.1, max_tokens: 100}\n"),
        (
            Lint.BUDGET_UNWATCHED,
            "{id: a, statistic: missing_rate, at_most: 0.1}",
            "observability",
            "  budget: {token_tv: 0.1}\n",
        ),
        (
            Lint.BUDGET_VACUOUS,
            "{id: a, statistic: sequence_tv, at_most: 0.2}",
            "statistical",
            "  budget: {reward_drift: 3, reward_range: [-1, 1], max_tokens: 9}\n",
        ),
        (
            Lint.NO_HORIZON,
            "{id: a, statistic: sequence_tv, at_most: 0.1}",
            "statistical",
            "  budget: {sequence_tv: 0.1}\n",
        ),
        (Lint.VACUOUS, "{id: a, statistic: tv, at_most: 1}", "numerical", ""),
        (Lint.SAMPLED_RARELY, TV, "numerical", "  compare: {sampling: {at_least: 0.001}}\n"),
        (Lint.SAMPLED_GROUPS, TV, "numerical", "  compare: {unit: group, sampling: {at_least: 0.5}}\n"),
        (
            Lint.WINDOW_SHORT,
            "{id: a, statistic: time_to_first_token, quantile: 0.9, at_most: 1s, window: 10ms}",
            "runtime",
            "",
        ),
        (
            Lint.WINDOW_SHORT,
            "{id: a, statistic: inter_token_latency, quantile: 0.9, at_most: 1s, window: 1 step}",
            "runtime",
            "",
        ),
        (Lint.VACUOUS, "{id: a, statistic: pairing_rate, at_least: 0}", "observability", ""),
        (Lint.VACUOUS, "{id: a, statistic: mean_ratio, cap: 2, at_most: 2}", "statistical", ""),
        (Lint.VACUOUS, "{id: a, statistic: gradient_bias, cap: 2, at_most: 1}", "statistical", ""),
        (
            Lint.BELOW_ROUNDING,
            "{id: a, statistic: tv, at_most: 0.001}",
            "numerical",
            "  kernels: {inference: {dtype: bfloat16}}\n",
        ),
        (
            Lint.BELOW_ROUNDING,
            "{id: a, statistic: ratio_tail, above: 1.02, at_most: 0.001}",
            "statistical",
            "  kernels: {inference: {dtype: bfloat16}}\n",
        ),
        (
            Lint.BELOW_ROUNDING,
            "{id: a, statistic: sequence_tv, at_most: 0.01}",
            "statistical",
            "  kernels: {inference: {quantization: fp8}}\n  budget: {mean_tokens: 400}\n",
        ),
        (
            Lint.SLICE_UNUSED,
            "{id: a, statistic: tv, at_most: 0.02, slices: [all]}",
            "numerical",
            "  slices: [{name: all}, {name: r, by: [replica]}]\n",
        ),
        (Lint.TOO_MANY_PAIRS, TV, "numerical", "  slices: [{name: r, by: [replica], at_most: 5000}]\n"),
        (
            Lint.RULE_IDLE,
            TV,
            "numerical",
            "  escalation: [{when: {}, levels: [{severity: info}]}, {when: {family: runtime}, levels: [{severity: info}]}]\n",
        ),
        (
            Lint.NO_REFERENCE,
            TV,
            "numerical",
            "  kernels: {train: {tp: 2}}\n  escalation: [{when: {}, levels: [{severity: info, actions: [{reroute: {to: reference}}]}]}]\n",
        ),
        (Lint.NO_IDENTITY, "{id: a, statistic: kernel_identity}", "runtime", ""),
        (
            Lint.NOBODY_TOLD,
            TV,
            "numerical",
            "  escalation: [{when: {family: runtime}, levels: [{severity: info}]}]\n",
        ),
        (
            Lint.NOBODY_TOLD,
            TV,
            "numerical",
            "  escalation: [{when: {state: no_data}, levels: [{severity: info}]}]\n",
        ),
    ],
)
def test_each_warning_is_given_where_it_belongs(code: Lint, clause: str, family: str, extra: str) -> None:
    told = "" if "escalation" in extra else TOLD
    found = {w.code for w in lint(clause_contract(clause, family, told + extra))}
    assert found - {Lint.RULE_IDLE} == {code} - {Lint.RULE_IDLE}
    assert code in found


@pytest.mark.parametrize(
    ("clause", "family", "extra"),
    [
        ("{id: a, statistic: kl_k3, at_most: 0.01, stages: [full]}", "statistical", GATE),
        ("{id: a, statistic: tv}", "numerical", "  budget: {sequence_tv: 0.1, max_tokens: 100}\n"),
        (
            "{id: a, statistic: tv, at_most: 0.001}",
            "numerical",
            "  kernels: {train: {dtype: bfloat16, batch_invariant: true}, inference: {dtype: bfloat16, batch_invariant: true}}\n",
        ),
        ("{id: a, statistic: tv, at_most: 0.001}", "numerical", "  kernels: {inference: {dtype: posit}}\n"),
        ("{id: a, statistic: mean_ratio, cap: 2, at_most: 1.9}", "statistical", ""),
    ],
)
def test_a_warning_is_not_given_without_cause(clause: str, family: str, extra: str) -> None:
    assert codes(clause, family, extra) == []


def test_a_warning_has_a_place_the_numbers_and_a_way_out() -> None:
    loaded = clause_contract(
        "{id: a, statistic: tv, at_most: 0.02}",
        extra=TOLD + "  budget: {sequence_tv: 0.1, max_tokens: 100}\n",
    )
    (warning,) = lint(loaded)
    assert str(warning) == (
        "a.yaml:6:11: [budget-insufficient] no clause alone keeps sequence_tv 0.1: a at 0.02 allows 1\n"
        "  hint: tighten one, or leave its limit out to derive it; all of them still bind"
    )


def test_one_sufficient_clause_is_enough_for_a_level() -> None:
    text = (
        HEAD
        + "spec:\n"
        + TOLD
        + (
            "  budget: {sequence_tv: 0.1, max_tokens: 100}\n"
            "  clauses:\n"
            "    numerical: [{id: a, statistic: tv, at_most: 0.02}]\n"
            "    statistical: [{id: b, statistic: sequence_tv, at_most: 0.1}]\n"
        )
    )
    assert lint(load_text(text, "a.yaml")) == ()


def test_no_escalation_at_all_is_one_warning() -> None:
    quiet = contract("  preset: fp32\n  escalation: []\n")
    assert [w.code for w in lint(quiet)] == [Lint.NOBODY_TOLD]
