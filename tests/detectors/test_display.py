"""Display series: river's statistics, fed safely."""

import math
import pickle

import numpy as np
import pytest

from paritas.detectors.display import Series


def series(values, limit=0.01):
    told = Series(limit)
    for value in values:
        told.update(float(value))
    return told


def test_nothing_yet_is_nan():
    got = Series(0.01).as_dict()
    assert set(got) == {"ew_mean", "median", "p99", "variance", "changes"}
    assert got.pop("changes") == 0.0
    assert all(math.isnan(v) for v in got.values())


def test_the_numbers_are_those_of_the_values():
    values = np.random.default_rng(2).exponential(0.01, 4000)
    got = series(values).as_dict()
    assert got["variance"] == pytest.approx(values.var(ddof=1), rel=1e-9)
    assert got["median"] == pytest.approx(np.median(values), rel=0.1)
    assert got["p99"] == pytest.approx(np.quantile(values, 0.99), rel=0.1)
    weights = 0.99 ** np.arange(4000)[::-1]
    assert got["ew_mean"] == pytest.approx((weights @ values) / weights.sum(), rel=1e-3)


def test_one_bad_value_poisons_nothing():
    values = np.random.default_rng(2).exponential(0.01, 100)
    clean = series(values).as_dict()
    told = series([*values[:50], math.nan, math.inf, -math.inf, *values[50:]])
    assert told.as_dict() == clean
    assert told.skipped == 3


def test_a_change_of_level_is_seen_and_counted():
    rng = np.random.default_rng(2)
    quiet, loud = rng.exponential(0.005, 600), rng.exponential(0.04, 600)
    assert series(quiet).changes == 0
    assert series([*quiet, *loud]).changes >= 1


def test_a_limit_of_zero_does_not_divide():
    assert series([0.0, 0.5, 2.0], limit=0.0).changes == 0


def test_a_restart_changes_nothing():
    values = np.random.default_rng(3).exponential(0.01, 300)
    restored = pickle.loads(pickle.dumps(series(values[:150])))
    for value in values[150:]:
        restored.update(float(value))
    assert restored.as_dict() == series(values).as_dict()
