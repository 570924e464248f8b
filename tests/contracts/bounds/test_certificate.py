"""D15 and D16: always-valid limits of a bounded mean."""

import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from softmax_pairs import SEEDS, assert_holds, assert_reached

from paritas.contracts.bounds import (
    MeanLimits,
    bias_statistic,
    bias_statistic_range,
    exponential_psi,
    mean_radius,
    shortfall,
    smallest_certified_cap,
)
from paritas.contracts.model import Estimator

numbers = settings(max_examples=100, deadline=None)
ALPHA = 0.05
STREAMS, STEPS = 400, 256


@numbers
@given(st.floats(0.0, 0.999), st.lists(st.one_of(st.floats(-1.0, 1.0), st.floats(-1.0, 50.0)), min_size=1))
def test_d15_holds(bet, moves):
    xi = np.array(moves)
    assert_holds(np.exp(bet * xi - exponential_psi(bet) * xi**2), 1 + bet * xi)


def test_d15_is_reached():
    bets = np.linspace(0.0, 0.99, 12)
    assert_reached(np.exp(-bets - exponential_psi(bets)), 1 - bets, share=1 - 1e-12)  # xi = -1


def bernoulli(rng):
    mean = np.full((STREAMS, STEPS), 0.02)
    return rng.random(mean.shape) < mean, mean


def lognormal_shortfall(rng):
    s = 0.5
    mean = np.full((STREAMS, STEPS), math.erf(s / math.sqrt(8)))
    return shortfall(rng.normal(-s * s / 2, s, mean.shape)), mean


def square_wave(rng):
    mean = 0.01 + 0.5 * (np.arange(STEPS) % 64 > 40) * rng.random((STREAMS, 1))
    return rng.random(mean.shape) < mean, mean


def adaptive_mean(rng):
    """The next mean depends on the past: no i.i.d. argument covers this one."""
    value, mean = np.zeros((STREAMS, STEPS)), np.zeros((STREAMS, STEPS))
    for t in range(STEPS):
        mean[:, t] = np.where(value.sum(1) > 0.1 * (t + 1), 0.02, 0.3)
        value[:, t] = rng.random(STREAMS) < mean[:, t]
    return value, mean


def running(value, mean):
    """Count, mean of the values, mean of the conditional means and V at every step."""
    count = np.arange(1, STEPS + 1)
    total = np.cumsum(value, 1)
    before = np.concatenate([np.zeros((STREAMS, 1)), total[:, :-1]], 1)
    squares = np.cumsum((value - (before + 0.5) / count) ** 2, 1)
    return count, total / count, np.cumsum(mean, 1) / count, squares


SOURCES = (bernoulli, lognormal_shortfall, square_wave, adaptive_mean)


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.__name__)
def test_d16_holds(source):
    value, mean = source(np.random.default_rng(20260607))
    count, seen, true, squares = running(np.asarray(value, float), mean)
    radius = mean_radius(squares, count, alpha=ALPHA)
    ever_below, ever_above = (true > seen + radius).any(1).mean(), (true < seen - radius).any(1).mean()
    assert ever_below <= ALPHA
    assert ever_above <= ALPHA


@numbers
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40))
def test_d16_predicts_each_value_from_the_past_alone(values):
    total = squares = 0.0
    for count, value in enumerate(values):
        squares += (value - (total + 0.5) / (count + 1)) ** 2
        total += value
    assert MeanLimits().observe(values).squares == pytest.approx(squares, rel=1e-12, abs=1e-300)


def test_d16_same_streams_break_limits_that_are_valid_at_one_time_only():
    value, mean = bernoulli(np.random.default_rng(20260607))
    count, seen, true, _ = running(np.asarray(value, float), mean)
    normal = 1.645 * np.sqrt(0.02 * 0.98 / count)
    assert (true < seen - normal).any(1).mean() > 4 * ALPHA


def test_d16_holds_for_merged_shards():
    rng = np.random.default_rng(7)
    outside = 0
    for _ in range(STREAMS):
        short, long = rng.random(40) < 0.3, rng.random(200) < 0.05
        state = MeanLimits().observe(short).merge(MeanLimits().observe(long))
        true = (40 * 0.3 + 200 * 0.05) / 240
        outside += not state.lower(ALPHA / 2) <= true <= state.upper(ALPHA / 2)
    assert outside / STREAMS <= ALPHA


def lognormal_state(size, sd=0.05):
    ell = np.random.default_rng(11).normal(-sd * sd / 2, sd, size)
    return MeanLimits().observe(shortfall(ell)), float(shortfall(ell).std())


@pytest.mark.parametrize(
    ("size", "width"), [(10**3, 0.0077), (10**4, 0.00105), (10**5, 0.00031), (10**6, 0.00010)]
)
def test_d16_has_the_published_widths(size, width):
    state, _ = lognormal_state(size)
    assert state.radius(ALPHA) == pytest.approx(width, rel=0.1, abs=0.0)
    true = math.erf(0.05 / math.sqrt(8))
    assert state.lower(ALPHA / 2) <= true <= state.upper(ALPHA / 2)


def test_d16_is_reached_to_45_percent_of_the_width_that_is_valid_once():
    state, deviation = lognormal_state(10**5)
    assert_reached(1.645 * deviation / math.sqrt(10**5), state.radius(ALPHA), share=0.45)


VALUES = st.lists(st.floats(0.0, 1.0), max_size=60)


