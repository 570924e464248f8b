"""The ledger of a certificate: each assumption measured, declared or unchecked, and what a failed one does."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from pair_factory import EVERYTHING, both, clause, contract, evaluated, lost, pair, paired

from paritas.contracts.model import Budget, Compare, Family, Slice, Stage
from paritas.detectors.evaluate import Evaluator
from paritas.detectors.ledger import (
    Assumption,
    Standing,
    is_certificate,
    ledger_of,
    ledgers,
)
from paritas.detectors.pipeline import Detector
from paritas.detectors.snapshot import dump, load
from paritas.detectors.verdicts import verdicts
from paritas.detectors.witness import Witness, WitnessBook
from paritas.records import PairReason, Reason, Sampling, State

BIAS = clause("gradient_bias", 0.5, Family.STATISTICAL, cap=2.0)
LOSS = clause("reward_loss", 0.5, Family.STATISTICAL)
RATIO = clause("mean_ratio", 1.5, Family.STATISTICAL, cap=2.0)
FULL = Sampling(top_p=1.0, top_k=0)
CUT = Sampling(top_p=0.9)
M, D, U = Standing.MEASURED, Standing.DECLARED, Standing.UNCHECKED


def healthy(n=600, *, seed=0, **more):
    """Paired sequences of small drift, each of its own prompt group, at one weights version."""
    rng = np.random.default_rng(seed)
    known = {"sampling": FULL, "train_sampling": FULL, "lag": 0, "weights_version": "3", **more}
    labels = known.pop("attributes", lambda _: {})
    group = known.pop("group", lambda i: f"g-{i:04}")
    return [
        paired(
            pair(
                rng.normal(-0.001, 0.05, 8),
                name=f"s-{i:04}",
                group_id=group(i),
                attributes=labels(i),
                **known,
            )
        )
        for i in range(n)
    ]


def entries(outcomes, *clauses, whole=None):
    """State, reason and the ledger of the first clause, by assumption."""
    evaluator = evaluated(whole or contract(*clauses), outcomes)
    found = verdicts(evaluator)
    ledger = ledgers(evaluator, found)[clauses[0].id, "all"]
    told = {e.assumption: e for e in ledger.entries}
    return next(v for v in found if v.clause == clauses[0].id), told


def test_a_certificate_whose_premises_hold_stands():
    verdict, told = entries(healthy(), BIAS, RATIO)
    assert (verdict.state, verdict.reason) == (State.CONFORMING, Reason.CERTIFIED)
    assert {name: (e.standing, e.holds) for name, e in told.items()} == {
        Assumption.SUPPORT: (M, True),
        Assumption.SCORE_NORM: (U, True),
        Assumption.EQUAL_WEIGHTS: (M, True),
        Assumption.EQUAL_TOKENS: (M, True),
        Assumption.INDEPENDENT_UNITS: (M, True),
    }
    assert told[Assumption.EQUAL_WEIGHTS].detail == "equal versions in 600 of 600 sequences"
    assert told[Assumption.INDEPENDENT_UNITS].detail == "600 sequences of 600 groups"


def test_what_nobody_reports_is_unchecked_and_withdraws_nothing():
    bare = {"sampling": Sampling(), "train_sampling": Sampling(), "lag": None, "group": lambda _: ""}
    verdict, told = entries(healthy(**bare), BIAS)
    assert verdict.state is State.CONFORMING
    standings = {name.value: e.standing for name, e in told.items()}
    assert standings == {
        "support": U,
        "score_norm": U,
        "equal_weights": U,
        "equal_tokens": M,
        "independent_units": U,
    }


FAILURES = {
    "truncation": (
        Assumption.SUPPORT,
        healthy(sampling=CUT),
        "600 of 600 sequences sampled with top_p 0.9, which the trainer did not apply",
    ),
    "weights": (
        Assumption.EQUAL_WEIGHTS,
        healthy(lag=2),
        "600 of 600 sequences up to 2 versions apart",
    ),
    "tokens": (
        Assumption.EQUAL_TOKENS,
        [*healthy(), *(lost(PairReason.TOKEN_MISMATCH, f"x-{i}") for i in range(4))],
        "600 sequences equal token by token, 4 not",
    ),
    "siblings": (
        Assumption.INDEPENDENT_UNITS,
        healthy(group=lambda i: f"g-{i // 4:04}"),
        "450 sequences share their prompt group with another: write compare: {unit: group}",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_premise_withdraws_the_certificate_by_name(name):
    assumption, outcomes, detail = FAILURES[name]
    verdict, told = entries(outcomes, BIAS)
    assert [e.assumption for e in told.values() if not e.holds] == [assumption]
    assert told[assumption].standing is M
    assert told[assumption].detail == detail
    assert (verdict.state, verdict.reason) == (State.UNDECIDED, Reason.ASSUMPTION_FAILED)
    assert verdict.log10_pass > 2  # the evidence is there, what it rests on is not


def test_one_in_a_thousand_breaks_no_premise():
    odd = healthy(1, seed=9, sampling=CUT, lag=1, group=lambda _: "g-0000")
    verdict, told = entries([*healthy(999), *odd], BIAS)
    assert verdict.state is State.CONFORMING
    assert all(e.holds for e in told.values())


def test_a_trainer_that_replays_the_truncation_loses_nothing():
    _, told = entries(healthy(sampling=CUT, train_sampling=CUT), BIAS)
    assert told[Assumption.SUPPORT].holds


def test_lost_mass_shows_in_the_ratio_without_any_parameter():
    bare = {"sampling": Sampling(), "train_sampling": Sampling()}
    rng = np.random.default_rng(1)
    shrunk = [
        paired(pair(rng.normal(-0.15, 0.02, 8), name=f"s-{i:04}", group_id=f"g-{i}", **bare))
        for i in range(4000)
    ]
    verdict, told = entries(shrunk, BIAS, RATIO)
    assert not told[Assumption.SUPPORT].holds
    assert told[Assumption.SUPPORT].detail.endswith("mass is missing")
    assert verdict.reason is Reason.ASSUMPTION_FAILED


def rewarded(values):
    return healthy(len(values), attributes=lambda i: {"reward": str(values[i])})


def test_rewards_are_measured_against_the_declared_range():
    budget = Budget(reward_range=(-1.0, 1.0))
    asked = replace(LOSS, reward_range=(-1.0, 1.0))
    inside, outside = [0.5, -1.0] * 300, [0.5, 1.2] * 300
    for rewards, holds in ((inside, True), (outside, False)):
        verdict, told = entries(rewarded(rewards), asked, whole=contract(asked, budget=budget))
        assert told[Assumption.REWARD_RANGE].standing is M
        assert told[Assumption.REWARD_RANGE].holds is holds
        assert (verdict.state is State.CONFORMING) is holds
    assert told[Assumption.REWARD_RANGE].detail == "600 rewards between 0.5 and 1.2, declared -1 to 1"


def test_a_range_without_rewards_is_declared_or_not_checked():
    sequence = clause("sequence_tv", 0.5, Family.STATISTICAL)
    budget = Budget(reward_drift=0.5, reward_range=(0.0, 2.0))
    _, told = entries(healthy(), sequence, whole=contract(sequence, budget=budget))
    assert (told[Assumption.REWARD_RANGE].standing, told[Assumption.REWARD_RANGE].detail) == (D, "0 to 2")
    _, told = entries(healthy(), LOSS)
    assert told[Assumption.REWARD_RANGE].standing is U
    assert told[Assumption.REWARD_RANGE].detail == "no rewards seen, range 0 to 1, the default"


@pytest.mark.parametrize(
    ("label", "declared", "standing", "holds", "detail"),
    [
        ("", None, U, True, "the bias stays in units of A_max G"),
        ("", 50.0, D, True, "budget.score_norm 50"),
        ("12.5", None, M, True, "largest of 600 is 12.5"),
        ("12.5", 50.0, M, True, "largest of 600 is 12.5, declared 50"),
        ("61", 50.0, M, False, "largest of 600 is 61, declared 50"),
    ],
)
def test_the_norm_of_the_score(label, declared, standing, holds, detail):
    outcomes = healthy(attributes=lambda _: {"score_norm": label} if label else {})
    whole = contract(BIAS, budget=Budget(score_norm=declared))
    verdict, told = entries(outcomes, BIAS, whole=whole)
    found = told[Assumption.SCORE_NORM]
    assert (found.standing, found.holds, found.detail) == (standing, holds, detail)
    assert (verdict.reason is Reason.ASSUMPTION_FAILED) is not holds


def test_groups_as_units_are_declared():
    whole = contract(BIAS, compare=Compare(unit="group"))
    verdict, told = entries(healthy(group=lambda i: f"g-{i // 2:04}"), BIAS, whole=whole)
    assert told[Assumption.INDEPENDENT_UNITS].standing is D
    assert verdict.state is State.CONFORMING


def test_a_violation_is_never_withdrawn_and_other_clauses_rest_on_nothing():
    tv, bias = clause("tv", 0.9), replace(BIAS, at_most=0.001)
    rng = np.random.default_rng(2)
    broken = [paired(pair(rng.normal(-0.5, 0.5, 8), name=f"s-{i}", sampling=CUT, lag=1)) for i in range(600)]
    found = verdicts(evaluated(contract(bias, tv), broken))
    states = {v.clause: v.state for v in found}
    assert states["gradient_bias"] is State.VIOLATED
    assert states["tv"] is State.CONFORMING


def test_which_clauses_are_certificates():
    sequence = clause("sequence_tv", 0.5)
    assert is_certificate(BIAS, contract(BIAS))
    assert is_certificate(LOSS, contract(LOSS))
    assert not is_certificate(sequence, contract(sequence))
    assert is_certificate(sequence, contract(sequence, budget=Budget(reward_drift=0.1)))
    assert not is_certificate(clause("tv", 0.1), contract())


def test_a_witness_is_small_and_does_not_depend_on_how_outcomes_are_cut():
    outcomes = healthy(200, group=lambda i: f"g-{i // 3}", attributes=lambda i: {"reward": str(i)})
    whole, parts = Witness(), Witness()
    whole.note(outcomes)
    for start in range(0, 200, 7):
        parts.note(outcomes[start : start + 7])
    assert whole == parts
    assert pickle.loads(pickle.dumps(whole)) == whole
    assert len(pickle.dumps(whole)) < 1024


def test_nothing_paired_checks_nothing():
    told = ledger_of(BIAS, contract(BIAS), Witness())
    assert {e.standing for e in told.entries} == {U}
    assert told.failed == ()


def test_a_contract_without_certificates_costs_nothing():
    evaluator = evaluated(contract(clause("tv", 0.5)), healthy(10))
    assert evaluator.witnesses == WitnessBook(frozenset())


# ---- slices

BY_REPLICA = Slice("replica", by=("replica",), at_most=8)
SLICED = contract(BIAS, slices=(EVERYTHING, BY_REPLICA))
BROKEN = {
    Assumption.SUPPORT: healthy(seed=1, sampling=CUT, attributes=lambda _: {"replica": "r2"}),
    Assumption.EQUAL_WEIGHTS: healthy(seed=1, lag=3, attributes=lambda _: {"replica": "r2"}),
    Assumption.INDEPENDENT_UNITS: healthy(
        seed=1, group=lambda i: f"h-{i // 4}", attributes=lambda _: {"replica": "r2"}
    ),
    Assumption.EQUAL_TOKENS: [
        *healthy(seed=1, attributes=lambda _: {"replica": "r2"}),
        *(lost(PairReason.LENGTH_MISMATCH, f"x-{i}", attributes={"replica": "r2"}) for i in range(40)),
    ],
}


@pytest.mark.parametrize("assumption", BROKEN)
def test_a_premise_that_fails_in_one_slice_withdraws_the_certificate_of_that_slice_only(assumption):
    sound = healthy(2000, attributes=lambda _: {"replica": "r1"})
    evaluator = evaluated(SLICED, [*sound, *BROKEN[assumption]])
    found = {v.slice: v for v in verdicts(evaluator)}
    told = ledgers(evaluator, tuple(found.values()))
    failed = {name: [e.assumption for e in told[BIAS.id, name].failed] for name in found}
    assert failed == {"all": [assumption], "replica=r1": [], "replica=r2": [assumption]}
    assert found["replica=r1"].state is State.CONFORMING
    assert {found[name].reason for name in ("all", "replica=r2")} == {Reason.ASSUMPTION_FAILED}


def test_a_premise_that_fails_in_a_small_slice_leaves_the_whole_certified():
    sound = healthy(1000, attributes=lambda _: {"replica": "r1"})
    few = healthy(4, seed=2, lag=1, attributes=lambda _: {"replica": "r2"}, group=lambda i: f"h-{i}")
    evaluator = evaluated(SLICED, [*sound, *few])
    found = verdicts(evaluator)
    told = ledgers(evaluator, found)
    assert told[BIAS.id, "all"].failed == ()
    assert [e.detail for e in told[BIAS.id, "replica=r2"].failed] == [
        "4 of 4 sequences up to 1 versions apart"
    ]
    assert {v.slice: v.state for v in found}["all"] is State.CONFORMING


def test_only_slices_that_a_certificate_binds_have_a_witness():
    narrow = replace(BIAS, slices=("replica",))
    outcomes = healthy(5, attributes=lambda _: {"replica": "r1"})
    evaluator = evaluated(contract(narrow, RATIO, slices=(EVERYTHING, BY_REPLICA)), outcomes)
    assert list(evaluator.witnesses.witnesses) == ["replica=r1"]
    assert evaluator.witnesses.of("replica=r9") == Witness()
    assert len(evaluator.witnesses.witnesses) == 1


def test_witnesses_of_slices_do_not_depend_on_cuts():
    outcomes = healthy(
        120, group=lambda i: f"g-{i // 3}", attributes=lambda i: {"reward": str(i), "replica": f"r{i % 2}"}
    )
    whole, parts = evaluated(SLICED, outcomes), Evaluator(SLICED, stage=Stage.FULL, recover=False)
    for start in range(0, 120, 7):
        assert list(parts.observe(outcomes[start : start + 7])) == []
    assert whole.witnesses == parts.witnesses


def test_witnesses_outlive_a_restart():
    detector = Detector(SLICED)
    traces = [
        t for i in range(6) for t in both(f"s-{i}", attributes={"replica": f"r{i % 2}"}, group_id=f"g-{i}")
    ]
    list(detector.process(traces, 1))
    list(detector.flush(2))
    assert detector.evaluator.witnesses.of("replica=r1").pairs == 3
    again = load(dump(detector), contract_digest=SLICED.digest)
    assert again.evaluator.witnesses == detector.evaluator.witnesses
