"""Escalation: the state machine, its dwell times and its ids, however time is cut."""

from dataclasses import replace

import pytest
from crossing_steps import (
    IDENTITY,
    NAN,
    RECOVERED,
    SUPERSEDED,
    TAIL,
    TV,
    TWO_LEVELS,
    VIOLATED,
    crossing,
    escalator,
    report,
    rule,
    run,
    told,
)
from pair_factory import NS, contract

from paritas.contracts.model import Family, Level, When
from paritas.detectors.escalate import VALID_NS, Escalator, rule_for
from paritas.records import Action, Phase, Severity, State

TABLE = {
    "at once": (rule(), [crossing(VIOLATED, 1)], [(1, "pending", "firing", 0)]),
    "held": (
        rule(for_s=10),
        [crossing(VIOLATED, 1), 10.9, 11],
        [(11, "pending", "firing", 0)],
    ),
    "gone before it fired": (rule(for_s=10), [crossing(VIOLATED, 1), crossing(RECOVERED, 5), 99], []),
    "superseded before it fired": (rule(for_s=10), [crossing(VIOLATED, 1), crossing(SUPERSEDED, 5), 99], []),
    "recovers": (
        rule(keep=30),
        [crossing(VIOLATED, 1), crossing(RECOVERED, 5), 34, 99],
        [
            (1, "pending", "firing", 0),
            (5, "firing", "recovering", 0),
            (35, "recovering", "resolved", 0),
        ],
    ),
    "comes back while recovering": (
        rule(keep=30),
        [crossing(VIOLATED, 1), crossing(RECOVERED, 5), crossing(VIOLATED, 20), 99],
        [
            (1, "pending", "firing", 0),
            (5, "firing", "recovering", 0),
            (20, "recovering", "firing", 0),
        ],
    ),
    "superseded while firing": (
        rule(),
        [crossing(VIOLATED, 1), crossing(SUPERSEDED, 5)],
        [(1, "pending", "firing", 0), (5, "firing", "superseded", 0)],
    ),
    "superseded while recovering": (
        rule(keep=30),
        [crossing(VIOLATED, 1), crossing(RECOVERED, 5), crossing(SUPERSEDED, 6), 99],
        [
            (1, "pending", "firing", 0),
            (5, "firing", "recovering", 0),
            (6, "recovering", "superseded", 0),
        ],
    ),
    "rises": (
        rule(*TWO_LEVELS),
        [crossing(VIOLATED, 1), 60.9, 61, 999],
        [(1, "pending", "firing", 0), (61, "firing", "firing", 1)],
    ),
    "rises after its hold": (
        rule(*TWO_LEVELS, for_s=5),
        [crossing(VIOLATED, 1), 999],
        [(6, "pending", "firing", 0), (66, "firing", "firing", 1)],
    ),
    "starts at the last level that needs no wait": (
        rule(Level(Severity.INFO), Level(Severity.WARNING), Level(Severity.CRITICAL, after_s=60.0)),
        [crossing(VIOLATED, 1), 99],
        [(1, "pending", "firing", 1), (61, "firing", "firing", 2)],
    ),
    "does not rise while recovering": (
        rule(*TWO_LEVELS, keep=500),
        [crossing(VIOLATED, 1), crossing(RECOVERED, 5), 99],
        [(1, "pending", "firing", 0), (5, "firing", "recovering", 0)],
    ),
    "recovery of nothing": (rule(), [crossing(RECOVERED, 1), crossing(SUPERSEDED, 2), 99], []),
    "no rule": (rule(when=When(clause=("other",))), [crossing(VIOLATED, 1), 99], []),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_state_table(case):
    ruled, steps, expected = TABLE[case]
    assert told(run(escalator(ruled), *steps)) == expected


def test_an_incident_that_is_over_and_one_that_follows_are_two():
    machine = escalator(rule(keep=0))
    events = run(machine, *[crossing(c, i) for i, c in enumerate([VIOLATED, RECOVERED] * 2)])
    assert len({e.incident_id for e in events}) == 2
    assert [e.transition for e in events] == [1, 2, 3, 1, 2]  # the last one resolves when time passes
    assert run(machine, 99)[0].transition == 3


# ---- which rule


@pytest.mark.parametrize(
    ("when", "found"),
    [
        (When(), True),
        (When(family=(Family.NUMERICAL,)), True),
        (When(family=(Family.RUNTIME,)), False),
        (When(clause=("tv",)), True),
        (When(clause=("ratio_tail",)), False),
        (When(slice=("replica",)), True),
        (When(slice=("replica=a",)), True),
        (When(slice=("replica=b",)), False),
        (When(slice=("all",)), False),
        (When(state=(State.NO_DATA,)), False),
        (When(state=(State.NO_DATA, State.VIOLATED)), True),
        (When(family=(Family.NUMERICAL,), slice=("all",)), False),
    ],
    ids=str,
)
def test_which_rule_answers(when, found):
    ruled = contract(TV, escalation=(rule(when=when),))
    asked = crossing(VIOLATED, 1, place="replica=a", declared="replica")
    assert rule_for(ruled, asked) == (0 if found else None)


def test_a_by_slice_is_found_by_the_name_it_is_declared_by():
    """The slice `prompt` by label `slice` has instances called slice=…; rules name `prompt`."""
    ruled = contract(TV, escalation=(rule(when=When(slice=("prompt",))),))
    asked = crossing(VIOLATED, 1, place="slice=chat", declared="prompt")
    assert rule_for(ruled, asked) == 0


def without_data(change, second, **more):
    return replace(crossing(change, second, **more), no_data=True)


@pytest.mark.parametrize(
    ("when", "found"),
    [(When(), False), (When(state=(State.NO_DATA,)), True), (When(clause=("tv",)), False)],
    ids=str,
)
def test_only_a_rule_that_names_missing_data_answers_it(when, found):
    ruled = contract(TV, escalation=(rule(when=when),))
    assert rule_for(ruled, without_data(VIOLATED, 1)) == (0 if found else None)


def test_missing_data_and_a_broken_limit_are_two_incidents():
    both = When(state=(State.NO_DATA, State.VIOLATED))
    events = run(
        escalator(rule(when=both, keep=0)),
        without_data(VIOLATED, 1),
        crossing(VIOLATED, 2),
        without_data(RECOVERED, 3),
        99,
    )
    assert told(events) == [
        (1, "pending", "firing", 0),
        (2, "pending", "firing", 0),
        (3, "firing", "recovering", 0),
        (3, "recovering", "resolved", 0),
    ]
    assert len({e.incident_id for e in events}) == 2
    assert events[0].incident_id == events[2].incident_id == events[3].incident_id
    assert events[0].summary == "tv firing in all: no data"


def test_the_first_rule_that_fits_answers():
    rules = (rule(when=When(clause=("ratio_tail",))), rule(), rule(when=When(clause=("tv",))))
    assert rule_for(contract(TV, escalation=rules), crossing(VIOLATED, 1)) == 1


# ---- what an event says


def test_a_firing_event_says_what_where_how_much_and_why():
    level = Level(
        Severity.CRITICAL, (Action("reroute", {"to": "reference"}), Action("drain", {"where": "pod"}))
    )
    machine = escalator(rule(level, keep=0), deployment="prod")
    (event,) = machine.cross(
        crossing(VIOLATED, 7, place="replica=a", version="12"), lambda: report(0.0512, ["stale_weights"])
    )
    assert (event.contract, event.contract_version, event.policy) == ("c", "1", "p")
    assert (event.clause, event.slice, event.weights_version) == ("tv", "replica=a", "12")
    assert (event.severity, event.level) == (Severity.CRITICAL, 0)
    assert [(a.kind, dict(a.arguments)) for a in event.actions] == [
        ("reroute", {"where": "replica=a", "to": "reference"}),
        ("drain", {"where": "pod"}),
    ]
    assert event.trace_ids == ("t1", "t2")
    assert event.valid_until_ns - event.issued_ns == VALID_NS == 600 * NS
    assert event.summary == (
        "tv firing in replica=a: 0.0512 against a limit of 0.02; looks like stale_weights (90%)"
    )


def test_the_summary_leaves_out_what_is_not_known():
    machine = escalator(rule(keep=0))
    (event,) = machine.cross(crossing(VIOLATED, 7, asked=IDENTITY), lambda: report(NAN))
    assert event.summary == "kernel_identity firing in all"


def test_only_a_firing_event_asks_for_anything():
    level = Level(Severity.CRITICAL, (Action("page"),))
    events = run(escalator(rule(level, keep=5)), crossing(VIOLATED, 1), crossing(RECOVERED, 2), 99)
    assert [(e.after, e.severity, len(e.actions)) for e in events] == [
        (Phase.FIRING, Severity.CRITICAL, 1),
        (Phase.RECOVERING, Severity.INFO, 0),
        (Phase.RESOLVED, Severity.INFO, 0),
    ]
    assert events[1].summary == "tv recovering in all"


def test_the_report_is_asked_for_only_when_it_is_sent():
    machine, asked = escalator(rule(when=When(clause=("ratio_tail",)))), []
    list(machine.cross(crossing(VIOLATED, 1), lambda: asked.append(1)))
    assert asked == []


def test_active_incidents_are_those_not_over():
    machine = escalator(rule(keep=5))
    run(machine, crossing(VIOLATED, 1), crossing(VIOLATED, 1, asked=TAIL))
    assert machine.active() == (("ratio_tail", "all"), ("tv", "all"))
    run(machine, crossing(RECOVERED, 2))
    assert len(machine.active()) == 2
    run(machine, 8)
    assert machine.active() == (("ratio_tail", "all"),)


# ---- ids


def ids(machine, *steps):
    return [(e.event_id, e.incident_id) for e in run(machine, *steps)]


STEPS = (crossing(VIOLATED, 1, version="3"), crossing(RECOVERED, 5), crossing(VIOLATED, 6), 99.0)


def test_equal_inputs_give_equal_ids_and_all_events_differ():
    first, second = (ids(escalator(rule(*TWO_LEVELS), deployment="d"), *STEPS) for _ in range(2))
    assert first == second
    assert len({event for event, _ in first}) == len(first)
    assert {len(event) for event, _ in first} == {32}


@pytest.mark.parametrize("what", ["deployment", "contract", "policy", "clause", "slice", "weights", "time"])
def test_ids_tell_apart_what_must_not_be_merged_and_time_is_not_part_of_them(what):
    def of(**changes):
        known = {"digest": "d", "policy": "p"}
        whole = contract(TV, TAIL, escalation=(rule(),), **{**known, **changes.pop("whole", {})})
        machine = Escalator(whole, deployment=changes.pop("deployment", ""))
        return ids(
            machine,
            crossing(VIOLATED, changes.pop("second", 1), version=changes.pop("version", ""), **changes),
        )

    changed = {
        "deployment": {"deployment": "b"},
        "contract": {"whole": {"digest": "e"}},
        "policy": {"whole": {"policy": "q"}},
        "clause": {"asked": TAIL},
        "slice": {"place": "replica=a"},
        "weights": {"version": "2"},
        "time": {"second": 9},
    }[what]
    assert (of(**changed) == of()) is (what == "time")


def test_what_lasts_is_told_again_and_stays_what_it_is():
    machine = escalator(rule(keep=30))
    (fired,) = machine.cross(crossing(VIOLATED, 1), report)
    before = repr(machine.__dict__)
    (again,) = machine.renewals(500 * NS)
    assert (again.incident_id, again.transition, again.actions) == (
        fired.incident_id,
        fired.transition,
        fired.actions,
    )
    assert again.event_id != fired.event_id
    assert (again.issued_ns, again.valid_until_ns) == (500 * NS, 500 * NS + VALID_NS)
    assert list(machine.renewals(500 * NS)) == [again], "equal times give equal ids"
    assert repr(machine.__dict__) == before
    list(machine.cross(crossing(RECOVERED, 600), report))
    assert [e.after for e in machine.renewals(601 * NS)] == [Phase.RECOVERING]
    list(machine.advance(700 * NS))
    assert list(machine.renewals(701 * NS)) == [], "what is over is not told again"
