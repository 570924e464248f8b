"""Records that were lost on the way: counted once, and nothing passes over the gap."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import EVERYTHING, NS, both, clause, contract
from trace_streams import stream, watched

from paritas.contracts.model import Compare, Escalation, Family, Level, When
from paritas.detectors.gaps import REMEMBERED, GapBook
from paritas.detectors.pipeline import Detector
from paritas.detectors.snapshot import dump, load
from paritas.records import Phase, Reason, Severity, State
from paritas.wire import Gap

WITHIN_S = 5.0
OPEN_S = WITHIN_S + 1.0  # and the width of a cohort
LOST = Gap("pod-7", 3, 8, "overflow")
COUNTED = st.builds(
    lambda stream, first, n, reason: Gap(stream, first, first + n, reason),
    st.sampled_from(["a", "b"]),
    st.integers(0, 4),
    st.integers(0, 3),
    st.sampled_from(["overflow", "corrupt"]),
)


def calm():
    """Conforming without a doubt, and with a rule for missing data."""
    clauses = (
        clause("tv", 0.02),
        clause("pairing_rate", None, Family.OBSERVABILITY, at_least=0.5),
        clause("kernel_identity", family=Family.RUNTIME),
    )
    rule = Escalation(When(state=(State.NO_DATA,)), (Level(Severity.WARNING),))
    made = contract(*clauses, slices=(EVERYTHING,), escalation=(rule,))
    return replace(made, compare=Compare(pair_within_s=WITHIN_S))


def fed(machine, start, stop):
    """Feed pairs, one each 10 ms of event and log time; returns the escalations."""
    events = []
    for i in range(start, stop):
        now_ns = i * NS // 100
        for trace in both(f"s{i}", event_ns=now_ns):
            events += machine.process([trace], now_ns)
    return events


def told(machine):
    return {v.clause: (v.state, v.reason) for v in machine.verdicts()}


@cache
def before_and_after():
    """Verdicts and escalations before a gap, in it, and after it."""
    machine = Detector(calm())
    quiet = fed(machine, 0, 1000)
    states = [told(machine)]
    lost = list(machine.process([], 10 * NS, gaps=[LOST]))
    states.append(told(machine))
    quiet += fed(machine, 1001, 1000 + round(100 * OPEN_S))
    states.append(told(machine))
    mended = fed(machine, 1000 + round(100 * OPEN_S), 1602)
    states.append(told(machine))
    mended += fed(machine, 1602, 2500)
    states.append(told(machine))
    mended += [*machine.tick(25 * NS), *machine.tick(3600 * NS)]
    return quiet, lost, mended, states


def test_a_gap_turns_every_judgement_but_the_identity_into_no_data():
    _, _, _, (before, inside, later, *_) = before_and_after()
    assert before["tv"] == (State.CONFORMING, Reason.CERTIFIED)
    assert before["pairing_rate"] == (State.CONFORMING, Reason.MATCHED)
    assert {k: v for k, v in inside.items() if k != "kernel_identity"} == dict.fromkeys(
        ("tv", "pairing_rate"), (State.NO_DATA, Reason.GAP)
    )
    assert later == inside


def test_certificates_begin_again_behind_the_gap():
    _, _, _, (*_, mended, passed) = before_and_after()
    assert mended["tv"] == (State.UNDECIDED, Reason.NEEDS_MORE_UNITS)
    assert passed["tv"] == (State.CONFORMING, Reason.CERTIFIED)


def test_missing_data_are_an_incident_that_ends_when_the_log_is_whole_again():
    quiet, lost, mended, _ = before_and_after()
    assert quiet == []
    assert {(e.clause, e.after) for e in lost} == {
        ("tv", Phase.FIRING),
        ("pairing_rate", Phase.FIRING),
    }
    assert {e.verdict.reason for e in lost} == {Reason.GAP}
    last = {e.clause: e.after for e in mended}
    assert last == {"tv": Phase.RESOLVED, "pairing_rate": Phase.RESOLVED}


def test_a_violation_stays_one_in_a_gap():
    machine, traces = Detector(watched()), stream()
    for trace in traces[:200]:
        list(machine.process([trace], 0))
    before = {k: v for k, v in told(machine).items() if v[0] is State.VIOLATED}
    list(machine.process([], 0, gaps=[LOST]))
    assert before
    assert before.items() <= told(machine).items()


@pytest.mark.parametrize("copies", [1, 3])
def test_what_is_told_twice_counts_once_and_prolongs_nothing(copies):
    machine = Detector(calm())
    for i in range(copies):
        list(machine.process([], i * NS, gaps=[LOST]))
    assert machine.gaps.lost == {"overflow": 6}
    assert machine.gaps.streams == {"pod-7": 6}
    assert machine.gaps.until_ns == round(OPEN_S * NS)


@settings(max_examples=15)
@given(st.lists(st.integers(0, 219), max_size=4, unique=True), st.lists(st.integers(0, 219), max_size=3))
def test_a_restart_through_a_snapshot_changes_nothing(places, restarts):
    def run(restarted):
        machine, said = Detector(watched(), deployment="d"), []
        for i, trace in enumerate(stream()):
            if i in restarted:
                machine = load(dump(machine), contract_digest="d")
            gaps = [Gap("pod-7", 10 * i, 10 * i + 4, "overflow")] if i in places else []
            said += machine.process([trace], trace.event_ns, gaps=gaps)
        return [repr(e) for e in said], [repr(v) for v in machine.verdicts()], machine.gaps

    assert run(()) == run(restarts)


@given(st.lists(COUNTED, max_size=30))
def test_counts_are_those_of_the_distinct_gaps(gaps):
    book = GapBook(within_ns=1)
    for i, gap in enumerate(gaps):
        assert book.note([gap], i) == (gap not in gaps[:i])
    distinct = sum(gap.lost for gap in set(gaps))
    assert sum(book.lost.values()) == sum(book.streams.values()) == distinct


def test_memory_is_bounded_and_counts_go_on():
    book = GapBook(within_ns=1)
    for i in range(REMEMBERED + 10):
        book.note([Gap(f"pod-{i}", 0, 1, "overflow")], i)
    assert len(book.streams) == REMEMBERED
    assert book.others == 20
    assert book.lost == {"overflow": 2 * (REMEMBERED + 10)}
