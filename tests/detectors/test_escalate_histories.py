"""Escalation over whole histories: any crossings, time cut anywhere, restarts anywhere."""

import pickle
from itertools import pairwise

from crossing_steps import (
    RECOVERED,
    SUPERSEDED,
    TAIL,
    TV,
    TWO_LEVELS,
    VIOLATED,
    crossing,
    escalator,
    rule,
    run,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import NS

from paritas.contracts.model import Level, When
from paritas.detectors.evaluate import Change
from paritas.records import Phase, Severity

LEGAL = {
    ("pending", "firing"),
    ("firing", "firing"),
    ("firing", "recovering"),
    ("firing", "superseded"),
    ("recovering", "firing"),
    ("recovering", "resolved"),
    ("recovering", "superseded"),
}
KEYS = [(TV, "all"), (TV, "replica=a"), (TAIL, "all")]
RULES = (
    rule(*TWO_LEVELS, for_s=3.0, keep=7.0, when=When(clause=("tv",), slice=("all",))),
    rule(
        Level(Severity.INFO),
        Level(Severity.WARNING, after_s=4.0),
        Level(Severity.CRITICAL, after_s=9.0),
        keep=0.0,
    ),
)


@st.composite
def histories(draw):
    """Crossings as a bank makes them: a row is violated, then recovered or superseded, and so on."""
    second, violated, steps = 0.0, set(), []
    for _ in range(draw(st.integers(0, 25))):
        second += draw(st.sampled_from([0.0, 0.5, 2.0, 5.0, 40.0]))
        key = draw(st.sampled_from(range(len(KEYS))))
        change = draw(st.sampled_from([RECOVERED, SUPERSEDED])) if key in violated else VIOLATED
        violated ^= {key}
        asked, place = KEYS[key]
        steps.append(crossing(change, second, asked=asked, place=place, version=str(len(steps) // 9)))
    return steps


def machine():
    return escalator(*RULES, deployment="d")


def seen(events):
    return [repr(e) for e in events]


@settings(max_examples=80)
@given(histories(), st.data())
def test_advancing_at_any_times_between_gives_the_same_events(steps, data):
    plain = run(machine(), *steps, 500.0)
    cut, before = [], 0.0
    for step in [*steps, None]:
        until = step.event_ns / NS if step else 500.0
        moments = data.draw(st.lists(st.floats(before, until), max_size=3))
        cut += [*sorted(moments), *([step] if step else [])]
        before = until
    assert seen(run(machine(), *cut, 500.0)) == seen(plain)


@settings(max_examples=40)
@given(histories(), st.integers(0, 25))
def test_a_restart_anywhere_gives_the_same_events(steps, cut):
    first = machine()
    before = run(first, *steps[:cut])
    after = run(pickle.loads(pickle.dumps(first)), *steps[cut:], 500.0)
    assert seen([*before, *after]) == seen(run(machine(), *steps, 500.0))


@settings(max_examples=80)
@given(histories())
def test_transitions_are_legal_numbered_and_in_order_of_time(steps):
    events = run(machine(), *steps, 500.0)
    assert [e.issued_ns for e in events] == sorted(e.issued_ns for e in events)
    incidents = {}
    for event in events:
        incidents.setdefault(event.incident_id, []).append(event)
    for history in incidents.values():
        assert [e.transition for e in history] == list(range(1, len(history) + 1))
        assert history[0].before is Phase.PENDING
        assert all((e.before.value, e.after.value) in LEGAL for e in history)
        assert all(one.after is other.before for one, other in pairwise(history))
        levels = [e.level for e in history if e.after is Phase.FIRING]
        assert levels == sorted(levels)
        over = [e.after for e in history if e.after in (Phase.RESOLVED, Phase.SUPERSEDED)]
        assert len(over) <= 1
    assert len({e.event_id for e in events}) == len(events)


@settings(max_examples=40)
@given(histories())
def test_what_still_fires_at_the_end_is_what_is_still_violated(steps):
    last = {(s.clause.id, s.slice): s.change for s in steps}
    ended = machine()
    run(ended, *steps, 5000.0)
    assert set(ended.active()) == {key for key, change in last.items() if change is Change.VIOLATED}
