"""The whole detector on a stream: what it says does not depend on cuts, restarts or copies."""

import pickle
from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import EVERYTHING, NS, both, clause, contract, top_k
from trace_streams import STALE_FROM, stream, watched

from paritas.contracts.load import load_named
from paritas.contracts.model import Compare, Escalation, Family, Level, Stage, When
from paritas.detectors.pipeline import Detector, TraceAccount
from paritas.detectors.snapshot import dump, load
from paritas.records import Phase, Reason, Severity, State, TokenStatus

TRACES = stream()
SECOND_NS = len(TRACES) * NS // 40  # later than every sequence


def detector(**more):
    return Detector(watched(), deployment="d", **more)


def ended(machine, events):
    """Return everything that was said: events and verdicts at the end of input."""
    events = [*events, *machine.flush(SECOND_NS), *machine.tick(SECOND_NS)]
    return [repr(e) for e in events], [repr(v) for v in machine.verdicts()]


@cache
def plain():
    machine = detector()
    return ended(machine, [e for trace in TRACES for e in machine.process([trace], 0)])


def test_the_stale_replica_is_found_explained_and_superseded_by_new_weights():
    machine = detector()
    events = [e for trace in TRACES for e in machine.process([trace], 0)]
    firing = [e for e in events if e.after is Phase.FIRING and e.clause == "mean_ratio"]
    assert {(e.slice, e.diagnosis[0].cause) for e in firing} == {
        ("all", "stale_weights"),
        ("replica=r1", "stale_weights"),
    }
    assert STALE_FROM * NS // 20 < firing[0].issued_ns < (STALE_FROM + 40) * NS // 20
    assert len(firing[0].trace_ids) == 5
    assert all(e.slice in ("all", "replica=r1") for e in events)
    over = {e.incident_id: e.after for e in events}
    first = {e.incident_id for e in events if e.weights_version == "1"}
    assert {over[i] for i in first} == {Phase.SUPERSEDED}
    states = {(v.clause, v.slice): v.state.value for v in machine.verdicts()}
    assert states["mean_ratio", "replica=r1"] == "violated"
    assert states["mean_ratio", "replica=r0"] == states["mean_ratio", "replica=r2"] != "violated"
    assert states["nonfinite_rate", "all"] == states["kernel_identity", "all"] == "conforming"


@settings(max_examples=12)
@given(st.sets(st.integers(1, len(TRACES) - 1), max_size=12))
def test_cutting_the_stream_anywhere_changes_nothing(cuts):
    machine, events = detector(), []
    for start, stop in pairwise([0, *sorted(cuts), len(TRACES)]):
        events += machine.process(TRACES[start:stop], 0)
    assert ended(machine, events) == plain()


@settings(max_examples=12)
@given(st.sets(st.integers(0, len(TRACES)), min_size=1, max_size=4))
def test_a_restart_through_a_snapshot_at_any_record_changes_nothing(restarts):
    machine, events = detector(), []
    for place, trace in enumerate(TRACES):
        if place in restarts:
            machine = load(dump(machine), contract_digest="d")
        events += machine.process([trace], 0)
    assert ended(machine, events) == plain()


@settings(max_examples=12)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_copies_change_nothing(random, copies):
    arrivals = [(float(i), trace) for i, trace in enumerate(TRACES)]
    for _ in range(copies):
        place = random.randrange(len(TRACES))
        arrivals.append((random.uniform(place, len(TRACES)), TRACES[place]))
    machine, events = detector(), []
    for _, trace in sorted(arrivals, key=lambda arrival: arrival[0]):
        events += machine.process([trace], 0)
    assert ended(machine, events) == plain()
    assert machine.evaluator.reasons["duplicate"] + machine.evaluator.reasons.get("late", 0) == copies


def test_the_same_stream_under_another_deployment_has_other_ids_and_nothing_else():
    machine = Detector(watched(), deployment="e")
    events, verdicts = ended(machine, [e for t in TRACES for e in machine.process([t], 0)])
    assert verdicts == plain()[1]
    assert len(events) == len(plain()[0])
    assert not set(events) & set(plain()[0])


def test_ids_and_incidents_are_unique_in_a_whole_run():
    machine = detector()
    events = [e for t in TRACES for e in machine.process([t], 0)]
    assert len({e.event_id for e in events}) == len(events) >= 4


def test_a_recording_is_judged_as_a_whole_and_stays_violated():
    quiet = [replace(t, weights_version="1") for t in stream(600)]
    machine = detector(recover=False)
    events = [e for t in quiet for e in machine.process([t], 0)]
    assert not [e for e in events if e.after in (Phase.RECOVERING, Phase.RESOLVED)]


