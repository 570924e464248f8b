"""What changed between two contracts, and whether that tightens or loosens."""

import pytest
from contract_cases import FOLDER, GOOD, clause_contract, contract
from hypothesis import given
from hypothesis import strategies as st

from paritas.contracts.diff import Difference, Effect, compare_contracts
from paritas.contracts.load import load_contract

BASE = "{id: a, statistic: tv, at_most: 0.02}"
LOOSENS, TIGHTENS, NEUTRAL, INCOMPARABLE = (
    Effect.LOOSENS,
    Effect.TIGHTENS,
    Effect.NEUTRAL,
    Effect.INCOMPARABLE,
)


def effects(difference: Difference) -> dict[str, Effect]:
    return {change.path: change.effect for change in difference.changes}


@pytest.mark.parametrize("path", GOOD, ids=lambda p: p.name.split(".")[0])
def test_a_contract_does_not_differ_from_itself(path) -> None:
    assert compare_contracts(load_contract(path), load_contract(path)).changes == ()


CLAUSES = [
    (
        "statistical",
        "{id: a, statistic: ratio_tail, above: 2, at_most: 0.01}",
        "{id: a, statistic: ratio_tail, above: 3, at_most: 0.01}",
        "above",
        LOOSENS,
    ),
    (
        "statistical",
        "{id: a, statistic: mean_ratio, cap: 2, at_most: 1.01}",
        "{id: a, statistic: mean_ratio, cap: 3, at_most: 1.01}",
        "cap",
        TIGHTENS,
    ),
    (
        "statistical",
        "{id: a, statistic: gradient_bias, cap: 2, at_most: 0.1}",
        "{id: a, statistic: gradient_bias, cap: 3, at_most: 0.1}",
        "cap",
        LOOSENS,
    ),
    (
        "statistical",
        "{id: a, statistic: phantom_clip_rate, clip: 0.2, at_most: 0.1}",
        "{id: a, statistic: phantom_clip_rate, clip: 0.1, at_most: 0.1}",
        "clip",
        TIGHTENS,
    ),
    (
        "observability",
        "{id: a, statistic: pairing_rate, at_least: 0.9}",
        "{id: a, statistic: pairing_rate, at_least: 0.8}",
        "at_least",
        LOOSENS,
    ),
    (
        "observability",
        "{id: a, statistic: pairing_rate, at_least: 0.9, within: 5s}",
        "{id: a, statistic: pairing_rate, at_least: 0.9, within: 9s}",
        "within_s",
        LOOSENS,
    ),
    (
        "runtime",
        "{id: a, statistic: time_to_first_token, quantile: 0.9, at_most: 1s}",
        "{id: a, statistic: time_to_first_token, quantile: 0.99, at_most: 1s}",
        "quantile",
        TIGHTENS,
    ),
    (
        "runtime",
        "{id: a, statistic: time_to_first_token, quantile: 0.9, at_most: 1s}",
        "{id: a, statistic: time_to_first_token, quantile: 0.9, at_most: 1s, window: 1000 steps}",
        "window",
        INCOMPARABLE,
    ),
    (
        "runtime",
        "{id: a, statistic: time_to_first_token_shape, at_most: 0.1}",
        "{id: a, statistic: time_to_first_token_shape, at_most: 0.1, baseline: 50}",
        "baseline",
        INCOMPARABLE,
    ),
    (
        "observability",
        "{id: a, statistic: agent_silence, at_most: 1m}",
        "{id: a, statistic: agent_silence, at_most: 1m, agents: [pod-1]}",
        "agents",
        TIGHTENS,
    ),
    ("numerical", BASE, "{id: a, statistic: tv, at_most: 0.03}", "at_most", LOOSENS),
    ("numerical", BASE, "{id: a, statistic: tv_topk, at_most: 0.02}", "statistic", INCOMPARABLE),
    (
        "numerical",
        BASE,
        "{id: a, statistic: tv, at_most: {floor: aa, times: 2, ceiling: 0.02}}",
        "floor",
        TIGHTENS,
    ),
    (
        "numerical",
        "{id: a, statistic: tv, at_most: {floor: aa, times: 2, ceiling: 0.02}}",
        "{id: a, statistic: tv, at_most: {floor: aa, times: 3, ceiling: 0.02}}",
        "floor.times",
        LOOSENS,
    ),
    (
        "numerical",
        "{id: a, statistic: tv, at_most: {floor: aa, times: 2, ceiling: 0.02}}",
        "{id: a, statistic: tv, at_most: {floor: bb, times: 2, ceiling: 0.02}}",
        "floor",
        INCOMPARABLE,
    ),
    ("numerical", BASE, "{id: a, statistic: tv, at_most: 0.02, derived: true}", "derived", LOOSENS),
    (
        "numerical",
        BASE,
        "{id: a, statistic: tv, at_most: 0.02, stages: [full, canary, shadow]}",
        "stages",
        LOOSENS,
    ),
    ("numerical", BASE, "{id: a, statistic: tv, at_most: 0.02, source: why}", "source", NEUTRAL),
]


