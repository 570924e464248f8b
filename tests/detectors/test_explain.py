"""Explanation: from violated verdicts to causes, plain slices first, and which sibling stands out."""

from dataclasses import replace
from functools import cache

import pytest
from cause_scenes import case, drawn
from pair_factory import BY_REPLICA, EVERYTHING, clause, contract, evaluated, lost, paired

from paritas.contracts.model import Family
from paritas.detectors.diagnosis import Cause
from paritas.detectors.explain import explain, explain_slice
from paritas.detectors.verdicts import verdicts
from paritas.records import KernelIdentity, Role, State

RATIO = clause("mean_ratio", 1.002, Family.STATISTICAL)
TAIL = clause("ratio_tail", 2e-4, Family.STATISTICAL, above=2.0)
FINITE = clause("nonfinite_rate", 0.0, Family.OBSERVABILITY)
WHOLE = contract(RATIO, TAIL, FINITE, slices=(EVERYTHING, BY_REPLICA))


FAULTS = {"healthy": ("healthy", 0.0), "stale": ("learned", 0.8), "broken": ("nonfinite", 0.05)}


@cache
def sequences(kind, seed=1):
    """Sixty-four sequences of a healthy or a stale kernel, or one with broken values."""
    return tuple(o.pair for o in drawn(case(*FAULTS[kind], seed=seed)))


def fleet(**kinds):
    """Return outcomes of replicas that take turns, each with its own kernel."""
    rows = [
        [paired(replace(one, attributes={"replica": name})) for one in sequences(kind, i)]
        for i, (name, kind) in enumerate(kinds.items())
    ]
    return [outcome for turn in zip(*rows, strict=True) for outcome in turn]


def explained(whole, outcomes):
    evaluator = evaluated(whole, outcomes)
    return explain(evaluator, verdicts(evaluator))


def places(findings):
    return [(f.cause, f.slice) for f in findings]


def test_what_is_not_violated_is_not_explained():
    assert explained(WHOLE, fleet(a="healthy", b="healthy")) == ()
    assert explained(WHOLE, []) == ()


def test_the_plain_slice_comes_first_and_the_one_replica_stands_out():
    found = explained(WHOLE, fleet(a="healthy", b="stale", c="healthy", d="healthy"))
    assert places(found) == [
        ("stale_weights", "all"),
        ("stale_weights", "replica=b"),
        ("isolated_slice", "replica=b"),
    ]
    isolated = found[-1]
    assert isolated.confidence == 1.0
    assert isolated.facts["mean_abs"] > 5 * isolated.facts["siblings_mean_abs"]


def test_where_most_siblings_are_hit_none_stands_out():
    found = explained(WHOLE, fleet(a="stale", b="stale", c="healthy"))
    assert [f.slice for f in found if f.cause == Cause.ISOLATED] == []
    assert {f.slice for f in found} == {"all", "replica=a", "replica=b"}


def test_a_replica_with_broken_values_is_named_with_its_cause():
    found = explained(WHOLE, fleet(a="healthy", b="broken", c="healthy"))
    assert places(found)[:2] == [("broken_values", "all"), ("broken_values", "replica=b")]
    assert all(f.facts["broken"] > 0 for f in found if f.cause == "broken_values")


def test_a_replica_whose_law_alone_is_wrong_stands_out_without_drifting_more():
    law = clause("top1_frequency", 0.01, Family.STATISTICAL)
    outcomes = drawn(case("raw_at_temperature", 0.6, share="replica", seed=7))
    found = explained(contract(law, slices=(EVERYTHING, BY_REPLICA)), outcomes)
    isolated = [f for f in found if f.cause == Cause.ISOLATED]
    assert [(f.slice, f.confidence) for f in isolated] == [("replica=v1", 0.9)]
    assert isolated[0].facts["mean_abs"] < 1.2 * isolated[0].facts["siblings_mean_abs"]


def test_the_cause_in_all_of_the_traffic_is_read_off_the_place_that_stands_out():
    found = explained(WHOLE, drawn(case("rolled", share="replica", seed=7)))
    first = found[0]
    assert (first.cause, first.slice, first.facts["worst"]) == ("shift", "all", "replica=v1")
    assert first.facts["units"] == 32.0
    assert first.facts["worst_times"] > 20.0


def test_slices_are_ordered_by_their_evidence():
    evaluator = evaluated(WHOLE, fleet(a="stale", b="broken", c="healthy"))
    told = verdicts(evaluator)
    strength = {
        name: max(v.log10_e for v in told if v.slice == name and v.state is State.VIOLATED)
        for name in ("replica=a", "replica=b")
    }
    order = list(dict.fromkeys(f.slice for f in explain(evaluator, told) if f.slice != "all"))
    assert order == sorted(strength, key=strength.get, reverse=True)


