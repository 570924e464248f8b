"""A19 and A21: what one sampled token says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from softmax_pairs import (
    SEEDS,
    assert_holds,
    assert_reached,
    coin,
    kl_inference_to_train,
    mismatched_pairs,
    random_pairs,
    softmax_pairs,
    total_variation,
)

from paritas.contracts.bounds import affinity, capped_ratio, excess, k3, shortfall, top1_surprise

pairs = settings(max_examples=60, deadline=None)
IDENTITY = 1e-9


def mean(statistic, rows):
    return (rows.q * statistic(rows.log_ratio)).sum(1)


@pairs
@given(mismatched_pairs())
def test_a19_is_an_identity(rows):
    tv = total_variation(rows.p, rows.q)
    np.testing.assert_allclose(mean(shortfall, rows), tv, atol=IDENTITY)
    np.testing.assert_allclose(mean(excess, rows), tv - rows.missing, atol=IDENTITY)
    np.testing.assert_allclose(mean(np.exp, rows), 1 - rows.missing, atol=IDENTITY)
    np.testing.assert_allclose(mean(affinity, rows), np.sqrt(rows.p * rows.q).sum(1), atol=IDENTITY)


def test_a19_the_common_half_absolute_form_misses_half_the_missing_mass():
    q, p = np.array([0.5, 0.5, 0.0]), np.array([0.4, 0.4, 0.2])
    common = (q * 0.5 * np.abs(p / np.where(q > 0, q, 1) - 1)).sum()
    assert total_variation(p, q) - common == pytest.approx(0.1)


@pairs
@given(mismatched_pairs(), st.floats(1.0, 20.0))
def test_a21_holds(rows, cap):
    assert_holds(mean(lambda ell: capped_ratio(ell, cap), rows), 1.0)
    assert_holds(rows.missing, 1 - mean(lambda ell: capped_ratio(ell, cap), rows))


def test_a21_is_reached():
    rows = coin(0.4, 0.5)
    assert_reached(mean(lambda ell: capped_ratio(ell, 2.0), rows), 1.0, share=1 - 1e-12)


@pairs
@given(SEEDS)
def test_a21_holds_for_the_top1_frequency(seed):
    rows = random_pairs(np.random.default_rng(seed), 5)
    top = rows.q == rows.q.max(1, keepdims=True)
    surprise = top1_surprise(top, np.broadcast_to(rows.q.max(1, keepdims=True), top.shape))
    np.testing.assert_allclose((rows.q * surprise).sum(1), 0.0, atol=IDENTITY)


def test_a21_finds_logs_at_the_wrong_temperature():
    logits = np.array([[2.0, 1.0, 0.0, -1.0]])
    sampled = np.exp(logits / 0.6) / np.exp(logits / 0.6).sum()
    logged = np.exp(logits) / np.exp(logits).sum()
    mean_ratio = (sampled * capped_ratio(np.log(sampled / logged), 20.0)).sum()
    assert mean_ratio == pytest.approx(1 + ((sampled - logged) ** 2 / logged).sum())
    assert mean_ratio > 1.1
    surprise = (sampled * top1_surprise([True, False, False, False], logged.max())).sum()
    assert surprise > 0.1  # the ratio is blind to both sides wrong; this is not


@pairs
@given(softmax_pairs())
def test_k3_has_the_mean_of_kl(rows):
    np.testing.assert_allclose(mean(k3, rows), kl_inference_to_train(rows), rtol=1e-9, atol=1e-15)
    assert (k3(rows.log_ratio) >= 0).all()


def test_statistics_at_the_ends():
    assert shortfall([-np.inf, 0.0, 1e300]).tolist() == [1.0, 0.0, 0.0]
    assert capped_ratio([-np.inf, 0.0, 1e300], 2.0).tolist() == [0.0, 1.0, 2.0]
    assert capped_ratio(700.0, np.inf) > 1e300
    assert excess(1e300) == affinity(1e300) == k3(1e300) == np.inf
    assert k3(-np.inf) == np.inf
    assert shortfall(-1e-20) == 1e-20


@pytest.mark.parametrize("fault", [np.nan, np.inf])
def test_faults_in_the_log_are_not_drift(fault):
    with pytest.raises(ValueError, match=rf"^log_ratio must be .*, got {fault}$"):
        shortfall([0.0, fault])


def test_cap_below_one_is_refused():
    with pytest.raises(ValueError, match=r"^cap must be 1 or more, got 0.5$"):
        capped_ratio(0.0, 0.5)