@pytest.mark.parametrize(("family", "old", "new", "field", "effect"), CLAUSES)
def test_a_change_of_a_clause_goes_one_way_and_back(
    family: str, old: str, new: str, field: str, effect: Effect
) -> None:
    before, after = clause_contract(old, family), clause_contract(new, family)
    assert effects(compare_contracts(before, after)) == {f"clauses.a.{field}": effect}
    back = effects(compare_contracts(after, before))[f"clauses.a.{field}"]
    assert back == {LOOSENS: TIGHTENS, TIGHTENS: LOOSENS}.get(effect, effect)


SECTIONS = [
    (
        "compare: {weights: equal}",
        "compare: {weights: {within: {versions: 1}}}",
        "compare.weights.within",
        LOOSENS,
    ),
    ("compare: {pair_within: 1m}", "compare: {pair_within: 2m}", "compare.pair_within_s", LOOSENS),
    (
        "compare: {sampling: {at_least: 0.1}}",
        "compare: {sampling: {at_least: 0.2}}",
        "compare.sampling.at_least",
        INCOMPARABLE,
    ),
    ("compare: {unit: group}", "compare: {unit: sequence}", "compare.unit", INCOMPARABLE),
    (
        "false_alarms: {at_most: 1, per: 1d}",
        "false_alarms: {at_most: 1, per: 2d}",
        "false_alarms.per_day",
        LOOSENS,
    ),
    ("kernels: {train: {tp: 2}}", "kernels: {train: {}}", "kernels.train.tp", LOOSENS),
    ("kernels: {train: {tp: 2}}", "kernels: {train: {tp: 4}}", "kernels.train.tp", INCOMPARABLE),
    ("policy: a", "policy: b", "policy", INCOMPARABLE),
    ("on_controller_loss: hold", "on_controller_loss: fallback", "on_controller_loss", INCOMPARABLE),
    ("budget: {token_tv: 0.1}", "budget: {token_tv: 0.2}", "budget.token_tv", LOOSENS),
    ("budget: {token_tv: 0.1}", "budget: {}", "budget.token_tv", LOOSENS),
    ("budget: {max_tokens: 9}", "budget: {max_tokens: 8}", "budget.max_tokens", LOOSENS),
    ("budget: {reward_range: [0, 1]}", "budget: {reward_range: [0, 2]}", "budget.reward_range", TIGHTENS),
    ("budget: {temperature: 1}", "budget: {temperature: 2}", "budget.temperature", INCOMPARABLE),
    (
        "budget: {estimator: {kind: tis, cap: 2}}",
        "budget: {estimator: {kind: tis, cap: 3}}",
        "budget.estimator.cap",
        LOOSENS,
    ),
    (
        "budget: {estimator: {kind: tis}}",
        "budget: {estimator: {kind: none}}",
        "budget.estimator",
        INCOMPARABLE,
    ),
    (
        "slices: [{name: all}, {name: r, by: [x], at_most: 4}]",
        "slices: [{name: all}, {name: r, by: [x], at_most: 3}]",
        "slices.r.at_most",
        LOOSENS,
    ),
    (
        "slices: [{name: all}, {name: r, by: [x]}]",
        "slices: [{name: all}, {name: r, by: [y]}]",
        "slices.r.by",
        INCOMPARABLE,
    ),
    (
        "promotion: {shadow: {alpha: 0.01}}",
        "promotion: {shadow: {alpha: 0.05}}",
        "promotion.shadow.alpha",
        LOOSENS,
    ),
    ("promotion: {shadow: {share: 0.1}}", "promotion: {}", "promotion.shadow", LOOSENS),
    (
        "promotion: {canary: {bake: 5m}}",
        "promotion: {canary: {bake: 9m}}",
        "promotion.canary.bake_s",
        TIGHTENS,
    ),
    (
        "promotion: {shadow: {deadline: 1h}}",
        "promotion: {shadow: {deadline: 2h}}",
        "promotion.shadow.deadline_s",
        NEUTRAL,
    ),
    (
        "promotion: {full: {demote_on: [violated, no_data]}}",
        "promotion: {full: {demote_on: violated}}",
        "promotion.full.demote_on",
        LOOSENS,
    ),
    (
        "tests: []",
        "tests: [{name: t, given: {trace: x}, expect: [{clause: a, slice: all, state: violated}]}]",
        "tests.t",
        NEUTRAL,
    ),
]


