"""The refit gate: what it decides, what it lets through, and that nothing depends on cuts or restarts."""

import pickle
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import BY_REPLICA, EVERYTHING, NS, clause, contract, lost, pair, paired
from trace_streams import NEW_WEIGHTS_FROM, REPLICAS, STALE_FROM, TOKENS, stream, watched

from paritas.contracts.model import Compare, Escalation, Family, Level, Refit, When
from paritas.detectors.crossings import Change
from paritas.detectors.limits import radius
from paritas.detectors.pipeline import Detector
from paritas.detectors.refit import REMEMBERED, RefitGate, RefitReason, RefitState
from paritas.detectors.sequential import Grid
from paritas.detectors.slices import SliceBook
from paritas.detectors.snapshot import dump, load
from paritas.records import Action, Phase, Reason, Severity, State

TRACES = stream()
END_NS = len(TRACES) * NS // 40
REFIT = Refit(tokens=5 * TOKENS)
LIMIT = 0.1


def gated(*clauses, refit=REFIT, slices=(EVERYTHING, BY_REPLICA), **more):
    """Return a gate of clauses on tv and the mean ratio."""
    some = clauses or (clause("tv", LIMIT), clause("mean_ratio", 1.05, Family.STATISTICAL))
    whole = replace(contract(*some, slices=slices, **more), refit=refit)
    return RefitGate(whole, refit)


def outcome(tv, version="1", replica="r0", i=0, tokens=4, **more):
    """Return a paired sequence whose tv is that value at every token."""
    ell = np.full(tokens, np.log1p(-min(tv, 1 - 1e-9)))
    told = {"weights_version": version, "attributes": {"replica": replica} if replica else {}}
    return paired(pair(ell, name=f"{version}-{replica}-{i}", event_ns=i * NS, **told, **more))


def fed(gate, outcomes):
    """Return every step."""
    return list(gate.take(list(outcomes)))


def told(gate):
    return {(v.weights_version, v.replica): (v.state, v.reason) for v in gate.verdicts()}


# ---- one test


def test_a_version_that_refutes_nothing_is_accepted_after_its_tokens_and_its_test_does_not_count():
    gate = gated(refit=Refit(tokens=20))
    steps = fed(gate, [outcome(0.05, i=i) for i in range(8)])
    assert [s.counts for s in steps] == [False] * 5 + [True] * 3
    assert all(s.crossings == () for s in steps)
    assert told(gate) == {("1", "r0"): (RefitState.ACCEPTED, RefitReason.NOT_REFUTED)}
    assert gate.sequences == {"held": 5, "accepted": 3}
    assert gate.versions == {"accepted": 1}
    (verdict,) = gate.verdicts()
    assert (verdict.tokens, verdict.sequences, verdict.clause) == (20, 5, "")


def test_enough_tokens_far_below_the_limits_certify():
    gate = gated(clause("tv", 0.5), refit=Refit(tokens=400))
    fed(gate, [outcome(0.0, i=i) for i in range(100)])
    assert told(gate)["1", "r0"] == (RefitState.ACCEPTED, RefitReason.CERTIFIED)


def test_a_bad_version_is_rejected_by_name_and_stays_out():
    gate = gated()
    steps = fed(gate, [outcome(0.9, i=i) for i in range(30)])
    assert not any(s.counts for s in steps)
    (crossing,) = (c for s in steps for c in s.crossings)
    assert (crossing.change, crossing.clause.id, crossing.slice) == (Change.VIOLATED, "tv", "replica=r0")
    assert (crossing.declared, crossing.weights_version, crossing.index) == ("replica", "1", -1)
    (verdict,) = gate.verdicts()
    assert (verdict.state, verdict.reason) == (RefitState.REJECTED, RefitReason.REFUTED)
    assert (verdict.clause, verdict.sequences) == ("tv", 4)
    assert gate.sequences == {"held": 4, "rejected": 26}
    shown = gate.report(crossing).verdict
    assert (shown.state, shown.reason, shown.units, shown.limit) == (State.VIOLATED, Reason.REFUTED, 4, LIMIT)
    assert shown.log10_e >= shown.threshold_log10
    assert LIMIT <= shown.lower <= shown.estimate <= shown.upper


