"""C1 to C7: from total variation to reward and metrics."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import rel_entr
from softmax_pairs import (
    SEEDS,
    assert_holds,
    assert_reached,
    chi_square,
    coin,
    kl_inference_to_train,
    mismatched_pairs,
    softmax_pairs,
    symmetric_coin,
    total_variation,
)

from paritas.contracts.bounds import (
    accuracy_interval_from_kl,
    best_of_n_drift,
    choice_is_stable,
    k_sample_drift,
    nll_drift_from_oscillation,
    reward_drift_from_chi2,
    reward_drift_from_tv,
    reward_drift_statistics,
)

pairs = settings(max_examples=50, deadline=None)
SAMPLES = st.integers(1, 32)


def tv(rows):
    return np.minimum(total_variation(rows.p, rows.q), 1.0)


@pairs
@given(mismatched_pairs(), SEEDS, st.booleans())
def test_c1_holds(rows, seed, extreme):
    reward = np.random.default_rng(seed).normal(size=rows.p.shape) * 3 + 1
    reward = np.where(rows.p > rows.q, 1.3, -0.7) if extreme else reward
    drift = np.abs(((rows.p - rows.q) * reward).sum(1))
    assert_holds(drift, reward_drift_from_tv(tv(rows), np.ptp(reward, axis=1)))


def test_c1_is_reached():
    rows = coin(-0.3, 1.7)
    reward = (rows.p > rows.q) * 2.0
    assert_reached(((rows.p - rows.q) * reward).sum(1), reward_drift_from_tv(tv(rows), 2.0), share=1 - 1e-12)


@pairs
@given(softmax_pairs(), SEEDS)
def test_c2_holds(rows, seed):
    reward = np.random.default_rng(seed).normal(size=rows.p.shape)
    reward[::2] = rows.w[::2]
    centred = reward - (rows.q * reward).sum(1, keepdims=True)
    drift = np.abs((rows.q * np.expm1(rows.log_ratio) * centred).sum(1))
    assert_holds(drift, reward_drift_from_chi2((rows.q * centred**2).sum(1), chi_square(rows)))


def test_c2_is_reached():
    rows = coin(-0.3, 1.7)
    drift = ((rows.p - rows.q) * rows.w).sum(1)
    assert_reached(drift, reward_drift_from_chi2(chi_square(rows), chi_square(rows)), share=1 - 1e-9)


def test_c2_edges():
    assert reward_drift_from_chi2(0.0, np.inf) == 0.0
    assert reward_drift_from_chi2(1.0, np.inf) == np.inf


@pairs
@given(mismatched_pairs(), SEEDS, SAMPLES)
def test_c3_holds(rows, seed, k):
    solved = np.random.default_rng(seed).random(rows.p.shape) < 0.3
    failing = [1 - np.minimum((law * solved).sum(1), 1) for law in (rows.p, rows.q)]
    assert_holds(np.abs(failing[0] ** k - failing[1] ** k), k_sample_drift(tv(rows), k))


def majority(right, k):
    """Chance that more than half of k independent answers are right."""
    hits = np.arange(k // 2 + 1, k + 1)
    ways = np.array([np.prod(np.arange(k - h + 1, k + 1) / np.arange(1, h + 1)) for h in hits])
    return (ways * right[:, None] ** hits * (1 - right[:, None]) ** (k - hits)).sum(1)


@pairs
@given(softmax_pairs(), st.integers(1, 15))
def test_c3_holds_for_majority_votes(rows, k):
    drift = np.abs(majority(rows.p[:, 0], k) - majority(rows.q[:, 0], k))
    assert_holds(drift, k_sample_drift(tv(rows), k))


@pytest.mark.parametrize("k", [1, 8, 1000])
def test_c3_is_reached(k):
    theta = 1e-3  # the new kernel solves the prompt with chance theta, the old one never
    assert_reached(1 - (1 - theta) ** k, k_sample_drift(theta, k), share=1 - 1e-9)


def best_of(law, reward, n):
    """Exact mean of the largest reward of n independent draws."""
    order = np.argsort(reward, 1)
    below = np.cumsum(np.take_along_axis(law, order, 1), 1).clip(0, 1) ** n
    return (np.diff(below, axis=1, prepend=0.0) * np.take_along_axis(reward, order, 1)).sum(1)


@pairs
@given(mismatched_pairs(), SEEDS, SAMPLES)
def test_c4_holds(rows, seed, n):
    reward = np.random.default_rng(seed).random(rows.p.shape) * 3
    drift = np.abs(best_of(rows.p, reward, n) - best_of(rows.q, reward, n))
    assert_holds(drift, best_of_n_drift(tv(rows), n, np.ptp(reward, axis=1)))


def test_c4_is_reached():
    p, q, reward = np.array([[0.8, 0.2]]), np.array([[1.0, 0.0]]), np.array([[0.0, 3.0]])
    drift = best_of(p, reward, 5) - best_of(q, reward, 5)
    assert_reached(drift, best_of_n_drift(total_variation(p, q), 5, 3.0), share=1 - 1e-12)


@pairs
@given(softmax_pairs(), SEEDS)
def test_c5_holds(rows, seed):
    right = np.random.default_rng(seed).random(rows.p.shape) < 0.5
    kl = kl_inference_to_train(rows)
    low, high = accuracy_interval_from_kl(np.minimum((rows.q * right).sum(1), 1.0), kl)
    accuracy = (rows.p * right).sum(1)
    assert_holds(accuracy, high)
    assert_holds(low, accuracy)


@pytest.mark.parametrize("log_odds", [-20.0, -3.0, 0.0, 3.0])
@pytest.mark.parametrize("drift", [1e-6, 0.1, 2.0])
def test_c5_is_reached(log_odds, drift):
    up, down = coin(log_odds, drift), coin(log_odds, -drift)
    high = accuracy_interval_from_kl(up.q[0, 0], kl_inference_to_train(up)[0]).upper
    low = accuracy_interval_from_kl(down.q[0, 0], kl_inference_to_train(down)[0]).lower
    assert_reached(up.p[0, 0], high, share=1 - 1e-6)
    assert_reached(low, down.p[0, 0], share=1 - 1e-6)


def test_c5_edges():
    assert accuracy_interval_from_kl(0.3, np.inf) == (0.0, 1.0)
    low, high = accuracy_interval_from_kl(0.3, 0.0)
    assert low == pytest.approx(0.3, abs=1e-15)
    assert high == pytest.approx(0.3, abs=1e-15)
    low, high = accuracy_interval_from_kl([0.0, 1.0], 1e-3)  # kl(0, a) = -log(1 - a)
    np.testing.assert_allclose(low, [0.0, np.exp(-1e-3)], rtol=1e-12)
    np.testing.assert_allclose(high, [-np.expm1(-1e-3), 1.0], rtol=1e-12)


def test_c5_is_far_inside_c1_near_the_ends():
    rows = coin(-6.0, 0.5)
    kl = kl_inference_to_train(rows)[0]
    assert kl == pytest.approx(rel_entr(rows.q, rows.p).sum(), rel=1e-9, abs=0.0)
    width = np.subtract(*accuracy_interval_from_kl(rows.q[0, 0], kl)[::-1])
    assert width < 0.2 * 2 * np.sqrt(kl / 2)  # both sides of C1 through Pinsker


@pairs
@given(mismatched_pairs(), SEEDS, st.floats(1.0, 8.0))
def test_c6_holds(rows, seed, cap):
    reward = np.random.default_rng(seed).random(rows.p.shape)
    low, high = ((rows.q * part).sum(1) for part in reward_drift_statistics(rows.log_ratio, reward, cap))
    drift = ((rows.p - rows.q) * reward).sum(1)
    assert_holds(1 + drift, 1 + high)
    assert_holds(1 + low, 1 + drift)
    width = 1 - (rows.q * np.minimum(np.exp(rows.log_ratio), cap)).sum(1)
    np.testing.assert_allclose(high - low, width, atol=1e-9)


def test_c6_is_reached():
    rows, reward = symmetric_coin(0.4), np.array([[1.0, 0.25]])
    statistics = reward_drift_statistics(rows.log_ratio, reward, 2.0)  # no ratio reaches the cap
    drift = ((rows.p - rows.q) * reward).sum(1)
    for part in statistics:
        np.testing.assert_allclose((rows.q * part).sum(1), drift, rtol=1e-12)


@pairs
@given(softmax_pairs(), SEEDS)
def test_c7_holds(rows, seed):
    text = np.random.default_rng(seed).integers(0, rows.q.shape[1], (len(rows.q), 4))
    moved = np.abs(np.take_along_axis(rows.log_ratio, text, 1).mean(1))
    assert_holds(moved, nll_drift_from_oscillation(rows.oscillation))


def test_c7_is_reached():
    assert_reached(coin(-30.0, 1.5).log_ratio[0, 0], nll_drift_from_oscillation(1.5))


@pairs
@given(st.floats(-5, 5), st.floats(-1, 1), st.floats(-1, 1))
def test_c7_holds_for_choices(margin, first, second):
    stable = choice_is_stable(abs(margin), abs(first - second))
    flipped = (margin > 0) != (margin + (first - second) > 0)
    assert not (stable and flipped)


def test_c7_is_reached_for_choices():
    assert choice_is_stable(0.5, 0.4999)
    assert not choice_is_stable(0.5, 0.5)


def test_c_ranges_are_checked():
    with pytest.raises(ValueError, match=r"^tv must be between 0 and 1, got nan$"):
        reward_drift_from_tv(np.nan)
    with pytest.raises(ValueError, match=r"^reward must be between 0 and 1, got 2$"):
        reward_drift_statistics(0.0, 2.0, 2.0)
