"""Waits between tries: bounded, random, repeatable."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from paritas.controller.backoff import Backoff, delay_s

BACKOFFS = st.builds(
    Backoff,
    first_s=st.floats(0.001, 1),
    factor=st.floats(1, 10),
    most_s=st.floats(1, 100),
)


@given(BACKOFFS, st.integers(1, 10**9), st.integers())
def test_waits_are_between_half_and_all_of_a_bounded_power(backoff, failures, seed):
    whole = min(backoff.first_s * backoff.factor ** min(failures - 1, 64), backoff.most_s)
    assert whole / 2 <= delay_s(backoff, failures, random=Random(seed)) <= whole


def test_equal_seeds_give_equal_waits_and_others_differ():
    waits = [delay_s(Backoff(), 3, random=Random(name)) for name in ("a", "a", "b")]
    assert waits[0] == waits[1] != waits[2]