def test_before_its_tokens_a_version_is_held():
    gate = gated()
    fed(gate, [outcome(0.05)])
    assert told(gate) == {("1", "r0"): (RefitState.HELD, RefitReason.NEEDS_MORE_TOKENS)}
    assert gate.verdicts()[0].tokens == 4


def brute_wealth(values, limit, bets):
    """Mean over bets of the products of 1 + bet (x - limit)."""
    return np.mean([np.prod([1.0 + bet * (x - limit) for x in values]) for bet in bets])


@settings(max_examples=40)
@given(st.lists(st.floats(0.0, 0.99), min_size=1, max_size=25), st.integers(0, 3), st.floats(0.02, 0.5))
def test_the_verdict_is_that_of_products_written_out(values, earlier, limit):
    """For the k-th test the level is alpha / (k (k + 1)); there is one clause."""
    gate = gated(clause("tv", limit), refit=Refit(tokens=len(values), alpha=0.04))
    for k in range(earlier):
        fed(gate, [outcome(0.0, f"old-{k}", tokens=1)])
    fed(gate, [outcome(v, "new", i=i, tokens=1) for i, v in enumerate(values)])
    level = 0.04 / ((earlier + 1) * (earlier + 2))
    wealths = [brute_wealth(values[: n + 1], limit, Grid().up(limit)) for n in range(len(values))]
    when = next((n + 1 for n, w in enumerate(wealths) if w >= 1 / level), None)
    verdict = gate.verdicts()[-1]
    if when is not None and not np.isclose(wealths[when - 1], 1 / level, rtol=1e-9):
        assert (verdict.state, verdict.sequences) == (RefitState.REJECTED, when)
    elif when is None:
        certified = brute_wealth([-v for v in values], -limit, Grid().down(limit)) >= 1 / level
        reason = RefitReason.CERTIFIED if certified else RefitReason.NOT_REFUTED
        assert (verdict.state, verdict.reason) == (RefitState.ACCEPTED, reason)


@given(st.lists(st.floats(0.5, 0.99), min_size=8, max_size=8))
def test_the_limits_that_are_shown_are_d16_lifted_by_the_refutation(values):
    gate = gated(clause("tv", LIMIT))
    steps = fed(gate, [outcome(v, i=i, tokens=1) for i, v in enumerate(values)])
    crossing = next(c for s in steps for c in s.crossings)
    shown = gate.report(crossing).verdict
    used = np.array(values[: shown.units])
    guesses = (np.concatenate([[0.0], np.cumsum(used)[:-1]]) + 0.5) / np.arange(1, len(used) + 1)
    half = radius(float(np.square(used - guesses).sum()), len(used), 0.01)
    assert shown.estimate == pytest.approx(used.mean())
    assert shown.lower == pytest.approx(max(used.mean() - half, LIMIT))
    assert shown.upper == pytest.approx(min(used.mean() + half, 1.0))


@pytest.mark.slow
def test_a_healthy_version_at_the_limit_is_hardly_ever_rejected():
    """At the boundary: of gates that saw 30 versions each, at most the share alpha ever rejects one."""
    rng, lives, rejected = np.random.default_rng(11), 15, 0
    for _ in range(lives):
        gate = gated(clause("tv", LIMIT), refit=Refit(tokens=30, alpha=0.1))
        for version in range(30):
            fed(
                gate,
                [
                    outcome(float(v), str(version), i=i, tokens=1)
                    for i, v in enumerate(rng.random(30) < LIMIT)
                ],
            )
        rejected += gate.versions.get("rejected", 0) > 0
    assert rejected <= 0.1 * lives + 3 * np.sqrt(0.09 * lives)


