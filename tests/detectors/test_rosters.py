"""Rosters: a pod without its sidecar, one that was deleted, and a source that falls silent or repeats itself."""

import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import NS, clause, contract
from trace_streams import stream, watched

from paritas.contracts.model import Family
from paritas.detectors.agents import GONE_NS, REMEMBERED, AgentBook
from paritas.detectors.crossings import Change
from paritas.detectors.decode import Decoder
from paritas.detectors.flink.evaluation import OrderedEvaluation
from paritas.detectors.flink.events import Arrival
from paritas.detectors.flink.pairing import KeyedPairing
from paritas.detectors.pipeline import Detector
from paritas.detectors.rosters import LEAVERS, SOURCES, RosterBook
from paritas.detectors.snapshot import dump, load
from paritas.records import Phase, Reason, State
from paritas.wire import Expected, Roster, encode_roster, origin_of

SILENCE = clause("agent_silence", 5.0, Family.OBSERVABILITY)
A, B = "roster:a", "roster:b"
BROKEN, BACK = Change.VIOLATED, Change.RECOVERED


def roster(number, *agents, name=A, epoch=1):
    """A roster; an agent is its name, or a name and the second since when it is expected."""
    told = [one if isinstance(one, tuple) else (one, 1e-9) for one in agents]
    return Roster(name, epoch, number, tuple(Expected(agent, round(s * NS), "absent") for agent, s in told))


def changes(crossings):
    return [(c.change, c.slice.removeprefix("agent="), c.event_ns / NS) for c in crossings]


def hear(book, second, agent="", *rosters):
    return changes(book.hear(agent, round(second * NS), rosters))


def told(book, asked=SILENCE):
    return {v.slice.removeprefix("agent="): (v.state, v.reason) for v in book.verdicts(asked)}


def test_a_pod_that_never_reports_is_missing_once_the_limit_after_its_start_is_over():
    book = AgentBook((SILENCE,))
    assert hear(book, 1, "", roster(1, ("pod-1", 3), ("pod-2", 2))) == []
    assert hear(book, 4, "pod-2") == []
    assert told(book)["pod-1"] == (State.NO_DATA, Reason.NOT_REPORTED)
    assert hear(book, 8, "", roster(2, ("pod-1", 3), ("pod-2", 2))) == [(BROKEN, A, 6.0), (BACK, A, 8.0)]
    assert changes(book.elapse(8 * NS + 1)) == [(BROKEN, "pod-1", 8.0)]
    assert told(book) == {
        "pod-1": (State.VIOLATED, Reason.NOT_REPORTED),
        "pod-2": (State.CONFORMING, Reason.MATCHED),
        A: (State.CONFORMING, Reason.MATCHED),
    }
    assert hear(book, 8.5, "pod-1") == [(BACK, "pod-1", 8.5)]


def test_one_that_is_overdue_when_it_is_first_listed_is_missing_at_once():
    book = AgentBook((SILENCE,))
    hear(book, 1, "pod-2")
    assert hear(book, 7, "pod-2", roster(1, ("pod-1", -8.0 + 8.5), "pod-2"))[-1] == (BROKEN, "pod-1", 6.0)
    assert told(book)["pod-1"] == (State.VIOLATED, Reason.NOT_REPORTED)


def test_before_the_log_began_nobody_can_have_been_heard():
    book = AgentBook((SILENCE,))
    assert hear(book, 100, "", roster(1, ("pod-1", 3))) == []
    assert hear(book, 105, "", roster(2, ("pod-1", 3))) == []
    assert hear(book, 106, "", roster(3, ("pod-1", 3))) == [(BROKEN, "pod-1", 105.0)]


def test_one_that_is_known_and_not_expected_yet_may_be_quiet():
    book = AgentBook((SILENCE,))
    hear(book, 1, "", roster(1, ("pod-1", 0)))
    assert changes(book.elapse(30 * NS)) == [(BROKEN, A, 6.0)]
    assert told(book)["pod-1"] == (State.NO_DATA, Reason.NOT_REPORTED)


def test_one_that_was_deleted_is_gone_at_once_and_what_it_still_had_to_send_does_not_bring_it_back():
    book = AgentBook((SILENCE,))
    hear(book, 1, "pod-1", roster(1, "pod-1", "pod-2"))
    hear(book, 4, "", roster(2, "pod-1", "pod-2"))
    assert hear(book, 7, "", roster(3, "pod-1", "pod-2")) == [(BROKEN, "pod-1", 6.0), (BROKEN, "pod-2", 6.0)]
    assert hear(book, 8, "", roster(4)) == [(BACK, "pod-1", 8.0), (BACK, "pod-2", 8.0)]
    assert hear(book, 9, "pod-1") == hear(book, 9, "pod-2") == []
    assert hear(book, 13, "", roster(5)) == hear(book, 18, "", roster(6)) == []
    assert set(told(book)) == {A}
    assert not book.is_missing


