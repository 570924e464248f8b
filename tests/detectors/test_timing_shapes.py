"""Shape of latencies: learned once, compared by bets on a witness that was chosen before."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_factory import NS, clause, contract, pair, paired

from paritas.contracts.model import FalseAlarms, Family, Stage
from paritas.detectors.evaluate import Evaluator
from paritas.detectors.timing_shapes import Shape, bucket_of
from paritas.detectors.verdicts import verdicts
from paritas.records import Reason, State, Timings

SHAPE = clause("time_to_first_token_shape", 0.1, Family.RUNTIME, window_s=1.0, baseline=40)
BUDGET = FalseAlarms(0.05, 3600.0)


def judged(rng, draw, seconds, *, each=20, asked=SHAPE):
    """Return the verdict after so many seconds whose latencies `draw` gives; seconds differ in load."""
    outcomes = []
    for second in range(seconds):
        load = rng.lognormal(0.0, 0.05)
        for i, value in enumerate(draw(second, rng, each) * load):
            told = {"timings": Timings(ttft_s=float(value)), "event_ns": second * NS + i}
            outcomes.append(paired(pair([0.0], name=f"{second}-{i}", **told)))
    evaluator = Evaluator(contract(asked, false_alarms=BUDGET), stage=Stage.FULL, recover=False)
    list(evaluator.observe(outcomes))
    list(evaluator.close_windows(is_end=True))
    return verdicts(evaluator)[0]


def usual(_second, rng, n):
    return rng.lognormal(-1.0, 0.4, n)


def slower_after_60(second, rng, n):
    return usual(second, rng, n) * (1.5 if second >= 60 else 1.0)


def wider_after_60(second, rng, n):
    """The median stays: no limit on it would see anything."""
    return rng.lognormal(-1.0, 1.2 if second >= 60 else 0.4, n)


def test_while_it_learns_there_is_no_data_and_the_reason_says_so():
    verdict = judged(np.random.default_rng(0), usual, 39)
    assert (verdict.state, verdict.reason, verdict.units) == (State.NO_DATA, Reason.LEARNING, 0)


@pytest.mark.parametrize("broken", [slower_after_60, wider_after_60])
def test_another_shape_is_found_and_the_reason_says_shape(broken):
    verdict = judged(np.random.default_rng(1), broken, 160)
    assert (verdict.state, verdict.reason) == (State.VIOLATED, Reason.SHAPE)


def test_the_same_shape_is_never_certified_and_never_violated():
    verdict = judged(np.random.default_rng(2), usual, 400)
    assert (verdict.state, verdict.reason, verdict.units) == (State.UNDECIDED, Reason.FALSIFIABLE_ONLY, 360)
    assert abs(verdict.estimate) < 0.05


def shifted(distance, rng, windows, each):
    """Return windows of buckets of a law at this Kolmogorov distance from uniform on ten buckets."""
    moved = rng.random((windows, each)) < distance
    bucket = np.where(moved, 20, rng.integers(0, 10, (windows, each)))
    return [
        dict(zip(*map(np.ndarray.tolist, np.unique(row, return_counts=True)), strict=True)) for row in bucket
    ]


def test_at_the_limit_false_alarms_keep_the_budget():
    """A wide reference is the law itself; the law now is exactly at the distance that the clause allows."""
    rng, alarms = np.random.default_rng(7), 0
    for _ in range(60):
        shape, wealth = Shape(1), np.ones(10)
        shape.take(dict.fromkeys(range(10), 100_000))
        bets = 0.9 / 0.55 * 0.5 ** np.arange(10)
        peak = 0.0
        for window in shifted(0.1, rng, 300, 20):
            wealth *= 1 + bets * ((shape.take(window) + 1) / 2 - 0.55)
            peak = max(peak, wealth.mean())
        alarms += peak >= 20  # 5 %
    assert alarms <= 6


@given(st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=40), st.integers(0, 2**32 - 1))
def test_a_difference_is_one_of_shares_whatever_came_before(seconds, seed):
    rng = np.random.default_rng(seed)
    buckets = [{bucket_of(s): int(rng.integers(1, 9))} for s in seconds]
    shape = Shape(1)
    told = [shape.take(window) for window in buckets]
    assert told[0] is None
    assert all(-1.0 <= value <= 1.0 for value in told[1:])


def test_the_reference_is_frozen():
    shape = Shape(2)
    for window in ({0: 5}, {3: 5}, {9: 100}, {9: 100}):
        shape.take(window)
    assert shape.reference == {0: 5, 3: 5}
    assert shape.learned == 2


def test_a_request_that_never_got_its_first_token_is_in_the_last_bucket():
    assert bucket_of(float("inf")) == bucket_of(sys.float_info.max) > bucket_of(1e300)
    endless = judged(
        np.random.default_rng(5),
        lambda second, rng, n: np.full(n, np.inf) if second > 60 else usual(second, rng, n),
        120,
    )
    assert (endless.state, endless.reason) == (State.VIOLATED, Reason.SHAPE)