@pytest.mark.parametrize(("old", "new", "path", "effect"), SECTIONS)
def test_a_change_of_a_section_has_its_effect(old: str, new: str, path: str, effect: Effect) -> None:
    before, after = (clause_contract(BASE, extra=f"  {text}\n") for text in (old, new))
    assert effects(compare_contracts(before, after)) == {path: effect}


RULE = "  escalation: [{{when: {{state: violated}}, for: {wait}, levels: [{levels}]}}]\n"


@pytest.mark.parametrize(
    ("wait", "levels", "field", "effect"),
    [
        ("9s", "{severity: info, actions: [{notify: {}}]}", "for_s", LOOSENS),
        ("5s", "{severity: info}", "actions", LOOSENS),
        ("5s", "{severity: info, actions: [{notify: {}}, {page: {}}]}", "actions", TIGHTENS),
        ("5s", "{severity: info, after: 1s, actions: [{notify: {}}]}", "levels", INCOMPARABLE),
    ],
)
def test_a_change_of_a_rule_is_told_by_what_it_answers(
    wait: str, levels: str, field: str, effect: Effect
) -> None:
    old = clause_contract(
        BASE, extra=RULE.format(wait="5s", levels="{severity: info, actions: [{notify: {}}]}")
    )
    new = clause_contract(BASE, extra=RULE.format(wait=wait, levels=levels))
    assert effects(compare_contracts(old, new)) == {f"escalation[state=violated].{field}": effect}


def test_a_clause_or_rule_gained_tightens_and_one_lost_loosens() -> None:
    two = contract(
        "  clauses:\n    numerical: [{id: a, statistic: tv, at_most: 0.02}, {id: b, statistic: tv_topk, at_most: 0.02}]\n"
    )
    one = clause_contract(BASE)
    assert [str(c) for c in compare_contracts(one, two).changes] == [
        "tightens  clauses.b: absent -> tv_topk at_most 0.02"
    ]
    assert effects(compare_contracts(two, one)) == {"clauses.b": LOOSENS}


def test_a_slice_gained_is_a_clause_that_binds_in_more_places() -> None:
    before = clause_contract(BASE, extra="  slices: [{name: all}]\n")
    after = clause_contract(BASE, extra="  slices: [{name: all}, {name: r, by: [x]}]\n")
    assert effects(compare_contracts(before, after)) == {"slices.r": NEUTRAL, "clauses.a.slices": TIGHTENS}
    assert effects(compare_contracts(after, before))["clauses.a.slices"] is LOOSENS


@given(st.floats(0.001, 0.9), st.floats(0.001, 0.9))
def test_a_limit_orders_contracts(first: float, second: float) -> None:
    before, after = (clause_contract(f"{{id: a, statistic: tv, at_most: {x!r}}}") for x in (first, second))
    assert compare_contracts(before, after).may_loosen == (second > first)


@pytest.mark.parametrize(
    ("version", "fault"),
    [
        ("1.2.4", "may loosen: the version must be at least 1.3.0, not 1.2.4"),
        ("1.2.3", "changed, but the version went from 1.2.3 to 1.2.3"),
        ("1.3.0", ""),
        ("2.0.0", ""),
        ("0.9.0", "changed, but the version went from 1.2.3 to 0.9.0"),
    ],
)
def test_a_loosening_needs_a_minor_version(version: str, fault: str) -> None:
    after = clause_contract("{id: a, statistic: tv, at_most: 0.03}", version=version)
    assert compare_contracts(clause_contract(BASE, version="1.2.3"), after).version_fault == fault


def test_a_tightening_needs_a_patch_version_only() -> None:
    after = clause_contract("{id: a, statistic: tv, at_most: 0.01}", version="1.2.4")
    assert compare_contracts(clause_contract(BASE, version="1.2.3"), after).version_fault == ""


def test_what_cannot_be_ordered_may_loosen() -> None:
    before, after = (clause_contract(BASE, extra=f"  policy: {name}\n") for name in "ab")
    assert compare_contracts(before, after).may_loosen


def test_the_example_against_its_preset_reads_well() -> None:
    lines = [
        str(c)
        for c in compare_contracts(
            load_contract(FOLDER / "preset.good.yaml"), load_contract(FOLDER / "full.good.yaml")
        ).changes
    ]
    assert "tightens  clauses.token-tv.at_most: 0.04 -> 0.02" in lines
    assert "tightens  slices.replica.at_most: 16 -> 64" in lines
    assert "tightens  kernels.train.engine: absent -> fsdp" in lines
