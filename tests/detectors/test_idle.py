"""Idle ticks: when a silent log is looked at again, from its own times alone."""

import pickle
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from paritas.detectors.idle import SPREAD, IdleTicks


def ticks(idle, now_ns):
    """Return all ticks that are due by then."""
    told = []
    while (due := idle.due(now_ns)) is not None:
        told.append(due)
    return told


def started(at_ns, interval_ns=10):
    idle = IdleTicks(interval_ns=interval_ns)
    idle.start(at_ns)
    return idle


def test_nothing_is_due_before_the_first_trace():
    assert IdleTicks(interval_ns=10).due(10**18) is None


def test_a_trace_begins_silence_anew():
    idle = started(100)
    assert ticks(idle, 115) == [110]
    idle.start(118)
    assert ticks(idle, 127) == []
    assert ticks(idle, 128) == [128]


def test_a_trace_from_the_past_does_not_move_time_back():
    idle = started(100)
    idle.start(50)
    assert ticks(idle, 109) == []
    assert ticks(idle, 110) == [110]


def test_long_silence_is_looked_at_ever_more_rarely():
    year = ticks(started(0, interval_ns=10**9), 365 * 86_400 * 10**9)
    assert len(year) < 2500
    gaps = [b - a for a, b in pairwise(year)]
    assert gaps == sorted(gaps)
    assert all(gap <= max(10**9, place // SPREAD + 1) for gap, place in zip(gaps, year, strict=False))


@given(st.lists(st.integers(1, 5000), max_size=12))
def test_ticks_do_not_depend_on_when_one_asks(steps):
    asked, now_ns = started(0), 0
    told = []
    for step in steps:
        now_ns += step
        told += ticks(asked, now_ns)
        asked = pickle.loads(pickle.dumps(asked))
    assert told == ticks(started(0), now_ns)