def kept(rng, n):
    """Return sequences of which odd ones, one in twenty, are kept for certain and others one time in ten: mean tv 0.015."""
    found = []
    while len(found) < n:
        is_odd = rng.random() < 0.05
        chance = 1.0 if is_odd else 0.1
        if rng.random() < chance:
            one = outcome(0.3 if is_odd else 0.0, i=len(found))
            told = {**one.attributes, "sampling_probability": str(chance)}
            found.append(replace(one, attributes=told, pair=replace(one.pair, attributes=told)))
    return found


def test_a_sampled_stream_is_tested_for_all_its_sequences_and_not_for_those_that_were_kept():
    """What was kept has a mean tv of 0.1 here, twice the limit, because what is odd is kept."""
    told = {"compare": Compare(sampled_at_least=0.1), "refit": Refit(tokens=2000)}
    for seed in range(5):
        outcomes = kept(np.random.default_rng(seed), 500)
        assert np.mean([-np.expm1(o.pair.log_ratio[0]) for o in outcomes]) > 0.08
        gate = gated(clause("tv", 0.05), **told)
        fed(gate, outcomes)
        assert told_of(gate) == RefitState.ACCEPTED
    gate = gated(clause("tv", 0.01), **told)  # a limit that all of them do not keep
    crossings = [c for step in fed(gate, outcomes) for c in step.crossings]
    assert told_of(gate) == RefitState.REJECTED
    shown = gate.report(crossings[0]).verdict
    assert shown.limit == shown.lower < shown.estimate < 0.015 * 2
    assert shown.upper == 1.0  # the tests bound the mean over all, the mean that is shown does not


def told_of(gate):
    (verdict,) = gate.verdicts()
    return verdict.state


def test_a_sequence_that_nobody_can_weigh_is_not_the_gates():
    """It would be tested as if it were one of many; whoever counts the unknown must see it."""
    gate = gated(clause("tv", 0.05), compare=Compare(sampled_at_least=0.1))
    assert all(step.counts for step in fed(gate, [outcome(0.9, i=i) for i in range(50)]))
    assert gate.verdicts() == ()


def test_the_mean_ratio_bets_on_tokens():
    """A stale sampler's tokens are likelier to its trainer: the mean ratio is above one and its tv small."""
    gate = gated(
        clause("tv", 0.9), clause("mean_ratio", 1.002, Family.STATISTICAL), refit=Refit(tokens=10_000)
    )
    one = [pair(np.full(40, 0.3), name=f"s-{i}", weights_version="1") for i in range(5)]
    steps = fed(gate, map(paired, one))
    (crossing,) = (c for s in steps for c in s.crossings)
    assert (crossing.clause.id, crossing.slice) == ("mean_ratio", "all")
    assert gate.verdicts()[0].sequences <= 3


# ---- what passes untested


def test_a_pair_without_a_version_or_without_a_valid_token_is_not_the_gates():
    gate = gated()
    assert [s.counts for s in fed(gate, [outcome(0.9, ""), outcome(0.9, tokens=0)] * 9)] == [True] * 18
    assert gate.verdicts() == ()


def test_losses_of_a_replica_are_held_with_its_pairs_and_count_again_after_them():
    gate = gated(refit=Refit(tokens=8))
    loss, other = lost(attributes={"replica": "r0"}), lost(attributes={"replica": "r1"})
    seen = [s.counts for s in fed(gate, [loss, outcome(0.0), loss, other, outcome(0.0, i=1), loss])]
    assert seen == [True, False, False, True, False, True]
    assert gate.sequences == {"held": 2, "held_losses": 1}


# ---- several versions and replicas


def test_each_replica_is_tested_by_itself():
    gate = gated()
    for i in range(6):
        fed(gate, [outcome(0.9, replica="r0", i=i), outcome(0.0, replica="r1", i=i)])
    states = {replica: state for (_, replica), (state, _) in told(gate).items()}
    assert states == {"r0": RefitState.REJECTED, "r1": RefitState.HELD}


