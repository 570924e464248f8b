"""Waits and rates."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from paritas.agent.retry import Backoff, RateCap, delay_s

NS = 10**9


def test_jitter_is_full_and_bounded():
    waits = [delay_s(Backoff(0.5, 30.0), 8, random=Random(seed)) for seed in range(500)]
    assert max(waits) <= 30.0
    assert min(waits) < 1.0
    assert max(waits) > 29.0
    assert max(delay_s(Backoff(0.5, 30.0), 1, random=Random(seed)) for seed in range(500)) <= 0.5


def test_after_a_thousand_failures_it_still_waits_a_time_that_ends():
    assert delay_s(Backoff(), 100_000, random=Random(1)) <= 30.0


@given(st.lists(st.tuples(st.integers(0, 300), st.floats(0, 3)), min_size=1, max_size=40))
def test_a_rate_cap_lets_through_its_rate_and_one_second_of_it_at_most(spends):
    cap, now_ns, spent = RateCap(100.0, now_ns=0), 0, 0
    for amount, pause_s in spends:
        now_ns += round(pause_s * NS)
        wait_s = cap.wait_s(now_ns=now_ns)
        now_ns += round(wait_s * NS) + 1
        assert cap.wait_s(now_ns=now_ns) <= 1e-6
        assert spent <= 100.0 * (now_ns / NS) + 100.0 + 1e-3
        cap.spend(amount)
        spent += amount


def test_no_cap_never_waits():
    cap = RateCap(0.0, now_ns=0)
    cap.spend(10**12)
    assert cap.wait_s(now_ns=0) == 0.0