def test_one_that_is_listed_again_is_watched_from_its_last_record_on():
    book = AgentBook((SILENCE,))
    hear(book, 1, "pod-1", roster(1, "pod-1"))
    hear(book, 2, "", roster(2))
    hear(book, 3, "pod-1")
    assert hear(book, 4, "", roster(3, "pod-1")) == []
    assert hear(book, 8, "", roster(4, "pod-1")) == []
    assert hear(book, 9, "", roster(5, "pod-1")) == [(BROKEN, "pod-1", 8.0)]


def test_another_pod_by_the_name_of_one_that_was_heard_must_report_itself():
    book = AgentBook((SILENCE,))
    hear(book, 1, "pod-0", roster(1, "pod-0"))
    hear(book, 3, "pod-0", roster(2, ("pod-0", 4)))
    assert told(book)["pod-0"] == (State.NO_DATA, Reason.NOT_REPORTED)
    assert hear(book, 8.5, "", roster(3, ("pod-0", 4))) == [(BROKEN, A, 8.0), (BACK, A, 8.5)]
    assert hear(book, 9.5, "", roster(4, ("pod-0", 4))) == [(BROKEN, "pod-0", 9.0)]
    assert told(book)["pod-0"] == (State.VIOLATED, Reason.NOT_REPORTED)


def test_rosters_of_two_sources_do_not_touch_each_other():
    book = AgentBook((SILENCE,))
    hear(book, 1, "", roster(1, "pod-1", "both"), roster(1, "pod-2", "both", name=B))
    hear(book, 2, "", roster(2, "both"))
    assert set(told(book)) == {"both", "pod-2", A, B}
    hear(book, 3, "", roster(2, name=B))
    assert set(told(book)) == {"both", A, B}
    hear(book, 4, "", roster(3))
    assert set(told(book)) == {A, B}


def test_a_source_that_falls_silent_is_said_and_its_agents_stay_for_a_day():
    book = AgentBook((SILENCE,))
    hear(book, 1, "pod-1", roster(1, "pod-1", "pod-2"))
    for second in (4, 8):
        hear(book, second, "pod-1")
    assert told(book)[A] == (State.VIOLATED, Reason.COUNTEREXAMPLE)
    assert told(book)["pod-2"] == (State.VIOLATED, Reason.NOT_REPORTED)
    day = GONE_NS / NS
    hear(book, day, "pod-1")
    assert {"pod-1", "pod-2", A} == set(told(book))
    assert hear(book, day + 1.5, "pod-1") == [(BACK, A, day + 1), (BACK, "pod-2", day + 1)]
    assert set(told(book)) == {"pod-1"}


def test_a_copy_and_an_older_roster_change_nothing_and_a_source_that_began_again_does():
    book = AgentBook((SILENCE,))
    hear(book, 1, "", roster(2, "pod-1"))
    hear(book, 2, "", roster(1, "pod-2"), roster(2, "pod-3"))
    assert set(told(book)) == {"pod-1", A}
    hear(book, 3, "", roster(1, "pod-4", epoch=2))
    assert set(told(book)) == {"pod-4", A}


def test_whom_the_contract_names_does_not_leave():
    named = replace(SILENCE, agents=("pod-1",))
    book = AgentBook((named, replace(SILENCE, id="other")))
    hear(book, 1, "", roster(1, "pod-1"))
    hear(book, 5, "", roster(2, "pod-1"))
    assert hear(book, 7, "", roster(3)) == [
        (BROKEN, "pod-1", 6.0),
        (BROKEN, "pod-1", 6.0),
        (BACK, "pod-1", 7.0),  # for the clause that does not name it
    ]
    assert told(book, named)["pod-1"] == (State.VIOLATED, Reason.NOT_REPORTED)
    assert "pod-1" not in told(book, book.clauses[1])


def test_who_left_is_forgotten_a_day_after_the_last_word():
    book = AgentBook((SILENCE,))
    hear(book, 1, "pod-1", roster(1, "pod-1", "pod-2"))
    hear(book, 2, "", roster(2))
    hear(book, 5, "pod-1")
    day = GONE_NS / NS
    hear(book, day + 3, "x")
    assert list(book.rosters.left) == ["pod-1"]
    hear(book, day + 6, "x")
    assert (book.rosters.left, set(book.heard)) == ({}, {"x"})