def test_newer_weights_supersede_a_rejection_and_older_ones_that_are_served_again_end_it():
    gate = gated(refit=Refit(tokens=8))
    fed(gate, [outcome(0.0, "1", i=i) for i in range(2)])
    assert told(gate)["1", "r0"][0] is RefitState.ACCEPTED
    steps = fed(gate, [outcome(0.9, "2", i=10 + i, tokens=1) for i in range(8)])
    assert [c.change for s in steps for c in s.crossings] == [Change.VIOLATED]
    (late,) = fed(gate, [outcome(0.0, "1", i=12)])  # began while version 2 was served
    assert (late.counts, late.crossings) == (True, ())
    (back,) = fed(gate, [outcome(0.0, "1", i=30)])
    assert [(c.change, c.weights_version) for c in back.crossings] == [(Change.RECOVERED, "2")]
    steps = fed(gate, [outcome(0.9, "3", i=40 + i, tokens=1) for i in range(8)])
    steps += fed(gate, [outcome(0.0, "4", i=60)])
    found = [(c.change, c.weights_version) for s in steps for c in s.crossings]
    assert found == [(Change.VIOLATED, "3"), (Change.SUPERSEDED, "3")]


def test_replicas_without_a_slice_share_one_incident():
    gate = gated(slices=(EVERYTHING,))
    steps = fed(gate, [outcome(0.9, "1", f"r{i % 2}", i=i) for i in range(40)])
    assert [(c.slice, c.change) for s in steps for c in s.crossings] == [("all", Change.VIOLATED)]
    assert gate.versions == {"rejected": 2}
    steps = fed(gate, [outcome(0.9, "2", "r7", i=50 + i) for i in range(40)])
    found = [(c.change, c.weights_version) for s in steps for c in s.crossings]
    assert found == [(Change.SUPERSEDED, "1"), (Change.VIOLATED, "2")]


def test_replicas_beyond_the_slice_share_its_other():
    gate = gated(refit=Refit(tokens=40))
    steps = fed(gate, [outcome(0.99, "1", f"r{n}", i=i, tokens=1) for n in range(6) for i in range(12)])
    names = [c.slice for s in steps for c in s.crossings]
    assert names == [
        "replica=r0",
        "replica=r1",
        "replica=r2",
        "replica=r3",
        "replica=other",
    ]  # the sixth shares its incident


def test_a_replica_is_named_as_its_slice_is():
    gate = gated(refit=Refit(tokens=40))
    odd = [outcome(0.99, "1", "r0,task=math", i=i, tokens=1) for i in range(12)]
    [name] = [c.slice for s in fed(gate, odd) for c in s.crossings]
    assert [name] == [name for _, name in SliceBook([BY_REPLICA]).instances(odd[0])]


def test_a_group_is_one_unit():
    grouped = gated(clause("tv", LIMIT), compare=Compare(unit="group"), refit=Refit(tokens=1000))
    single = gated(clause("tv", LIMIT), refit=Refit(tokens=1000))
    values = [[0.9, 0.1], [0.8, 0.0], [0.9, 0.9], [0.7, 0.3], [0.9, 0.5], [0.9, 0.8]]
    members = [
        outcome(v, i=2 * g + m, group_id=f"g{g}", tokens=1)
        for g, group in enumerate(values)
        for m, v in enumerate(group)
    ]
    steps = fed(grouped, members)
    means = [outcome(float(np.mean(group)), i=g, tokens=1) for g, group in enumerate(values)]
    alone = fed(single, means)
    (crossing,), (same,) = ([c for s in told for c in s.crossings] for told in (steps, alone))
    first, second = grouped.report(crossing).verdict, single.report(same).verdict
    assert (first.units, second.units) == (5, 5)
    assert first.log10_e == pytest.approx(second.log10_e)
    assert grouped.verdicts()[0].sequences == 11  # the group is over when the next one begins


def test_what_is_remembered_is_bounded():
    gate = gated(refit=Refit(tokens=2))
    for version in range(REMEMBERED + 50):
        fed(gate, [outcome(0.9 if version % 2 else 0.0, str(version), f"r{version}", tokens=1)])
    assert len(gate.verdicts()) == len(gate._newest) == len(gate._tests) == REMEMBERED
    size = len(pickle.dumps(gate))
    for version in range(200):
        fed(gate, [outcome(0.0, f"more-{version}", f"r{version}", tokens=1)])
    assert len(pickle.dumps(gate)) <= 1.05 * size