@numbers
@given(VALUES, VALUES)
def test_splitting_a_batch_changes_nothing(first, second):
    whole, split = MeanLimits().observe(first + second), MeanLimits().observe(first).observe(second)
    assert whole.count == split.count
    assert whole.total == pytest.approx(split.total, rel=1e-12, abs=1e-300)
    assert whole.squares == pytest.approx(split.squares, rel=1e-12, abs=1e-300)


@numbers
@given(VALUES, VALUES, VALUES)
def test_merge_adds_and_is_commutative_and_associative(first, second, third):
    a, b, c = (MeanLimits().observe(values) for values in (first, second, third))
    assert a.merge(b) == b.merge(a)
    left, right = a.merge(b).merge(c), a.merge(b.merge(c))
    assert left.count == right.count
    assert left.total == pytest.approx(right.total)
    assert left.squares == pytest.approx(right.squares)
    assert a.merge(MeanLimits()) == a


def test_merged_state_is_the_whole_stream_up_to_the_running_means():
    values = np.random.default_rng(3).random(20_000)
    whole = MeanLimits().observe(values)
    shards = [MeanLimits().observe(part) for part in np.split(values, 4)]
    merged = shards[0].merge(shards[1]).merge(shards[2]).merge(shards[3])
    assert merged.count == whole.count
    assert merged.mean == pytest.approx(whole.mean, rel=1e-12, abs=0.0)
    assert merged.radius(ALPHA) == pytest.approx(whole.radius(ALPHA), rel=1e-3, abs=0.0)
    again = merged.observe(values[:5])  # a merged state goes on observing
    assert again.count == 20_005


@numbers
@given(VALUES, st.floats(-5.0, 5.0), st.floats(0.1, 10.0))
def test_rescaling_moves_the_limits_with_the_unit(values, low, width):
    unit = MeanLimits().observe(values)
    state = MeanLimits(low=low, high=low + width).observe(low + width * np.array(values))
    for name in ("lower", "upper"):
        scaled = low + width * getattr(unit, name)(ALPHA)
        assert getattr(state, name)(ALPHA) == pytest.approx(scaled, abs=1e-6)


@numbers
@given(VALUES, st.floats(1e-6, 1.0))
def test_limits_enclose_the_mean_and_stay_in_range(values, alpha):
    state = MeanLimits().observe(values)
    assert 0.0 <= state.lower(alpha) <= state.upper(alpha) <= 1.0
    if values:
        assert state.lower(alpha) <= state.mean <= state.upper(alpha)
        assert state.radius(alpha / 2) > state.radius(alpha)


@numbers
@given(VALUES, st.sampled_from(((0.0, 1.0), (-1.0, 3.0))))
def test_state_survives_json_and_pickle(values, ends):
    low, high = ends
    state = MeanLimits(low=low, high=high).observe(low + (high - low) * np.array(values))
    assert MeanLimits.from_dict(json.loads(json.dumps(state.as_dict()))) == state
    assert pickle.loads(pickle.dumps(state)) == state


def test_nothing_observed_says_nothing():
    state = MeanLimits(low=-1.0, high=2.0)
    assert (state.lower(ALPHA), state.upper(ALPHA)) == (-1.0, 2.0)
    assert math.isnan(state.mean)
    assert state.radius(ALPHA) == math.inf
    assert state.observe([]) == state


def test_rounding_beyond_the_range_is_clipped():
    state = MeanLimits(low=-1.0, high=1.0).observe([1.0 + 1e-12, -1.0 - 1e-12])
    assert state.total == 1.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MeanLimits().observe([0.5, math.nan]), r"^values must be between -1e-09 and 1, got nan$"),
        (lambda: MeanLimits().observe([1.1]), r"^values must be between -1e-09 and 1, got 1.1$"),
        (lambda: MeanLimits(low=1.0, high=1.0), r"^low must be below high, both finite, got 1 and 1$"),
        (lambda: MeanLimits(high=math.nan), r"^low must be below high, both finite, got 0 and nan$"),
        (lambda: MeanLimits().merge(MeanLimits(high=2.0)), r"^ranges differ: \[0, 1\] and \[0, 2\]$"),
        (lambda: MeanLimits().radius(0.0), r"^alpha must be above 0 and at most 1, got 0$"),
        (
            lambda: MeanLimits(count=1, total=2.0),
            r"^total and squares must be between 0 and count, got count 1, total 2, squares 0$",
        ),
    ],
)
def test_impossible_states_and_values_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_smallest_certified_cap_is_the_first_that_fits(seed):
    caps = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0)
    ell = np.random.default_rng(seed).normal(-0.02, 0.2, 20_000)
    states = []
    for cap in caps:
        estimator = Estimator(kind="tis", cap=cap)
        low, high = bias_statistic_range(estimator)
        low = min(low, -1e-9)  # at C = 1 the statistic is (1 - w)+
        states.append(MeanLimits(low=low, high=high).observe(bias_statistic(ell, estimator)))
    chosen = smallest_certified_cap(caps, states, beta=0.03, alpha=ALPHA)
    assert chosen in caps[1:]
    index = caps.index(chosen)
    assert states[index].upper(ALPHA / 6) <= 0.03
    assert all(state.upper(ALPHA / 6) > 0.03 for state in states[:index])
    assert smallest_certified_cap(caps, states, beta=0.0, alpha=ALPHA) is None
