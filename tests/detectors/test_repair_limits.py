"""Fixed-sample limits: against the definition written out, and their coverage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_factory import lost, pair, paired

from paritas.detectors.limits import radius
from paritas.detectors.repair_limits import BETS, lower_limit, unit_means, units_of, upper_limit

VALUES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60).map(np.array)
ALPHAS = st.floats(0.001, 0.5)


def wealth(values, mean):
    """The e-value against "the mean is at least this", written out."""
    return np.mean([np.prod([1.0 - bet / (1.0 - mean) * (x - mean) for x in values]) for bet in BETS])


@given(VALUES, ALPHAS)
def test_means_above_the_upper_limit_are_refuted_and_none_below_it(values, alpha):
    limit = upper_limit(values, alpha)
    assert values.mean() <= limit <= 1.0
    if limit < 1.0 - 1e-9:
        assert wealth(values, limit + (1.0 - limit) * 1e-6) >= (1.0 - 1e-6) / alpha
    below = limit - 1e-6
    if below > values.mean():
        assert wealth(values, below) < (1.0 + 1e-6) / alpha


@given(VALUES, ALPHAS)
def test_the_lower_limit_is_the_upper_one_of_the_mirror_image(values, alpha):
    low = lower_limit(values, alpha)
    assert 0.0 <= low <= values.mean() + 1e-12
    assert low == pytest.approx(1.0 - upper_limit(1.0 - values, alpha), abs=1e-12)


@given(VALUES, st.floats(0.001, 0.2), st.floats(0.21, 0.5))
def test_more_certainty_costs_width(values, strict, lax):
    assert upper_limit(values, strict) >= upper_limit(values, lax)


def test_without_values_nothing_is_known():
    assert (lower_limit(np.zeros(0), 0.05), upper_limit(np.zeros(0), 0.05)) == (0.0, 1.0)


@pytest.mark.parametrize("law", ["bernoulli", "small", "lognormal"])
def test_limits_hold_as_often_as_they_say(law):
    rng, alpha, runs, missed = np.random.default_rng(5), 0.1, 200, 0
    draw = {
        "bernoulli": (0.05, lambda n: (rng.random(n) < 0.05).astype(float)),
        "small": (0.01, lambda n: rng.exponential(0.01, n).clip(0, 1)),
        "lognormal": (None, lambda n: -np.expm1(np.minimum(rng.normal(-0.02, 0.2, n), 0.0))),
    }[law]
    mean = draw[1](200_000).mean() if draw[0] is None else draw[0]
    for _ in range(runs):
        missed += upper_limit(draw[1](60), alpha) < mean
    assert missed <= alpha * runs + 3 * np.sqrt(alpha * (1 - alpha) * runs)


def test_they_are_tighter_than_limits_that_hold_at_every_moment():
    rng = np.random.default_rng(3)
    for n in (50, 500, 5000):
        values = rng.exponential(0.02, n).clip(0, 1)
        guesses = (np.concatenate([[0.0], np.cumsum(values)[:-1]]) + 0.5) / np.arange(1, n + 1)
        anytime = radius(float(np.square(values - guesses).sum()), n, 0.05)
        assert upper_limit(values, 0.05) - values.mean() < anytime


def test_units_are_sequences_or_groups_wherever_they_stand():
    some = [paired(pair([0.1], name=f"s-{i}", group_id=g)) for i, g in enumerate("abab")]
    some.append(lost(name="s-9"))
    assert units_of(some, by_group=False).tolist() == [0, 1, 2, 3, 4]
    assert units_of(some, by_group=True).tolist() == [0, 1, 0, 1, 2]


def test_a_unit_is_the_mean_of_those_that_can_tell():
    values = np.array([0.2, 0.4, np.nan, 0.8, np.nan])
    assert unit_means(values, np.array([0, 0, 0, 2, 3])).tolist() == [pytest.approx(0.3), 0.8]
    assert unit_means(np.array([np.nan]), np.array([0])).size == 0
