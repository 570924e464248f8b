"""Sampled streams: weights undo what was kept because of what it showed; who cannot be weighed is counted."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import EVERYTHING, NS, clause, contract, evaluated, lost, pair, paired, units

from paritas.contracts.model import Compare, FalseAlarms, Family
from paritas.detectors.sampling import LABEL, SamplingBook, is_drawn, probability_of, weight_of
from paritas.detectors.verdicts import verdicts
from paritas.records import Reason, State, Timings

TV = clause("tv", 0.1)


def kept(values, probabilities):
    """Return one sequence a value, with its probability in the label; None leaves it out."""
    told = units(values)
    labels = [{} if p is None else {LABEL: f"{p:.6f}"} for p in probabilities]
    return [
        replace(one, attributes=label, pair=replace(one.pair, attributes=label))
        for one, label in zip(told, labels, strict=True)
    ]


def sampled(*clauses, at_least=0.1, **more):
    return contract(*clauses, **{"compare": Compare(sampled_at_least=at_least), **more})


def tail_sampled(rng, n, *, broken):
    """Return what tail-based sampling keeps of n sequences: every broken one, a tenth of the others."""
    values = np.where(rng.random(n) < broken, 0.5, 0.02)
    probability = np.where(values > 0.1, 1.0, 0.1)
    is_kept = rng.random(n) < probability
    return values, kept(values[is_kept], probability[is_kept])


def test_the_estimate_is_that_of_all_sequences_and_not_of_those_that_were_kept():
    values, outcomes = tail_sampled(np.random.default_rng(4), 8000, broken=0.1)
    (weighed,) = verdicts(evaluated(sampled(TV), outcomes))
    (naive,) = verdicts(evaluated(contract(TV), [replace(o, attributes={}) for o in outcomes]))
    assert naive.estimate > 0.2
    assert weighed.estimate == pytest.approx(values.mean(), abs=0.006)


def test_the_tests_hold_for_all_sequences_and_not_for_those_that_were_kept():
    rng, alarms = np.random.default_rng(9), {"naive": 0, "weighed": 0}
    budget = FalseAlarms(0.05, 3600.0)
    for _ in range(40):  # at the limit: 0.5 b + 0.02 (1 - b) = 0.1
        _, outcomes = tail_sampled(rng, 2000, broken=1 / 6)
        plain = [replace(o, attributes={}) for o in outcomes]
        told = {
            "naive": verdicts(evaluated(contract(TV, false_alarms=budget), plain)),
            "weighed": verdicts(evaluated(sampled(TV, false_alarms=budget), outcomes)),
        }
        for name, (verdict,) in told.items():
            alarms[name] += verdict.state is State.VIOLATED
    assert alarms["naive"] == 40
    assert alarms["weighed"] <= 5


def test_a_kept_tail_does_not_stop_a_pass_and_a_broken_service_is_found():
    rng = np.random.default_rng(3)
    (good,) = verdicts(evaluated(sampled(TV), tail_sampled(rng, 9000, broken=0.03)[1]))
    (bad,) = verdicts(evaluated(sampled(TV), tail_sampled(rng, 3000, broken=0.6)[1]))
    assert (good.state, good.reason) == (State.CONFORMING, Reason.CERTIFIED)
    assert (bad.state, bad.reason) == (State.VIOLATED, Reason.REFUTED)
    assert (good.lower, good.upper, bad.lower, bad.upper) == (0.0, 0.1, 0.1, 1.0)


def test_one_probability_for_all_changes_nothing_at_all():
    values = np.random.default_rng(1).random(50) * 0.2
    plain = [repr(v) for v in verdicts(evaluated(contract(TV), units(values)))]
    assert [repr(v) for v in verdicts(evaluated(sampled(TV), kept(values, [0.1] * 50)))] == plain


@given(st.floats(0, 1), st.floats(0.01, 1), st.floats(0.01, 0.99))
def test_a_drawn_value_stays_in_its_range_and_on_its_side(value, weight, tau):
    drawn = tau + weight * (value - tau)
    assert -1e-12 <= drawn <= 1 + 1e-12
    assert (drawn - tau) * (value - tau) >= 0


@pytest.mark.parametrize("text", ["", "0", "-0.1", "1.5", "nan", "often", "0.05"])
def test_what_is_no_probability_the_contract_allows_is_unknown(text):
    assert np.isnan(weight_of({LABEL: text}, 0.1))
    assert text == "0.05" or probability_of({LABEL: text}) is None


def test_the_unknown_are_counted_and_not_taken_for_certain():
    outcomes = kept([0.9] * 30 + [0.01] * 300, [None] * 30 + [0.1] * 300)
    evaluator = evaluated(sampled(TV), outcomes)
    (verdict,) = verdicts(evaluator)
    assert evaluator.sampling.counts() == {"weighed": 300, "unknown": 30, "undeclared": 0}
    assert verdict.units == 300
    assert (verdict.state, verdict.reason) == (State.UNDECIDED, Reason.COVERAGE)


def test_a_few_unknown_do_not_stop_a_pass():
    (verdict,) = verdicts(evaluated(sampled(TV), kept([0.01] * 1000, [None] * 4 + [0.1] * 996)))
    assert verdict.state is State.CONFORMING


def test_a_sampled_stream_that_the_contract_does_not_declare_passes_nothing():
    evaluator = evaluated(contract(TV), kept([0.01] * 400, [1.0] * 399 + [0.5]))
    (verdict,) = verdicts(evaluator)
    assert evaluator.sampling.counts()["undeclared"] == 1
    assert (verdict.state, verdict.reason) == (State.UNDECIDED, Reason.COVERAGE)


def test_observability_counts_whoever_cannot_be_weighed():
    asked = sampled(clause("nonfinite_rate", 0.0, Family.OBSERVABILITY))
    (verdict,) = verdicts(evaluated(asked, kept([0.01] * 5, [None] * 5)))
    assert (verdict.units, verdict.state) == (5, State.CONFORMING)


def test_integrity_bets_on_tokens_are_weighed_too():
    ratio = clause("mean_ratio", 1.002, Family.STATISTICAL)
    rng, alarms = np.random.default_rng(5), 0
    for _ in range(30):
        outcomes = []
        for i in range(300):  # E w = 1; long ratios are kept, the others rarely
            ell = rng.choice([np.log(1.5), np.log(0.5)], 8)
            p = 1.0 if ell.sum() > 0 else 0.2
            if rng.random() < p:
                label = {LABEL: str(p)}
                outcomes.append(paired(pair(ell, name=f"s{i}", attributes=label)))
        (verdict,) = verdicts(evaluated(sampled(ratio, at_least=0.2), outcomes))
        alarms += verdict.state is State.VIOLATED
    assert alarms <= 3


def test_windows_are_weighed_too():
    slow = clause("time_to_first_token", 1.0, Family.RUNTIME, quantile=0.5, window_s=1.0)
    rng, outcomes = np.random.default_rng(6), []
    for i in range(20_000):
        is_slow = rng.random() < 0.2
        if is_slow or rng.random() < 0.1:
            label = {LABEL: "1" if is_slow else "0.1"}
            told = {"timings": Timings(ttft_s=2.0 if is_slow else 0.1), "event_ns": i * NS // 100}
            outcomes.append(paired(pair([0.0], name=f"s{i}", attributes=label, **told)))
    evaluator = evaluated(sampled(slow), outcomes)
    list(evaluator.close_windows(is_end=True))
    (verdict,) = verdicts(evaluator)
    assert verdict.estimate == pytest.approx(0.2, abs=0.03)
    assert verdict.state is not State.VIOLATED


KEPT = {  # with which probability a request is recorded, by whether its second is bad and whether it is slow
    "less under load": lambda is_bad, _: 0.1 if is_bad else 1.0,
    "more under load": lambda is_bad, _: 1.0 if is_bad else 0.1,
    "the slow ones": lambda _, is_slow: 1.0 if is_slow else 0.1,
}


@pytest.mark.parametrize("law", KEPT)
def test_what_is_kept_of_a_window_may_depend_on_its_load(law):
    """Every fifth second half of the requests are slow, exactly what the quantile allows."""
    slow = clause("time_to_first_token", 1.0, Family.RUNTIME, quantile=0.9, window_s=1.0)
    rng, outcomes = np.random.default_rng(7), []
    for i in range(8000):
        is_bad = i // 20 % 5 == 0
        is_slow = is_bad and rng.random() < 0.5
        if rng.random() < (p := KEPT[law](is_bad, is_slow)):
            told = {"timings": Timings(ttft_s=2.0 if is_slow else 0.1), "event_ns": i * NS // 20}
            outcomes.append(paired(pair([0.0], name=f"s{i}", attributes={LABEL: str(p)}, **told)))
    evaluator = evaluated(sampled(slow), outcomes)
    list(evaluator.close_windows(is_end=True))
    (verdict,) = verdicts(evaluator)
    assert verdict.state is State.UNDECIDED
    assert verdict.estimate == pytest.approx(0.1, abs=0.03)
    assert verdict.lower < 0.1 < verdict.upper


def test_a_sample_that_is_drawn_follows_from_names_and_has_its_share():
    pairs = [pair([0.0], name=f"s{i}") for i in range(4000)]
    drawn = [is_drawn(one, 0.25) for one in pairs]
    assert drawn == [is_drawn(one, 0.25) for one in pairs]
    assert np.mean(drawn) == pytest.approx(0.25, abs=0.03)
    assert all(is_drawn(one, 1.0) for one in pairs)


@pytest.mark.parametrize("label", [{LABEL: "1"}, {}], ids=["told", "with the view that never came"])
def test_losses_are_weighed_as_pairs_are(label):
    """One in a hundred is lost, exactly what the limit allows; everybody was kept for certain."""
    outcomes = kept([0.0] * 99, [1.0] * 99)
    for i in range(20):
        outcomes.append(lost(name=f"l{i}", attributes=label, event_ns=(i + 1) * 99 * NS))
        outcomes += kept([0.0] * 99, [1.0] * 99)
    asked = sampled(clause("pairing_rate", family=Family.OBSERVABILITY, at_least=0.99))
    (verdict,) = verdicts(evaluated(asked, outcomes))
    assert verdict.state is not State.VIOLATED
    assert verdict.estimate == pytest.approx(1 - 20 / len(outcomes), abs=2e-4)


def test_the_bet_on_a_group_kept_as_a_whole_is_fair():
    """Groups of one mind are kept rarely, as where groups of equal rewards are dropped; E w = 1."""
    whole = sampled(
        clause("mean_ratio", 1.0, Family.STATISTICAL), compare=Compare(unit="group", sampled_at_least=0.1)
    )
    expected = recorded = 0.0
    for ells in product(np.log([1.5, 0.5]), repeat=2):  # each as likely as the others
        p = 0.1 if ells[0] == ells[1] else 1.0
        told = {"group_id": "g", "attributes": {LABEL: str(p)}}
        bank = evaluated(whole, [paired(pair([e], name=f"s{i}", **told)) for i, e in enumerate(ells)]).bank
        expected, recorded = expected + p * np.exp(bank.log_over[0]), recorded + p
    assert expected / recorded == pytest.approx(1.0, abs=1e-9)


@given(
    st.lists(st.lists(st.floats(-2, 1), min_size=1, max_size=3), min_size=1, max_size=5), st.floats(0.1, 1)
)
def test_the_bet_of_a_group_is_drawn_from_that_of_all_its_tokens(ells, weight):
    asked = (clause("mean_ratio", 1.2, Family.STATISTICAL), clause("tv", 0.1))
    told = {"group_id": "g", "attributes": {LABEL: repr(0.1 / weight)}}
    banks = []
    for compare in (Compare(unit="group"), Compare(unit="group", sampled_at_least=0.1)):
        members = [paired(pair(ell, name=f"s{i}", **told)) for i, ell in enumerate(ells)]
        banks.append(evaluated(contract(*asked, compare=compare), members).bank)
    plain, drawn = (np.exp(bank.log_over[0]) for bank in banks)
    np.testing.assert_allclose(drawn, 1.0 + weight * (plain - 1.0), rtol=1e-9, atol=1e-12)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=4), st.integers(0, 2**32 - 1))
def test_cutting_anywhere_changes_nothing(cuts, seed):
    rng = np.random.default_rng(seed)
    outcomes = kept(rng.random(60), rng.choice([None, 0.1, 0.3, 1.0], 60))
    whole, parts = evaluated(sampled(TV), outcomes), evaluated(sampled(TV), [])
    edges = [0, *sorted(cuts), 60]
    for start, stop in pairwise(edges):
        list(parts.observe(outcomes[start:stop]))
    assert [repr(v) for v in verdicts(parts)] == [repr(v) for v in verdicts(whole)]
    assert parts.sampling == whole.sampling


def test_shown_means_begin_again_with_the_certificates():
    book = SamplingBook(0.1)
    book.note("all", [o.pair for o in kept([0.1], [1.0])])
    assert book.mean_weight("all") == pytest.approx(0.1)
    book.restart()
    assert book.mean_weight("all") == 1.0
    assert EVERYTHING.name == "all"