def test_memory_reaches_a_plateau():
    machine, sizes = Detector(replace(watched(), compare=Compare(pair_within_s=2.0))), []
    for part in range(5):
        for trace in stream(150):
            event_ns = trace.event_ns + part * 8 * NS
            moved = replace(trace, sequence_id=f"{part}{trace.sequence_id}", event_ns=event_ns)
            list(machine.process([moved], event_ns))
        machine.pairer.matcher._done.clear()  # finished sequences are remembered by name: test_pairing bounds them
        sizes.append(len(pickle.dumps(machine)))
    assert max(sizes[2:]) <= 1.05 * sizes[1]


# ---- clocks


def test_a_tick_closes_the_newest_cohort():
    machine = Detector(contract(clause("tv", 0.1)))
    for trace in both(event_ns=NS):
        assert list(machine.process([trace], NS)) == []
    assert machine.verdicts()[0].units == 0
    assert list(machine.tick(NS)) == []
    assert machine.verdicts()[0].units == 1


YEARS_NS = 10 * 365 * 86400 * NS
LOG_NS = [ns + NS // 10 for ns in accumulate((t.event_ns for t in TRACES), max)]  # when the log takes each
ODD_AT = 40


def with_odd(odd):
    """Return all that is said of the stream, taken as it happens, with other traces in front of one of it."""
    machine, events = detector(), []
    for i, (trace, log_ns) in enumerate(zip(TRACES, LOG_NS, strict=True)):
        events += machine.process([*odd, trace] if i == ODD_AT else [trace], log_ns)
    return ended(machine, events)


@pytest.mark.parametrize("roles", [("inference",), ("train",), ("inference", "train")], ids="+".join)
@pytest.mark.parametrize("ahead_ns", [3600 * NS, YEARS_NS], ids=["hour", "years"])
def test_a_sender_whose_clock_is_ahead_is_judged_as_if_it_were_right(roles, ahead_ns):
    odd = [t for t in both("odd", attributes={"replica": "r2"}) if t.kernel.role.value in roles]
    right, wrong = [[replace(t, event_ns=LOG_NS[ODD_AT] + more) for t in odd] for more in (0, ahead_ns)]
    assert with_odd(wrong) == with_odd(right) != with_odd(())


def test_a_clock_that_is_a_little_ahead_is_believed():
    machine = Detector(contract(clause("tv", 0.1)))
    for trace in both(event_ns=1800 * NS):
        list(machine.process([trace], 0))
    assert machine.pairer.cohorts._watermark_ns == 1800 * NS


def test_what_never_finds_its_half_counts_after_the_contracts_time():
    machine = Detector(contract(clause("pairing_rate", at_least=1.0, family=Family.OBSERVABILITY)))
    list(machine.process([both()[0]], 0))
    assert list(machine.tick(599 * NS)) == []
    (event,) = machine.tick(600 * NS)
    assert (event.clause, event.after) == ("pairing_rate", Phase.FIRING)


def test_silence_is_the_time_since_a_kernel_last_spoke():
    machine = Detector(contract(clause("silence", 30.0, Family.OBSERVABILITY)))
    assert list(machine.tick(10**6 * NS)) == []  # nothing has ever spoken
    inference, train = both()
    list(machine.process([inference], 0))
    list(machine.process([train], 20 * NS))
    assert list(machine.tick(30 * NS)) == []
    (event,) = machine.tick(31 * NS)  # the inference kernel
    assert (event.clause, event.slice, event.after) == ("silence", "all", Phase.FIRING)
    assert machine.verdicts()[0].limit == 30.0


def test_a_kernel_that_speaks_again_is_no_longer_silent():
    rules = (Escalation(When(), (Level(Severity.WARNING),), keep_firing_for_s=0.0),)
    machine = Detector(contract(clause("silence", 30.0, Family.OBSERVABILITY), escalation=rules))
    list(machine.observe((machine.pairer.matcher.take(t, 0) for t in both()), 0))
    fired = list(machine.tick(31 * NS))
    assert list(machine.tick(32 * NS)) == []  # told once
    list(machine.observe((machine.pairer.matcher.take(t, 33 * NS) for t in both("b")), 33 * NS))
    after = list(machine.tick(34 * NS))
    assert [e.after for e in [*fired, *after]] == [Phase.FIRING, Phase.RECOVERING, Phase.RESOLVED]
    assert len({e.incident_id for e in [*fired, *after]}) == 1


NO_DATA = Escalation(When(state=(State.NO_DATA,)), (Level(Severity.WARNING),), keep_firing_for_s=0.0)


def test_a_clause_without_data_is_told_when_its_time_is_over_and_when_data_comes():
    whole = contract(clause("tv_topk", 0.1), escalation=(NO_DATA,), compare=Compare(pair_within_s=60.0))
    machine = Detector(whole)
    assert list(machine.tick(NS // 2)) == []  # nothing has ever come
    list(machine.process(both(event_ns=NS), NS))  # a pair, but no lists
    early = [e for s in range(2, 61) for e in machine.tick(s * NS)]
    (event,) = machine.tick(61 * NS)
    assert early == []
    assert (event.clause, event.slice, event.after) == ("tv_topk", "all", Phase.FIRING)
    assert event.summary == "tv_topk firing in all: no data"
    lists = top_k([[1, 2]] * 3, np.log([[0.6, 0.4]] * 3))
    list(machine.process([replace(t, top=lists) for t in both("b", event_ns=62 * NS)], 62 * NS))
    assert [e.after for e in machine.tick(63 * NS)] == [Phase.RECOVERING, Phase.RESOLVED]


def test_dwell_times_end_while_nothing_arrives():
    levels = (Level(Severity.WARNING), Level(Severity.CRITICAL, after_s=2.0))
    rules = (Escalation(When(), levels, for_s=1.0),)
    machine, p = Detector(contract(clause("tv", 0.05), escalation=rules)), (-5.0, -6.0, -4.0)
    for i in range(9):
        list(machine.process(both(f"s{i}", p=p, event_ns=0), 0))
    assert list(machine.tick(NS // 2)) == []
    events = [e for second in (1, 2, 3, 60) for e in machine.tick(second * NS)]
    assert [(e.issued_ns // NS, e.level, e.severity.value) for e in events] == [
        (1, 0, "warning"),
        (3, 1, "critical"),
    ]


def test_dwell_times_end_while_traffic_never_pauses():
    rules = (Escalation(When(), (Level(Severity.WARNING),), for_s=5.0),)
    machine, p = Detector(contract(clause("tv", 0.05), escalation=rules)), (-5.0, -6.0, -4.0)
    steps = [number * NS // 2 for number in range(40)]  # never a second of silence
    events = [e for t in steps for e in machine.process(both(f"s{t}", p=p, event_ns=t), t)]
    assert [(e.after, e.slice) for e in events] == [(Phase.FIRING, "all")]
    assert events[0].issued_ns < steps[-1]


def test_clauses_of_other_stages_are_not_judged():
    whole = contract(clause("tv", 0.1, stages=(Stage.CANARY,)), clause("kl_k3", 0.1))
    assert [v.clause for v in Detector(whole).verdicts()] == ["kl_k3"]
    assert [v.clause for v in Detector(whole, stage=Stage.CANARY).verdicts()] == ["tv", "kl_k3"]


# ---- accounts


HEADERS = {"paritas-agent": "a", "paritas-epoch": "1", "paritas-seq": "7"}


def test_a_record_is_known_by_agent_epoch_and_number():
    machine = detector()
    assert not machine.is_repeat(HEADERS)
    assert machine.is_repeat(HEADERS)
    for name in HEADERS:
        assert not machine.is_repeat({**HEADERS, name: "x"})
    assert machine.repeated_records == 1
    restored = load(dump(machine), contract_digest="d")
    assert restored.is_repeat(HEADERS)


@pytest.mark.parametrize("missing", HEADERS)
def test_a_record_without_its_headers_is_never_a_repeat(missing):
    machine = detector()
    some = {k: v for k, v in HEADERS.items() if k != missing}
    assert [machine.is_repeat(some) for _ in range(3)] == [False] * 3


def test_tokens_and_traces_are_counted_by_role_and_status():
    account = TraceAccount()
    status = np.array([TokenStatus.VALID, TokenStatus.MISSING, TokenStatus.VALID], np.uint8)
    for trace in both(status=status):
        account.add(trace)
    account.add(both()[0])
    assert account.traces == {"inference": 2, "train": 1}
    counted = {key: n for key, n in account.tokens.items() if n}
    assert counted == {
        ("inference", "valid"): 5,
        ("inference", "missing"): 1,
        ("train", "valid"): 2,
        ("train", "missing"): 1,
    }
    assert sum(account.tokens.values()) == 9


def test_every_preset_makes_a_detector_that_can_be_saved():
    whole = load_named("dense-bf16")
    machine = Detector(whole)
    list(machine.process([t for t in TRACES if t.sequence_id < "s-0040"], 0))
    restored = load(dump(machine), contract_digest=whole.digest)
    assert [repr(v) for v in restored.verdicts()] == [repr(v) for v in machine.verdicts()]
    assert EVERYTHING.name in {v.slice for v in machine.verdicts()}


def rule(*states):
    return (Escalation(When(state=states), (Level(Severity.WARNING),), keep_firing_for_s=5.0),)


def test_a_silence_that_ends_is_resolved():
    silence = clause("silence", 30.0, Family.OBSERVABILITY)
    machine = Detector(contract(silence, escalation=rule(State.VIOLATED)))
    list(machine.process(both(), 0))
    events = [e for s in (31, 40) for e in machine.tick(s * NS)]
    list(machine.process(both("again"), 50 * NS))
    events += [e for s in (51, 60) for e in machine.tick(s * NS)]
    assert [(e.after, e.issued_ns // NS) for e in events] == [
        (Phase.FIRING, 31),
        (Phase.RECOVERING, 51),
        (Phase.RESOLVED, 56),
    ]
    assert len({e.incident_id for e in events}) == 1


def test_missing_data_escalates_where_a_rule_asks_for_it_and_is_resolved_by_data():
    finite = clause("nonfinite_rate", 0.0, Family.OBSERVABILITY)
    both_states = (State.VIOLATED, State.NO_DATA)
    machine = Detector(contract(finite, escalation=rule(*both_states), compare=Compare(pair_within_s=10.0)))
    (lonely, _) = both("lonely")
    list(machine.process([lonely], NS))
    assert list(machine.tick(10 * NS)) == []
    (event,) = machine.tick(11 * NS)
    assert (event.after, event.verdict.state, event.summary) == (
        Phase.FIRING,
        State.NO_DATA,
        "nonfinite_rate firing in all: no data",
    )
    list(machine.process(both("paired", event_ns=5 * NS), 12 * NS))
    events = [e for s in (13, 14, 30) for e in machine.tick(s * NS)]
    assert [e.after for e in events] == [Phase.RECOVERING, Phase.RESOLVED]
    assert {e.incident_id for e in events} == {event.incident_id}


def test_missing_data_is_silent_where_no_rule_asks_for_it():
    finite = clause("nonfinite_rate", 0.0, Family.OBSERVABILITY)
    machine = Detector(contract(finite, escalation=rule(State.VIOLATED)))
    (lonely, _) = both("lonely")
    list(machine.process([lonely], NS))
    assert list(machine.tick(10**6 * NS)) == []


def test_a_refuted_limit_and_missing_data_are_two_incidents():
    """Losses refute pairing while another clause has no data at all: neither hides the other."""
    paired = clause("pairing_rate", None, Family.OBSERVABILITY, at_least=0.9)
    finite = clause("nonfinite_rate", 0.0, Family.OBSERVABILITY)
    machine = Detector(
        contract(
            paired,
            finite,
            escalation=rule(State.VIOLATED, State.NO_DATA),
            compare=Compare(pair_within_s=10.0),
        )
    )
    for i in range(40):
        list(machine.process([both(f"s{i}")[0]], NS))
    events = [e for s in (12, 13) for e in machine.tick(s * NS)]
    assert {(e.clause, e.verdict.state) for e in events} == {
        ("pairing_rate", State.VIOLATED),
        ("nonfinite_rate", State.NO_DATA),
    }


def test_a_pair_made_after_the_deadline_counts_against_pairing():
    late = clause("pairing_rate", None, Family.OBSERVABILITY, at_least=0.9, within_s=5.0)
    machine = Detector(contract(late))
    for i, delay_s in enumerate((1, 5, 6, 60)):
        inference, train = both(f"s{i}")
        list(machine.process([inference], 0))
        list(machine.process([train], delay_s * NS))
    list(machine.flush(100 * NS))
    (verdict,) = machine.verdicts()
    assert (verdict.units, verdict.estimate, verdict.state) == (4, 0.5, State.UNDECIDED)


def test_a_derived_limit_loses_its_certificate_and_is_never_violated():
    derived = clause("tv", 0.05, derived=True)
    machine = Detector(contract(derived, escalation=rule(State.VIOLATED)))
    events = [e for i in range(30) for e in machine.process(both(f"s{i}", p=(-5.0, -6.0, -4.0)), 0)]
    events += machine.flush(0)
    (verdict,) = machine.verdicts()
    assert (verdict.state, verdict.reason, events) == (State.UNDECIDED, Reason.CERTIFICATE_LOST, [])
