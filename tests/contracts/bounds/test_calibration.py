"""E1 to E6: drift of confidence and calibration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import logit
from softmax_pairs import (
    SEEDS,
    assert_holds,
    assert_reached,
    coin,
    mismatched_pairs,
    softmax_pairs,
    total_variation,
)

from paritas.contracts.bounds import (
    brier_drift,
    confidence_drift_from_oscillation,
    confidence_drift_from_tv,
    confidence_gap_drift,
    ece_drift,
    ece_drift_items,
    smooth_calibration_drift,
)

pairs = settings(max_examples=50, deadline=None)


@pairs
@given(softmax_pairs())
def test_e1_holds(rows):
    moved = np.abs(rows.p.max(1) - rows.q.max(1))
    assert_holds(moved, confidence_drift_from_tv(np.minimum(total_variation(rows.p, rows.q), 1)))
    for law in (rows.p, rows.q):
        confidence = np.minimum(law.max(1), 1.0) - 4e-16  # what a sum of floats can hide below 1
        assert_holds(moved, confidence_drift_from_oscillation(confidence, rows.oscillation))


@pairs
@given(mismatched_pairs())
def test_e1_holds_with_missing_mass(rows):
    moved = np.abs(rows.p.max(1) - rows.q.max(1))
    assert_holds(moved, confidence_drift_from_tv(np.minimum(total_variation(rows.p, rows.q), 1)))


@pytest.mark.parametrize(("log_odds", "drift"), [(1.0, 0.5), (8.0, 2.0), (3.0, -1.0), (0.5, 1e-6)])
def test_e1_is_reached(log_odds, drift):
    rows = coin(log_odds, drift)
    moved = np.abs(rows.p.max(1) - rows.q.max(1))
    assert_reached(moved, confidence_drift_from_tv(total_variation(rows.p, rows.q)), share=1 - 1e-9)
    if drift < 0:  # the larger side of the interval: down from above one half
        bound = confidence_drift_from_oscillation(rows.q.max(1), -drift)
        assert_reached(moved, bound, share=1 - 1e-9)
    assert abs(logit(rows.p[0, 0]) - logit(rows.q[0, 0])) == pytest.approx(abs(drift), rel=1e-6, abs=0.0)


def ece(confidence, correct, bins):
    """Binned expected calibration error by its definition, equal fixed bins."""
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gap = np.bincount(place, weights=correct - confidence, minlength=bins)
    return np.abs(gap).sum() / len(confidence), place


def random_items(rng, size=60):
    confidence = rng.random(size)
    correct = rng.random(size) < confidence
    step = rng.uniform(-1, 1, size) * np.exp(rng.uniform(-8, 0))
    other_correct = correct ^ (rng.random(size) < 0.03)
    return confidence, np.clip(confidence + step, 0, 1), correct, other_correct


@settings(max_examples=200, deadline=None)
@given(SEEDS, st.sampled_from((2, 10, 50)))
def test_e2_holds(seed, bins):
    f, g, y, z = random_items(np.random.default_rng(seed))
    (before, place), (after, moved) = ece(f, y, bins), ece(g, z, bins)
    items = ece_drift_items(f, g, place != moved, correct=y, other_correct=z)
    changed = (place != moved) | (y != z)
    assert_holds(abs(after - before), items.mean())
    assert_holds(items.mean(), ece_drift(np.abs(f - g).mean(), changed.mean()))


def bin_leaver(bins):
    """One right item leaves a balanced bin for an empty one; the old bin then lacks its counterweight."""
    width = 1 / bins
    filler = np.full(round(2 * bins), width / 2)  # wrong answers that balance the right one at 0
    f = np.concatenate([[0.0], filler])
    g = np.concatenate([[width], filler])
    y = np.concatenate([[True], np.zeros(len(filler), bool)])
    (before, place), (after, moved) = ece(f, y, bins), ece(g, y, bins)
    items = ece_drift_items(f, g, place != moved, correct=y, other_correct=y)
    return abs(after - before), items.mean(), ece_drift(np.abs(f - g).mean(), (place != moved).mean())


def test_e2_is_reached():
    drift, exact, bound = bin_leaver(1000)
    assert_reached(drift, exact)
    assert_reached(drift, bound)


def test_e2_is_reached_to_90_percent_with_ten_bins():
    drift, exact, bound = bin_leaver(10)
    assert_reached(drift, exact)
    assert_reached(drift, bound, share=0.90)
    assert drift < 0.91 * bound


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_e3_holds(seed):
    f, g, y, z = random_items(np.random.default_rng(seed))
    drift = abs(abs(g.mean() - z.mean()) - abs(f.mean() - y.mean()))
    assert_holds(drift, confidence_gap_drift(np.abs(f - g).mean(), (y != z).mean()))


def test_e3_is_reached():
    f, y = np.full(100, 0.7), np.arange(100) < 60
    g, z = f + 0.05, np.arange(100) < 57
    drift = (g.mean() - z.mean()) - (f.mean() - y.mean())
    assert_reached(drift, confidence_gap_drift(0.05, 0.03), share=1 - 1e-9)


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_e4_holds(seed):
    f, g, y, _ = random_items(np.random.default_rng(seed))
    drift = abs(((y - g) ** 2).mean() - ((y - f) ** 2).mean())
    assert_holds(drift, brier_drift(np.abs(f - g).mean()))


def test_e4_is_reached():
    step = 1e-3
    assert_reached(1 - (1 - step) ** 2, brier_drift(step))  # sure and wrong: f from 0, Y = 1


def smooth_calibration_error(confidence, correct):
    """Supremum of mean (Y-f) h(f) over 1-Lipschitz h into [-1, 1], by linear programming."""
    order = np.argsort(confidence)
    f, gap = confidence[order], (correct - confidence)[order]
    steps = np.diff(np.eye(len(f)), axis=0)
    constraints = np.concatenate([steps, -steps])
    answer = linprog(
        -gap / len(f), A_ub=constraints, b_ub=np.tile(np.diff(f), 2), bounds=(-1, 1), method="highs"
    )
    return -answer.fun


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_e5_holds(seed):
    f, g, y, _ = random_items(np.random.default_rng(seed), size=12)
    drift = abs(smooth_calibration_error(g, y) - smooth_calibration_error(f, y))
    assert_holds(drift, smooth_calibration_drift(np.abs(f - g).mean()) + 1e-9)


def test_e5_is_reached():
    y = np.array([True, False])
    f, g = np.array([0.0, 0.99]), np.array([1e-3, 0.99])
    drift = smooth_calibration_error(f, y) - smooth_calibration_error(g, y)
    assert_reached(drift, smooth_calibration_drift(0.5e-3))


def test_e6_is_a_counterexample():
    f = np.full(100, 0.5)
    y = np.arange(100) < 50
    g = f + np.where(y, 1e-9, -1e-9)
    assert ece(f, y, 10)[0] == 0.0
    assert ece(g, y, 10)[0] == pytest.approx(0.5)
    assert smooth_calibration_error(g, y) - smooth_calibration_error(f, y) < 1e-8  # the clause that is sound


def test_e_drifts_are_at_most_the_whole_range():
    assert brier_drift(1.0) == smooth_calibration_drift(0.7) == 1.0
    assert confidence_drift_from_oscillation(0.3, np.inf) == 0.7
    assert confidence_drift_from_oscillation([0.0, 1.0], 5.0).tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match=r"^flip_share must be between 0 and 1, got -0.1$"):
        confidence_gap_drift(0.1, -0.1)
