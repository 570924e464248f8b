"""Rhythm: drift that grows, and the sawtooth of a cache that is emptied at each update."""

import numpy as np
import pytest

from paritas.detectors.diagnosis.bets import CLEAR
from paritas.detectors.diagnosis.rhythm import BLOCK, EDGE, Rhythm


def played(seed, versions, units, size):
    """Return the rhythm of `versions` of `units` each; `size` of (version, unit)."""
    rng, rhythm = np.random.default_rng(seed), Rhythm()
    for version in range(versions):
        for unit in range(units):
            rhythm.fold(size(version, unit / units) * rng.lognormal(0.0, 0.3), str(version))
    return rhythm


def test_growth_within_versions_and_falls_between_them_are_a_sawtooth():
    rhythm = played(1, 16, 40, lambda _, part: 0.03 + 0.1 * part)
    assert rhythm.sawtooth() >= CLEAR
    assert rhythm.rises.positive >= 14
    assert rhythm.falls.positive >= 14


@pytest.mark.parametrize(
    "size",
    [
        lambda version, part: 0.05,
        lambda version, part: 0.02 * (version + part),  # grows, and never falls
        lambda version, part: 0.05 if version % 2 else 0.2,  # jumps, and does not grow
    ],
    ids=["even", "growing", "jumping"],
)
def test_nothing_else_is_a_sawtooth(size):
    assert played(2, 20, 40, size).sawtooth() < CLEAR


def test_even_drift_is_seldom_called_a_sawtooth_or_a_trend():
    found = [played(seed, 20, 40, lambda *_: 0.05) for seed in range(60)]
    assert np.mean([r.sawtooth() >= CLEAR for r in found]) <= 0.05
    assert np.mean([r.growth() >= CLEAR for r in found]) <= 0.05


def test_growth_over_many_versions_is_a_trend():
    rhythm = played(3, 40, 40, lambda version, part: 0.03 * 1.1 ** (version + part))
    assert rhythm.growth() >= CLEAR
    assert played(3, 40, 40, lambda version, part: 0.03 * 0.9 ** (version + part)).growth() < 0.0


def test_versions_too_short_to_have_two_ends_say_nothing():
    rhythm = played(4, 30, 2 * EDGE - 1, lambda _, part: 0.03 + part)
    assert (rhythm.rises.positive, rhythm.rises.negative) == (0, 0)
    assert (rhythm.falls.positive, rhythm.falls.negative) == (0, 0)


def test_no_version_and_any_number_of_units_take_the_same_memory():
    rhythm = Rhythm()
    for _ in range(10 * BLOCK + 5):
        rhythm.fold(0.05, "")
    assert (len(rhythm.early), len(rhythm.late), len(rhythm.block)) == (EDGE, EDGE, 5)


@pytest.mark.parametrize("units", [BLOCK, 2 * BLOCK], ids=["jumping", "sawtooth"])
def test_drift_that_moves_to_and_fro_in_step_with_the_blocks_is_no_trend(units):
    def size(version, part):
        return (0.05 if version % 2 else 0.2) if units == BLOCK else 0.03 + 0.1 * part

    rhythm = played(5, 40, units, size)
    assert rhythm.growth() < 0.0
    assert max(rhythm.trend.log10_e(), rhythm.trend_between.log10_e()) >= CLEAR