def test_memory_is_bounded():
    book = AgentBook((SILENCE,))
    for i in range(SOURCES + 5):
        hear(book, 1 + i / 1000, "", roster(1, f"pod-{i}", name=f"roster:{i}"))
    assert len(book.rosters.sources) == SOURCES
    assert "pod-4" not in told(book)
    kept = RosterBook()
    for number in range(3):
        kept.take(roster(2 * number, *(f"p{number}-{i}" for i in range(LEAVERS // 2))), 1)
        kept.take(roster(2 * number + 1), 2)
    assert len(kept.left) == LEAVERS
    assert "p0-0" not in kept.left


def test_a_crowd_of_strangers_pushes_out_nobody_who_is_listed_and_no_source():
    book = AgentBook((replace(SILENCE, at_most=1e6),))
    hear(book, 1, "pod-1", roster(1, "pod-1"))
    for i in range(REMEMBERED + 3):
        hear(book, 2, f"stranger-{i}")
    assert len(book.heard) == REMEMBERED + 2
    assert {"pod-1", A, f"stranger-{REMEMBERED + 2}"} <= set(book.heard)


def test_without_a_clause_a_roster_is_nothing():
    machine = Detector(contract(clause("tv", 0.1)))
    assert list(machine.process([], NS, agent=A, rosters=[roster(1, "pod-1")])) == []
    assert not machine.evaluator.agents.rosters.sources


def events_of(*steps):
    machine, events = Detector(contract(SILENCE)), []
    for second, agent, *rosters in steps:
        events += machine.process([], second * NS, agent=agent, rosters=rosters)
    return events


@pytest.mark.parametrize(
    ("sidecar", "advice"),
    [
        (
            "absent",
            "the pod runs without the sidecar, so nothing it serves is observed: check that the injection",
        ),
        ("present", "the sidecar is in the pod and none of its records came: read its /readyz and its log"),
        ("unknown", "nothing that this agent should observe is observed: check that it runs"),
    ],
)
def test_an_escalation_names_the_pod_the_cause_and_what_to_do(sidecar, advice):
    listed = Roster(A, 1, 1, (Expected("pod-1", 1, sidecar),))
    (fired, *rest) = events_of(
        (1, A, listed), (5, A, replace(listed, number=2)), (7, A, replace(listed, number=3))
    )
    assert (fired.after, fired.slice, fired.issued_ns, rest) == (Phase.FIRING, "agent=pod-1", 6 * NS, [])
    (finding,) = fired.diagnosis
    assert (finding.cause, finding.confidence, finding.slice) == ("agent_missing", 1.0, "agent=pod-1")
    assert finding.facts == {"agent": "pod-1", "sidecar": sidecar}
    assert finding.advice.startswith(advice)
    assert finding.advice.endswith(" (docs/causes/agent_missing.md)")
    assert fired.summary.endswith("; looks like agent_missing (100%)")


def test_one_that_fell_silent_was_not_missing():
    (fired,) = events_of((1, "pod-1"), (4, "x"), (8, "x"))
    assert (fired.slice, fired.diagnosis) == ("agent=pod-1", ())


def test_the_incident_of_a_deleted_pod_is_resolved():
    events = events_of(
        (1, A, roster(1, "pod-1")),
        (5, A, roster(2, "pod-1")),
        (7, A, roster(3, "pod-1")),
        (8, A, roster(4)),
        (9, A),
    )
    assert [(e.after, e.slice) for e in events] == [
        (Phase.FIRING, "agent=pod-1"),
        (Phase.RECOVERING, "agent=pod-1"),
        (Phase.RESOLVED, "agent=pod-1"),
    ]
    assert (events[1].verdict.state, events[1].verdict.reason) == (State.NO_DATA, Reason.NO_UNITS)
    assert events[1].diagnosis == ()


PODS = ("pod-1", "pod-2", "pod-3")
WORDS = st.one_of(
    st.tuples(st.just("agent"), st.sampled_from(PODS)),
    st.tuples(
        st.sampled_from((A, B)),
        st.dictionaries(st.sampled_from(PODS), st.sampled_from((0, 1, 3 * NS, 7 * NS)), max_size=3),
    ),
)


def spoken(words):
    """One record a trace of the stream: its headers, who wrote it, and the rosters it holds."""
    for i, (trace, (kind, content)) in enumerate(zip(stream(110), words * 220, strict=False)):
        agent = content if kind == "agent" else kind
        headers = {"paritas-agent": agent, "paritas-epoch": "1", "paritas-seq": str(i)}
        listed = () if kind == "agent" else tuple(Expected(a, ns) for a, ns in content.items())
        rosters = [] if kind == "agent" else [Roster(kind, 1, i, listed)]
        yield trace, headers, agent, rosters


@settings(max_examples=12, deadline=None)
@given(
    st.lists(WORDS, min_size=1, max_size=9),
    st.sets(st.integers(0, 217), max_size=4),
    st.sets(st.integers(0, 217), max_size=6),
)
def test_restarts_copies_and_time_in_between_change_nothing(words, restarts, again):
    whole = watched()
    whole = replace(whole, clauses=(*whole.clauses, replace(SILENCE, at_most=0.7, agents=("pod-3",))))

    def run(restarts, again):
        machine, said = Detector(whole, deployment="d"), []
        for i, (trace, headers, agent, rosters) in enumerate(spoken(words)):
            if i in restarts:
                machine = load(dump(machine), contract_digest="d")
            for _ in range(1 + (i in again)):
                if not machine.is_repeat(headers):
                    said += machine.process([trace], trace.event_ns, agent=agent, rosters=rosters)
            if i in restarts:
                said += machine.elapse(trace.event_ns)
        return [repr(e) for e in said], [repr(v) for v in machine.verdicts()]

    assert run(set(), set()) == run(restarts, again)


class Definition:
    """Who is silent, computed anew from everything that ever happened, at every step."""

    def __init__(self):
        self.past, self.listed, self.left, self.silent, self.first_ns = {}, {}, set(), set(), None

    def take(self, now_ns, agent, roster):
        self.first_ns = now_ns if self.first_ns is None else self.first_ns
        self.pass_time(now_ns)
        reporter = agent or roster.name
        self.past[reporter] = now_ns
        self.silent.discard(reporter)
        if roster is not None:
            before = self.everyone()
            self.listed[roster.name] = {one.agent: one.since_ns for one in roster.agents}
            self.left = (self.left | before) - self.everyone()
            self.silent -= self.left
        self.pass_time(now_ns)

    def everyone(self):
        return {agent for one in self.listed.values() for agent in one}

    def watched(self):
        return (self.everyone() | set(self.past)) - self.left

    def pass_time(self, now_ns):
        self.silent |= {agent for agent in self.watched() if self.is_silent(agent, now_ns)}

    def is_silent(self, agent, now_ns):
        since_ns = min((one[agent] for one in self.listed.values() if one.get(agent)), default=0)
        if self.past.get(agent, -1) >= since_ns:
            return now_ns - self.past[agent] > 5 * NS
        return since_ns > 0 and now_ns - max(since_ns, self.first_ns) > 5 * NS


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), WORDS), max_size=25))
def test_who_is_silent_is_what_the_whole_past_says(steps):
    book, definition, now_ns = AgentBook((SILENCE,)), Definition(), 4 * NS
    for number, (pause, (kind, content)) in enumerate(steps):
        now_ns += pause * NS + 1
        if kind == "agent":
            agent, listed = content, None
        else:
            agent, listed = "", Roster(kind, 1, number, tuple(Expected(a, ns) for a, ns in content.items()))
        list(book.hear(agent, now_ns, [listed] if listed else []))
        definition.take(now_ns, agent, listed)
        found = told(book)
        assert set(found) == definition.watched()
        assert {agent for agent, (state, _) in found.items() if state is State.VIOLATED} == definition.silent


