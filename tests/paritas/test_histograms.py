"""Exponential histograms: the mapping of OpenTelemetry, exact merging, and bounds instead of guesses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.histograms import BUCKETS_AT_MOST, SCALES, ExponentialHistogram

VALUES = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-9, 1e9), st.sampled_from([0.5, 1.0, 2.0, 4.0])), max_size=30
)
SCALE = st.integers(-3, 7)  # their range fits whole


def of(values, scale=5):
    return ExponentialHistogram.of(np.array(values, float), scale=scale)


def told(h):
    """Return everything a histogram says, without empty buckets at its ends."""
    filled = {h.offset + i: int(n) for i, n in enumerate(h.counts) if n}
    return h.scale, h.zero_count, h.zero_threshold, filled


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=20), st.integers(-10, 20))
def test_every_value_lies_above_its_lower_bound_and_at_most_at_its_upper(values, scale):
    h = of(values, scale)
    bounds = h.bounds()
    assert h.total == len(values)
    for value in values:
        single = of([value], scale)
        low, high = single.bounds()
        assert low < value <= high or np.isinf(high)
    assert bounds[0] < min(values)


@pytest.mark.parametrize("scale", SCALES)
def test_a_power_of_the_base_belongs_to_the_bucket_it_closes(scale):
    assert of([1.0], scale).offset == -1
    assert of([np.nextafter(1.0, 2.0)], scale).offset == 0


@given(VALUES, VALUES, SCALE, SCALE)
def test_merging_is_counting_together_at_the_coarser_scale(one, two, a, b):
    merged = of(one, a).merged(of(two, b))
    assert told(merged) == told(of(one + two, min(a, b)))
    assert told(merged) == told(of(two, b).merged(of(one, a)))


@given(VALUES, VALUES, VALUES, SCALE)
def test_merging_does_not_depend_on_the_order(one, two, three, scale):
    a, b, c = (of(v, scale) for v in (one, two, three))
    assert told(a.merged(b).merged(c)) == told(a.merged(b.merged(c)))


@given(VALUES, SCALE, st.integers(0, 5))
def test_a_coarser_scale_is_that_of_the_values(values, scale, steps):
    assert told(of(values, scale).coarser(scale - steps)) == told(of(values, scale - steps))


@given(VALUES, SCALE, st.one_of(st.floats(1e-9, 1e9), st.sampled_from([0.0, 0.5, 1.0, 2.0])))
@settings(max_examples=200)
def test_the_number_above_a_limit_is_never_guessed(values, scale, limit):
    least, most = of(values, scale).count_above(limit)
    assert least <= sum(v > limit for v in values) <= most


@given(VALUES, st.integers(0, 7), st.integers(-3, 3))
def test_a_limit_on_a_bucket_bound_is_answered_exactly(values, scale, power):
    limit = 2.0**power
    above = sum(v > limit for v in values)
    assert of(values, scale).count_above(limit) == (above, above)


@given(VALUES, VALUES, SCALE)
def test_between_two_cumulative_histograms_came_what_the_second_has_more(first, more, scale):
    between = of(first + more, scale).since(of(first, scale))
    assert told(between) == told(of(more, scale))


def test_counting_that_began_anew_has_no_difference():
    assert of([1.0]).since(of([1.0, 2.0])) is None
    assert of([2.0]).since(of([1.0])) is None
    assert of([1.0, 1.0]).since(of([0.0])) is None


def test_a_larger_zero_threshold_takes_the_buckets_it_reaches_into():
    fine = of([0.0, 0.3, 0.6, 5.0], 0)  # buckets (0.25, 0.5], (0.5, 1], (4, 8]
    near = ExponentialHistogram(0, 2, 2, np.array([1]), zero_threshold=0.7)
    merged = fine.merged(near)
    assert told(merged) == (0, 5, 1.0, {2: 2})
    assert told(near.merged(fine)) == told(merged)
    assert merged.count_above(0.8) == (2, 7)


def test_least_and_largest_value_decide_where_buckets_do_not():
    h = ExponentialHistogram(0, 0, 0, np.array([4]), low=1.2, high=1.6)  # one bucket, (1, 2]
    assert [h.count_above(limit) for limit in (1.1, 1.4, 1.6)] == [(4, 4), (0, 4), (0, 0)]


def test_far_apart_values_are_held_at_a_coarser_scale():
    wide = of([1e-300, 1e300], 20)
    far = of([1e-300], 20).merged(of([1e300], 20))
    hostile = ExponentialHistogram(20, 0, 2**31 - 1, np.array([1])).merged(of([1e-9], 20))
    assert max(len(h.counts) for h in (wide, far, hostile)) <= BUCKETS_AT_MOST
    assert told(wide) == told(far)
    assert hostile.total == 2


def test_without_values_there_is_no_share():
    assert np.isnan(of([]).share_above(1.0)).all()
    assert told(of([]).merged(of([1.0]))) == told(of([1.0]))


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_what_is_no_duration_is_refused(value):
    with pytest.raises(ValueError, match="values must be finite and at least 0"):
        of([value])


@pytest.mark.parametrize("scale", [-11, 21])
def test_a_scale_beyond_the_data_model_is_refused(scale):
    with pytest.raises(ValueError, match=f"no exponential histogram: scale {scale}, zero count 0"):
        ExponentialHistogram(scale, 0, 0, np.zeros(1, np.int64))


def test_refining_is_refused():
    with pytest.raises(ValueError, match="scale 3 cannot be refined to 4"):
        of([1.0], 3).coarser(4)
