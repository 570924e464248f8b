"""`spec.refit` in a contract: read, written, compared, and refused where no clause can judge."""

import pytest

from paritas.contracts.diff import compare_contracts
from paritas.contracts.dump import canonical_json
from paritas.contracts.load import load_text
from paritas.contracts.model import Refit
from paritas.errors import ContractError

HEAD = """apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: mine, version: 1.0.0}
spec:
"""
TV = "  clauses: {numerical: [{id: token-tv, statistic: tv, at_most: 0.02}]}\n"


def contract(spec: str, clauses: str = TV):
    return load_text(HEAD + spec + clauses, "mine.yaml")


def test_tokens_and_alpha_are_read_and_alpha_has_a_default():
    assert contract("  refit: {tokens: 20000}\n").refit == Refit(20_000, 0.01)
    assert contract("  refit: {tokens: 20000, alpha: 0.05}\n").refit == Refit(20_000, 0.05)
    assert contract("").refit is None


def test_the_resolved_document_loads_to_the_same_contract():
    gated = contract("  refit: {tokens: 20000}\n")
    again = load_text(canonical_json(gated), "again.json")
    assert again.refit == gated.refit
    assert again.digest == gated.digest != contract("").digest


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("", "  refit: {tokens: 9}\n", ["tightens  refit: absent -> gated"]),
        ("  refit: {tokens: 9}\n", "", ["loosens  refit: gated -> absent"]),
        ("  refit: {tokens: 9}\n", "  refit: {tokens: 8}\n", ["incomparable  refit.tokens: 9 -> 8"]),
        (
            "  refit: {tokens: 9, alpha: 0.1}\n",
            "  refit: {tokens: 9}\n",
            ["loosens  refit.alpha: 0.1 -> 0.01"],
        ),
    ],
)
def test_diff_says_what_a_change_does(old, new, told):
    changes = compare_contracts(contract(old), contract(new)).changes
    assert [" ".join(str(c).split()) for c in changes] == [" ".join(t.split()) for t in told]


@pytest.mark.parametrize(
    "clauses",
    [
        "  clauses: {numerical: [{id: flips, statistic: argmax_flip_rate, at_most: 0.5}]}\n",
        "  clauses: {numerical: [{id: token-tv, statistic: tv, at_most: 0.02, stages: [shadow]}]}\n",
        "  clauses: {numerical: [{id: token-tv, statistic: tv, at_most: 0}]}\n",
        "  budget: {sequence_tv: 0.1, max_tokens: 64}\n  clauses: {numerical: [{id: token-tv, statistic: tv}]}\n",
    ],
)
def test_a_gate_that_nothing_can_judge_by_is_refused(clauses):
    with pytest.raises(ContractError) as caught:
        contract("  refit: {tokens: 9}\n", clauses)
    assert caught.value.render() == (
        "[contract] mine.yaml:5:10: spec.refit: the refit gate needs a tv or mean_ratio clause with a limit of its own\n"
        "  hint: declare one that binds every stage, in a slice without match"
    )


def test_a_declared_budget_is_a_limit_of_its_own():
    budget = "  budget: {token_tv: 0.1}\n  clauses: {numerical: [{id: token-tv, statistic: tv}]}\n"
    assert contract("  refit: {tokens: 9}\n", budget).refit == Refit(9)