def test_sequences_that_were_lost_explain_too():
    shifted = [lost("token_mismatch", f"s{i}", facts={"shift": 1.0, "differing": 9.0}) for i in range(40)]
    found = explained(contract(clause("pairing_rate", at_least=0.99)), shifted)
    assert places(found) == [("shift", "all")]


def test_rounding_explains_no_loss_of_pairs():
    whole = contract(clause("pairing_rate", None, Family.OBSERVABILITY, at_least=0.99), RATIO)
    outcomes = [*fleet(a="healthy"), *(lost(name=f"l{i}") for i in range(40))]
    assert places(explained(whole, outcomes)) == [("unknown", "all")]


def test_weights_that_lag_explain_too():
    old = [lost("weights_mismatch", f"s{i}", facts={"lag": 2.0}) for i in range(40)]
    found = explained(contract(clause("pairing_rate", at_least=0.99)), old)
    assert places(found) == [("stale_weights", "all")]


@pytest.mark.parametrize(
    ("reason", "facts", "cause"),
    [
        ("weights_mismatch", {"lag": 0.0, "digest": "differs"}, "stale_weights"),
        ("semantics_mismatch", {"law": "temperature"}, "temperature_mismatch"),
        ("semantics_mismatch", {"law": "support"}, "support_mismatch"),
    ],
)
def test_what_refused_sequences_said_of_themselves_explains_their_loss(reason, facts, cause):
    refused = [lost(reason, f"s{i}", facts=facts) for i in range(40)]
    found = explained(contract(clause("pairing_rate", at_least=0.99)), refused)
    assert [(f.cause, f.confidence) for f in found] == [(cause, 1.0)]


@pytest.mark.parametrize(
    ("reason", "facts"),
    [
        ("weights_mismatch", {"lag": 2.0}),
        ("weights_mismatch", {"lag": 0.0, "digest": "differs"}),
        ("semantics_mismatch", {"law": "temperature"}),
        ("token_mismatch", {"shift": 1.0}),
    ],
)
def test_a_few_refused_sequences_do_not_explain_the_drift_of_the_others(reason, facts):
    """A request that was under way at an update is refused for its lag; it made no pair drift."""
    outcomes = [*(lost(reason, f"s{i}", facts=facts) for i in range(2)), *drawn(case("coarse", seed=5))]
    found = explained(contract(clause("tv", 0.01), clause("pairing_rate", at_least=0.9)), outcomes)
    assert places(found) == [("precision_noise", "all")]


def test_in_what_the_kernels_say_that_they_differ_is_told():
    served = KernelIdentity(Role.INFERENCE, dtype="bfloat16", quantization="fp8")
    coarse = [paired(replace(o.pair, inference=served)) for o in drawn(case("coarse", seed=5))]
    facts = explained(contract(clause("tv", 0.01)), coarse)[0].facts
    assert facts["kernels_differ"] == "quantization fp8/-"


def test_a_lag_the_contract_allows_is_no_cause_until_its_clause_is_violated():
    lagging = [paired(replace(one, lag=2)) for one in sequences("healthy", 2)]
    tight = clause("tv", 0.001)
    assert places(explained(contract(tight), lagging)) == [("precision_noise", "all")]
    found = explained(contract(tight, clause("weights_lag", 1.0, Family.RUNTIME)), lagging)
    assert found[0].cause == "stale_weights"
    assert found[0].facts["weights_lag"] == 2.0


def test_a_slice_nobody_was_in_has_no_cause():
    evaluator = evaluated(WHOLE, fleet(a="stale"))
    assert explain_slice(evaluator, verdicts(evaluator), "replica=nobody") == ()


def test_an_identity_that_differs_has_no_numbers_and_breaks_nothing():
    declared = {"kernels": {Role.INFERENCE: {"dtype": "bfloat16"}}}
    whole = contract(clause("kernel_identity", family=Family.RUNTIME), RATIO, **declared)
    other = KernelIdentity(Role.INFERENCE, dtype="int8")
    stale = [paired(replace(one, inference=other)) for one in sequences("stale")]
    assert places(explained(whole, stale)) == [("stale_weights", "all")]


MADE = {
    Cause.WRONG_LAW: "raw_at_temperature",
    Cause.TEMPERATURE: "warm_sampler",
    Cause.SUPPORT: "cut_top_p",
    Cause.SHIFT: "rolled",
}


@pytest.mark.parametrize("cause", MADE, ids=str)
def test_a_fault_goes_all_the_way_from_pairs_to_its_name(cause):
    law = clause("top1_frequency", 0.01, Family.STATISTICAL)
    found = explained(contract(clause("tv", 0.01), law), drawn(case(MADE[cause], seed=5)))
    assert found[0].cause == cause.value
