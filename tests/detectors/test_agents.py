"""Agents: one that falls silent, one that was announced and never came, and one that comes back."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import NS, both, clause, contract
from trace_streams import stream, watched

from paritas.contracts.model import Family
from paritas.detectors.agents import GONE_NS, REMEMBERED, AgentBook
from paritas.detectors.crossings import Change
from paritas.detectors.pipeline import Detector
from paritas.detectors.snapshot import dump, load
from paritas.records import Phase, Reason, State

SILENCE = clause("agent_silence", 5.0, Family.OBSERVABILITY)
ANNOUNCED = replace(SILENCE, agents=("pod-1", "pod-2"))


def told(book, asked=SILENCE):
    return {v.slice: (v.state, v.reason, v.estimate) for v in book.verdicts(asked)}


def changes(crossings):
    return [(c.change, c.slice, c.event_ns / NS) for c in crossings]


def test_an_agent_that_was_seen_and_is_silent_is_violated_at_its_deadline_and_recovers():
    book = AgentBook((SILENCE,))
    assert changes(book.hear("pod-1", 10 * NS)) == []
    assert changes(book.hear("pod-2", 14 * NS)) == []
    assert changes(book.elapse(15 * NS)) == []
    assert changes(book.elapse(15 * NS + 1)) == [(Change.VIOLATED, "agent=pod-1", 15.0)]
    assert changes(book.elapse(17 * NS)) == []
    assert told(book) == {
        "agent=pod-1": (State.VIOLATED, Reason.COUNTEREXAMPLE, 7.0),
        "agent=pod-2": (State.CONFORMING, Reason.MATCHED, 3.0),
    }
    assert changes(book.hear("pod-1", 20 * NS)) == [
        (Change.VIOLATED, "agent=pod-2", 19.0),
        (Change.RECOVERED, "agent=pod-1", 20.0),
    ]


def test_an_announced_agent_that_never_came_is_silent_from_the_first_record_on():
    book = AgentBook((ANNOUNCED,))
    assert changes(book.elapse(3 * NS)) == []
    assert changes(book.hear("pod-1", 4 * NS)) == []
    assert told(book, ANNOUNCED)["agent=pod-2"] == (State.NO_DATA, Reason.NOT_REPORTED, 0.0)
    assert changes(book.hear("pod-1", 8 * NS)) == []
    assert changes(book.hear("pod-1", 9 * NS + 1)) == [(Change.VIOLATED, "agent=pod-2", 9.0)]
    assert told(book, ANNOUNCED)["agent=pod-2"][:2] == (State.VIOLATED, Reason.NOT_REPORTED)
    assert changes(book.hear("pod-2", 11 * NS)) == [(Change.RECOVERED, "agent=pod-2", 11.0)]


def test_an_agent_nobody_announced_is_gone_after_a_day_and_an_announced_one_never():
    book = AgentBook((ANNOUNCED,))
    for agent in ("pod-1", "pod-2", "pod-3"):
        list(book.hear(agent, NS))
    list(book.elapse(10 * NS))
    assert changes(book.elapse(NS + GONE_NS + 1)) == [(Change.RECOVERED, "agent=pod-3", 1 + GONE_NS / NS)]
    assert set(told(book, ANNOUNCED)) == {"agent=pod-1", "agent=pod-2"}


def test_memory_is_bounded_and_announced_agents_stay():
    book = AgentBook((ANNOUNCED,))
    for i in range(REMEMBERED + 10):
        list(book.hear(f"pod-{i + 1}", i))
    assert len(book.heard) == REMEMBERED + 2
    assert {"pod-1", "pod-2", f"pod-{REMEMBERED + 10}"} <= set(book.heard)


def test_a_silent_agent_that_is_forgotten_for_want_of_room_leaves_no_incident_behind():
    book = AgentBook((SILENCE,))
    list(book.hear("first", 0))
    assert changes(book.elapse(6 * NS)) == [(Change.VIOLATED, "agent=first", 5.0)]
    ended = [c for i in range(REMEMBERED) for c in book.hear(f"pod-{i}", 7 * NS)]
    assert changes(ended) == [(Change.RECOVERED, "agent=first", 7.0)]
    assert "first" not in book.heard
    assert not book.is_missing


def test_without_an_agent_there_is_no_data():
    book = AgentBook((SILENCE,))
    list(book.hear("", NS))
    assert {k: v[:2] for k, v in told(book).items()} == {"agent=": (State.NO_DATA, Reason.NO_UNITS)}


def test_nothing_passes_while_an_agent_is_missing():
    machine = Detector(contract(SILENCE, clause("tv", 0.1)))
    for i in range(400):
        for view in both(f"s{i}", event_ns=i * NS // 100):
            list(machine.process([view], i * NS // 100, agent="pod-1"))
    list(machine.process([], 4 * NS, agent="pod-2"))
    before = {v.clause: (v.state, v.reason) for v in machine.verdicts()}
    list(machine.process([], 10 * NS, agent="pod-2"))
    after = {(v.clause, v.slice): (v.state, v.reason) for v in machine.verdicts()}
    assert before["tv"] == (State.CONFORMING, Reason.CERTIFIED)
    assert after["tv", "all"] == (State.UNDECIDED, Reason.COVERAGE)
    assert after["agent_silence", "agent=pod-1"][0] is State.VIOLATED


def test_a_missing_agent_is_an_incident_of_its_own_while_others_report():
    machine, events = Detector(contract(ANNOUNCED)), []
    for second in range(1, 12):
        events += machine.process([], second * NS, agent="pod-1")
    assert [(e.clause, e.slice, e.after, e.issued_ns) for e in events] == [
        ("agent_silence", "agent=pod-2", Phase.FIRING, 6 * NS)
    ]
    assert (events[0].verdict.state, events[0].verdict.reason) == (State.VIOLATED, Reason.NOT_REPORTED)
    events = list(machine.process([], 12 * NS, agent="pod-2"))
    events += machine.tick(13 * NS)
    assert [e.after for e in events] == [Phase.RECOVERING, Phase.RESOLVED]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 219), max_size=3), st.integers(0, 2**32 - 1))
def test_a_restart_through_a_snapshot_and_more_time_in_between_change_nothing(restarts, seed):
    whole = watched()
    whole = replace(whole, clauses=(*whole.clauses, replace(ANNOUNCED, at_most=1.0)))

    def run(restarted):
        machine, said = Detector(whole, deployment="d"), []
        for i, trace in enumerate(stream()):
            if i in restarted:
                machine = load(dump(machine), contract_digest="d")
            agent = f"pod-{1 + (i * 7 + seed) % 5 % 3 if i % 90 > 30 else 1}"
            said += machine.process([trace], trace.event_ns, agent=agent)
            if i in restarted:
                said += machine.elapse(trace.event_ns)
        return [repr(e) for e in said], [repr(v) for v in machine.verdicts()]

    assert run(()) == run(restarts)


@pytest.mark.parametrize("limit", [0.0, 1e-9])
def test_a_tiny_limit_fires_as_soon_as_time_has_passed(limit):
    book = AgentBook((replace(SILENCE, at_most=limit),))
    list(book.hear("a", 5))
    assert [c.change for c in book.elapse(7)] == [Change.VIOLATED]
