"""Sequential tests: bets, start mass, one step of the e-detector, and how often a fair stream alarms."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_factory import SEEDS

from paritas.detectors.river_detectors import BETS, SRDetector
from paritas.detectors.sequential import (
    CEILING,
    FLOOR,
    LOG_CEILING,
    Grid,
    StartMass,
    grown,
    log_mean,
    mean_wealth,
    restart,
    scaled,
)


def test_bets_halve_up_to_the_largest():
    got = Grid().fractions()
    assert got.tolist() == sorted(got)
    assert (got.size, got[-1]) == (10, 0.9)
    np.testing.assert_allclose(got[1:] / got[:-1], 2.0)


@given(st.floats(1e-6, 0.999))
def test_bets_on_either_side_leave_a_tenth_of_the_wealth_at_worst(limit):
    grid = Grid()
    assert np.min(1.0 + grid.up(limit) * (0.0 - limit)) == pytest.approx(0.1)
    assert np.min(1.0 - grid.down(limit) * (1.0 - limit)) == pytest.approx(0.1)


@given(st.floats(0.1, 1.0))
def test_two_sided_bets_mirror_each_other(largest):
    got = Grid().both(largest)
    assert got.tolist() == [*got[:5], *(-got[:5])]
    assert got.max() == pytest.approx(0.9 * largest)


def test_the_first_unit_gets_the_most():
    mass = StartMass()
    assert mass.of(np.array([1, 2, 3]), np.zeros(3)).tolist() == pytest.approx([0.625, 0.25 / 6, 0.25 / 12])


@given(SEEDS, st.integers(1, 3000))
def test_a_period_spends_at_most_one(seed, units):
    elapsed = np.random.default_rng(seed).dirichlet(np.full(units + 1, 0.3))[:units]
    spent = StartMass().of(np.arange(1, units + 1), elapsed)
    assert np.all(spent > 0.0)
    assert math.fsum(spent) <= 1.0 + 1e-12


def test_more_than_a_period_between_units_counts_as_one_and_less_than_none_as_none():
    mass = StartMass()
    assert mass.of(np.array([9]), np.array([7.0])) == mass.of(np.array([9]), np.array([1.0]))
    assert mass.of(np.array([9]), np.array([-1.0])) == mass.of(np.array([9]), np.array([0.0]))


@given(SEEDS, st.integers(1, 4), st.integers(1, 6))
def test_a_step_is_wealth_plus_mass_times_factor(seed, rows, k):
    rng = np.random.default_rng(seed)
    wealth, mass, factor = (
        rng.exponential(size=(rows, k)),
        rng.random((rows, 1)),
        rng.uniform(0.1, 3, (rows, k)),
    )
    got = np.exp(restart(np.log(wealth), np.log(mass), np.log(factor)))
    np.testing.assert_allclose(got, (wealth + mass) * factor, rtol=1e-12)


def test_a_step_from_nothing_and_beyond_the_ceiling():
    nothing = np.full((1, 2), -np.inf)
    assert np.isneginf(restart(nothing, np.array([[-np.inf]]), np.zeros((1, 2)))).all()
    assert restart(nothing, np.zeros((1, 1)), np.array([[0.5, np.inf]])).tolist() == [[0.5, LOG_CEILING]]


@given(SEEDS, st.integers(1, 8))
def test_log_mean_is_the_log_of_the_mean(seed, k):
    logs = np.random.default_rng(seed).normal(0, 5, (3, k))
    np.testing.assert_allclose(log_mean(logs), np.log(np.exp(logs).mean(axis=1)), rtol=1e-12, atol=1e-12)


def test_log_mean_at_the_ends():
    assert log_mean(np.full((1, 3), LOG_CEILING)) == LOG_CEILING
    assert np.isneginf(log_mean(np.full((1, 3), -np.inf))[0])
    assert log_mean(np.array([[-np.inf, 0.0]])) == pytest.approx(-math.log(2))


@given(SEEDS, st.integers(1, 120))
def test_with_a_mass_of_one_a_unit_it_is_the_classic_detector(seed, units):
    values = np.random.default_rng(seed).exponential(0.02, units)
    detector, wealth = SRDetector(limit=0.02, threshold=math.inf), np.full((1, len(BETS)), -np.inf)
    for value in values:
        detector.update(float(value))
        wealth = restart(wealth, np.zeros((1, 1)), np.log1p(np.array([BETS]) / 0.02 * (value - 0.02)))
    assert detector.log_evidence == pytest.approx(float(log_mean(wealth)[0]), rel=1e-12, abs=1e-12)


def test_a_fair_stream_alarms_no_more_often_than_its_budget():
    """Mean exactly at the limit, 1000 streams of 400 units in half a period: at most alpha of them alarm."""
    rng, alpha, limit, units = np.random.default_rng(5), 0.2, 0.05, 400
    bets, mass = Grid().up(limit), StartMass()
    wealth, alarmed = np.full((1000, bets.size), -np.inf), np.zeros(1000, bool)
    for index in range(1, units + 1):
        value = rng.binomial(1, limit, 1000)[:, None]
        start = np.log(mass.of(np.array([index]), np.array([0.5 / units])))[:, None]
        wealth = restart(wealth, start, np.log1p(bets * (value - limit)))
        alarmed |= log_mean(wealth) >= -math.log(alpha)
    assert 0.0 < alarmed.mean() <= alpha


@given(SEEDS, st.integers(1, 5), st.integers(2, 10))
def test_wealth_itself_and_in_nats_are_the_same_game(seed, rows, k):
    rng = np.random.default_rng(seed)
    wealth, factor = rng.exponential(size=(2, rows, k))
    mass = rng.random((rows, 1))
    in_nats = restart(np.log(wealth), np.log(mass), np.log(factor))
    np.testing.assert_allclose(np.log(grown(wealth, mass, factor)), in_nats, atol=1e-12)
    np.testing.assert_allclose(np.log(scaled(wealth, factor)), np.log(wealth) + np.log(factor), atol=1e-12)
    np.testing.assert_allclose(np.log(mean_wealth(wealth, axis=1)), log_mean(np.log(wealth)), atol=1e-12)


def test_no_game_leaves_the_numbers():
    high, low = np.array([CEILING]), np.array([FLOOR])
    assert grown(high, np.ones(1), high) == scaled(high, high) == high
    assert scaled(low, np.zeros(1)) == low
    assert mean_wealth(np.full((1, 10), CEILING), axis=1) == high
    assert np.log(high) <= LOG_CEILING
    assert np.log(low) >= -LOG_CEILING


@given(SEEDS, st.integers(1, 6))
def test_the_mean_of_a_row_does_not_feel_the_rows_beside_it(seed, rows):
    wealth = np.random.default_rng(seed).exponential(size=(rows, 10)) ** 9
    together = mean_wealth(wealth, axis=1)
    for i in range(rows):
        assert mean_wealth(wealth[i : i + 1], axis=1).tobytes() == together[i : i + 1].tobytes()
        assert mean_wealth(wealth[:, :, None], axis=1)[i].tobytes() == together[i : i + 1].tobytes()
