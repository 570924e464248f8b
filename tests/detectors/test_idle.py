"""Idle ticks: on a grid at first, then ever more rarely, and the same however they are asked for."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from paritas.detectors.idle import IdleTicks

S = 1_000_000_000
YEAR = 365 * 86_400 * S


def ticks(until_ns, steps=()):
    """Return the ticks after one trace at 5 s, asked for at each step and at the end."""
    made, found = IdleTicks(S), []
    made.start(5 * S)
    for now_ns in (*sorted(steps), until_ns):
        while (due_ns := made.due(now_ns)) is not None:
            found.append(due_ns)
    return found


def test_before_the_first_trace_there_is_no_silence():
    assert IdleTicks(S).due(YEAR) is None


def test_each_interval_is_looked_at_once():
    assert ticks(8 * S) == [6 * S, 7 * S, 8 * S]


def test_a_long_silence_takes_few_looks_and_none_is_late():
    found = ticks(YEAR)
    assert len(found) < 2500
    assert all(b - a <= max(S, (a - 5 * S) // 100) for a, b in pairwise(found))


@given(st.lists(st.integers(0, 2000 * S), max_size=8))
def test_when_it_is_asked_changes_nothing(steps):
    assert ticks(2000 * S, steps) == ticks(2000 * S)


def test_a_trace_begins_silence_anew():
    made = IdleTicks(S)
    made.start(0)
    assert made.due(S) == S
    made.start(S + S // 2)
    assert made.due(2 * S) is None
    assert made.due(3 * S) == 2 * S + S // 2