# ---- in the whole detector


def detector():
    return Detector(replace(watched(), refit=REFIT), deployment="d")


def ended(machine, events):
    events = [*events, *machine.flush(END_NS), *machine.tick(END_NS)]
    return [repr(e) for e in events], [repr(v) for v in machine.verdicts()], machine.refit.verdicts()


@cache
def plain():
    machine = detector()
    return ended(machine, [e for trace in TRACES for e in machine.process([trace], 0)])


def test_rejected_weights_escalate_with_hold_refit_and_enter_no_verdict():
    machine = detector()
    events = [e for trace in TRACES for e in machine.process([trace], 0)] + list(machine.flush(END_NS))
    refused = [e for e in events if "rejected" in e.summary]
    first = refused[0]
    assert (first.after, first.slice, first.weights_version) == (Phase.FIRING, "replica=r1", "2")
    assert Action("hold_refit", {"where": "replica=r1"}) in first.actions
    assert first.summary.startswith(f"{first.clause} firing in replica=r1: weights 2 rejected: ")
    assert first.diagnosis[0].cause == "stale_weights"
    assert len(first.trace_ids) > 0
    assert NEW_WEIGHTS_FROM * NS // 20 < first.issued_ns < (NEW_WEIGHTS_FROM + 40) * NS // 20
    assert {v.state for v in machine.refit.verdicts() if v.weights_version == "1"} == {RefitState.ACCEPTED}
    paired_new = (len(range(NEW_WEIGHTS_FROM, 220))) // REPLICAS
    assert machine.refit.sequences["rejected"] > paired_new / 2
    ungated = Detector(watched(), deployment="d")
    for trace in TRACES:
        list(ungated.process([trace], 0))
    list(ungated.flush(END_NS))
    held = machine.refit.sequences["held"] + machine.refit.sequences["rejected"]
    assert machine.evaluator.reasons["paired"] == ungated.evaluator.reasons["paired"] - held


def test_the_monitors_find_what_goes_bad_after_it_was_accepted():
    machine = detector()
    events = [e for trace in TRACES for e in machine.process([trace], 0)]
    early = [e for e in events if e.weights_version == "1" and e.after is Phase.FIRING]
    assert {e.slice for e in early} >= {"replica=r1"}
    assert min(e.issued_ns for e in early) > STALE_FROM * NS // 20
    assert all("hold_refit" not in {a.kind for a in e.actions} for e in early)


@settings(max_examples=10)
@given(st.sets(st.integers(1, len(TRACES) - 1), max_size=12))
def test_cutting_the_stream_anywhere_changes_nothing(cuts):
    machine, events = detector(), []
    for start, stop in pairwise([0, *sorted(cuts), len(TRACES)]):
        events += machine.process(TRACES[start:stop], 0)
    assert ended(machine, events) == plain()


@settings(max_examples=10)
@given(st.sets(st.integers(0, len(TRACES)), min_size=1, max_size=4))
def test_a_restart_through_a_snapshot_at_any_record_changes_nothing(restarts):
    machine, events = detector(), []
    for place, trace in enumerate(TRACES):
        if place in restarts:
            machine = load(dump(machine), contract_digest=machine.contract.digest)
        events += machine.process([trace], 0)
    assert ended(machine, events) == plain()


def test_a_level_that_holds_refits_already_asks_once():
    rules = (Escalation(When(), (Level(Severity.CRITICAL, (Action("hold_refit"), Action("page"))),)),)
    machine = Detector(replace(watched(), refit=REFIT, escalation=rules))
    events = [e for trace in TRACES for e in machine.process([trace], 0)]
    (first,) = (e for e in events if "rejected" in e.summary and e.after is Phase.FIRING)
    assert [a.kind for a in first.actions] == ["hold_refit", "page"]
