"""Bets: wealth is multiplied by one plus the bet times the distance from the limit."""

import numpy as np
import pytest
from pair_factory import EVERYTHING, clause

from paritas.detectors.bets import Bets, factors, multipliers
from paritas.detectors.rows import make_row
from paritas.detectors.sequential import CEILING


def row_of(statistic, limit=None, **more):
    return make_row(clause(statistic, limit, **more), EVERYTHING, "all", 1.0)


def test_a_value_above_the_limit_wins_one_bet_and_loses_the_other():
    row, value = row_of("tv", 0.05), 0.2
    up, down = multipliers(row, np.array([value]))
    np.testing.assert_allclose(up[0], 1.0 + row.up * (value - row.tau))
    np.testing.assert_allclose(down[0], 1.0 - row.down * (value - row.tau))
    assert (up > 1.0).all()
    assert (down < 1.0).all()


def test_bets_on_a_signed_mean_play_each_sign():
    row, raw = row_of("calibration_gap", 0.1), np.array([0.5, -0.5, 0.0])
    up, down = multipliers(row, row.scale.down(raw))
    expected = 1.0 + np.abs(row.up) * (np.sign(row.up) * raw[:, None] - 0.1)
    np.testing.assert_allclose(up, expected, rtol=1e-12)
    assert (down == 1.0).all()


def test_a_value_that_is_not_known_or_is_the_limit_bets_nothing():
    row = row_of("tv", 0.05)
    up, down = multipliers(row, np.array([np.nan, row.tau]))
    assert (up == 1.0).all()
    assert (down == 1.0).all()


def test_a_value_beyond_every_bound_stays_a_number():
    row = row_of("kl_k3", 1e-9)
    up, _ = multipliers(row, np.array([1e308]))
    assert up.max() == CEILING
    assert np.isfinite(factors(row, np.array([1e308]))[0]).all()


def test_nats_are_the_logarithms():
    row, values = row_of("tv", 0.05), np.array([0.0, 0.01, 0.9])
    for nats, plain in zip(factors(row, values), multipliers(row, values), strict=True):
        np.testing.assert_allclose(nats, np.log(plain))


@pytest.mark.parametrize("n", [0, 1, 7])
def test_rows_together_are_rows_alone_bit_for_bit(n):
    rows = [row_of("tv", 0.05), row_of("calibration_gap", 0.1), row_of("nonfinite_rate", 0.0)]
    values = np.random.default_rng(n).random((n, len(rows)))
    together = Bets.of(rows).multiply(values)
    for i, row in enumerate(rows):
        for side, alone in enumerate(multipliers(row, values[:, i])):
            assert together[:, side, :, i].tobytes() == alone.tobytes()
