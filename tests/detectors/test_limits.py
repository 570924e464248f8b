"""Always-valid limits of a mean: the formula, and how often they are wrong at any moment."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paritas.detectors.limits import radius


def direct(spread, units, alpha):
    """D16 term by term, normalised over the twelve bets."""
    weights = [1.0 / ((j + 1) * (j + 2)) for j in range(12)]
    terms = []
    for j, weight in enumerate(weights):
        bet = 2.0 ** (-1 - j)
        price = math.log(sum(weights) / (alpha * weight))
        terms.append((price + (-math.log(1 - bet) - bet) * spread) / (bet * units))
    return min(terms)


@given(st.integers(1, 10**6), st.floats(0.0, 1.0), st.floats(1e-9, 0.5))
def test_the_radius_is_the_formula(units, share, alpha):
    assert radius(share * units, units, alpha) == pytest.approx(direct(share * units, units, alpha), rel=1e-9)


def test_there_is_no_limit_without_values():
    assert radius(0.0, 0, 0.01) == math.inf


@given(st.integers(1, 10**6), st.floats(0.0, 1.0))
def test_more_certainty_is_wider_and_more_spread_is_wider(units, share):
    assert radius(share * units, units, 0.01) > radius(share * units, units, 0.1)
    assert radius(share * units + 1.0, units, 0.01) > radius(share * units, units, 0.01)


@pytest.mark.parametrize(("mean", "shape"), [(0.02, 0.3), (0.5, 2.0), (0.05, None)])
def test_limits_hold_at_every_moment(mean, shape):
    """400 streams, looked at 60 times each: fewer than alpha of them may ever be wrong on one side."""
    rng, streams, units, alpha = np.random.default_rng(11), 400, 1500, 0.1
    if shape is None:
        values = rng.binomial(1, mean, (streams, units)).astype(float)
    else:
        values = rng.beta(shape, shape * (1 - mean) / mean, (streams, units))
    count = np.arange(1, units + 1)
    before = np.cumsum(values, axis=1) - values
    spread = np.cumsum((values - (0.5 + before) / count) ** 2, axis=1)
    looks = np.unique(np.geomspace(1, units, 60).astype(int)) - 1
    means = np.cumsum(values, axis=1) / count
    high, low = np.zeros(streams, bool), np.zeros(streams, bool)
    for look in looks:
        r = np.array([radius(v, look + 1, alpha) for v in spread[:, look]])
        high |= means[:, look] - r > mean
        low |= means[:, look] + r < mean
    assert high.mean() <= alpha
    assert low.mean() <= alpha
    assert r.max() < max(0.6 * mean, 0.1)  # and they are worth having