def test_on_flink_rosters_are_what_they_are_in_one_process():
    whole = contract(SILENCE)
    rosters = [roster(1, "pod-1"), roster(2, "pod-1"), roster(3, "pod-1"), roster(4)]
    records = [encode_roster(one, now_ns=1) for one in rosters]
    keyed, machine, decoder = KeyedPairing(whole.compare), OrderedEvaluation(whole), Decoder()
    said, expected = [], Detector(whole)
    for i, record in enumerate(records):
        origin = origin_of(record.headers)
        place = Arrival(
            (1 + 3 * i) * NS, 0, i, (origin.agent, str(origin.epoch), str(origin.seq)), record.value
        )
        for arrival in (place, replace(place, offset=100 + i), replace(place, offset=200 + i, origin=())):
            if (event := keyed.take(arrival, decoder)) is not None:
                machine.put(pickle.loads(pickle.dumps(event)))
        said += machine.advance(place.log_ns)
    alone = []
    for i, one in enumerate(rosters):
        for _ in range(2):  # the copy that does not say who it is is heard, and changes nothing
            alone += expected.process([], (1 + 3 * i) * NS, agent=A, rosters=[one])
    assert [e.after for e in said] == [Phase.FIRING, Phase.RECOVERING, Phase.RESOLVED]
    assert [repr(e) for e in said] == [repr(e) for e in alone]
    assert [repr(v) for v in machine.verdicts()] == [repr(v) for v in expected.verdicts()]
