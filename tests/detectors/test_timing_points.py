"""Runtime clauses from histograms: the same verdicts as from single timings, or undecided inside a bucket."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import BY_REPLICA, EVERYTHING, NS, clause, contract, pair, paired

from paritas.contracts.model import Family, Stage
from paritas.detectors.evaluate import Evaluator
from paritas.detectors.slices import SliceBook
from paritas.detectors.timing_points import PointBook
from paritas.detectors.verdicts import verdicts
from paritas.histograms import ExponentialHistogram
from paritas.records import Reason, State, Timings
from paritas.records.timing import TimingPoint

TTFT = clause("time_to_first_token", 1.0, Family.RUNTIME, quantile=0.9, window_s=1.0)


def point(values, second, *, scale=5, unit_s=1.0, **labels):
    h = ExponentialHistogram.of(np.array(values, float) / unit_s, scale=scale)
    return TimingPoint("time_to_first_token", second * NS, h, unit_s, labels)


def judged(asked, points, *, slices=(EVERYTHING,)):
    evaluator = Evaluator(contract(asked, slices=slices), stage=Stage.FULL, recover=False)
    list(evaluator.observe_points(points, is_end=True))
    return evaluator


def only(asked, points):
    (verdict,) = verdicts(judged(asked, points))
    return verdict


def seconds_of(rng, n, *, slow):
    """Return the durations of n seconds with ten requests each."""
    return [np.where(rng.random(10) < slow, 1.7, 0.3) for _ in range(n)]


@pytest.mark.parametrize("slow", [0.0, 0.1, 0.6])
def test_a_limit_on_a_bucket_bound_is_judged_as_single_timings_are(slow):
    told = seconds_of(np.random.default_rng(1), 150, slow=slow)
    single = Evaluator(contract(TTFT), stage=Stage.FULL, recover=False)
    outcomes = [
        paired(pair([0.0], name=f"{s}-{i}", event_ns=s * NS, timings=Timings(ttft_s=float(value))))
        for s, values in enumerate(told)
        for i, value in enumerate(values)
    ]
    list(single.observe(outcomes))
    list(single.close_windows(is_end=True))
    (one,) = verdicts(single)
    other = only(TTFT, [point(values, s) for s, values in enumerate(told)])
    fields = ("state", "reason", "estimate", "lower", "upper", "log10_e", "log10_pass", "units")
    assert [getattr(one, f) for f in fields] == [getattr(other, f) for f in fields]


def test_a_limit_inside_the_bucket_that_decides_is_undecided_for_ever():
    asked = clause("time_to_first_token", 1.5, Family.RUNTIME, quantile=0.9, window_s=1.0)
    verdict = only(asked, [point([0.2] * 7 + [1.4, 1.4, 1.6], s, scale=0) for s in range(3000)])
    assert (verdict.state, verdict.reason) == (State.UNDECIDED, Reason.BETWEEN_BOUNDS)
    assert (verdict.lower, verdict.estimate) == (0.0, pytest.approx(0.3))


def test_a_bucket_that_cannot_change_the_answer_does_not_hinder_it():
    asked = clause("time_to_first_token", 1.5, Family.RUNTIME, quantile=0.5, window_s=1.0)
    kept = only(asked, [point([0.2] * 9 + [1.4], s, scale=0) for s in range(300)])
    broken = only(asked, [point([1.6] + [9.0] * 9, s, scale=0) for s in range(300)])
    assert (kept.state, kept.reason) == (State.CONFORMING, Reason.CERTIFIED)
    assert (broken.state, broken.reason) == (State.VIOLATED, Reason.REFUTED)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(-2, 4), st.floats(0.3, 3.0))
def test_a_coarse_histogram_never_says_more_than_the_durations_do(seed, scale, limit):
    rng = np.random.default_rng(seed)
    asked = clause("time_to_first_token", limit, Family.RUNTIME, quantile=0.8, window_s=1.0)
    told = [rng.gamma(2.0, 0.5, 20) for _ in range(60)]
    exact, coarse = (only(asked, [point(v, s, scale=k) for s, v in enumerate(told)]) for k in (14, scale))
    assert coarse.log10_e <= exact.log10_e + 1e-9
    assert coarse.log10_pass <= exact.log10_pass + 1e-9
    assert coarse.lower <= exact.estimate <= coarse.estimate + 1e-9


def test_points_of_one_window_are_one_unit_and_slices_follow_their_labels():
    points = [point([2.0], 5, replica="a"), point([0.5], 5, replica="b"), point([0.5], 6, replica="a")]
    told = {
        v.slice: (v.units, v.estimate)
        for v in verdicts(judged(TTFT, points, slices=(EVERYTHING, BY_REPLICA)))
    }
    assert told == {"all": (2, 0.25), "replica=a": (2, 0.5), "replica=b": (1, 0.0)}


def test_a_window_of_steps_takes_points_until_it_is_full():
    asked = clause("time_to_first_token", 1.0, Family.RUNTIME, quantile=0.9, window_steps=4)
    book = PointBook((asked,), (EVERYTHING,), SliceBook((EVERYTHING,)))
    assert [w.requests for w in book.take([point([0.5] * 3, 1), point([2.0] * 2, 2), point([0.5], 3)])] == [5]
    assert [(w.requests, w.shares) for w in book.close()] == [(1, (0.0, 0.0))]


def test_milliseconds_are_milliseconds():
    verdict = only(TTFT, [point([2.0, 0.5], s, unit_s=1e-3, scale=10) for s in range(3)])
    assert verdict.estimate == 0.5


def test_single_timings_of_the_same_requests_do_not_count_twice():
    evaluator = judged(TTFT, [point([0.5], 1)])
    list(evaluator.observe([paired(pair([0.0], timings=Timings(ttft_s=2.0)))]))
    list(evaluator.close_windows(is_end=True))
    assert verdicts(evaluator)[0].units == 1
