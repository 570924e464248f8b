"""B1 to B7: from tokens to whole responses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from softmax_pairs import (
    ABSOLUTE,
    assert_holds,
    assert_reached,
    chi_square,
    coin,
    kl_inference_to_train,
    pairs_of,
    symmetric_coin,
    total_variation,
    tree_of,
    trees,
)

from paritas.contracts.bounds import (
    k3,
    log_ratio_radius,
    log_ratio_tail,
    sequence_bhattacharyya_from_oscillation,
    sequence_chi2_from_oscillation,
    sequence_chi2_from_oscillation_steps,
    sequence_ess_share_from_oscillation,
    sequence_tv_from_kl,
    sequence_tv_from_mean,
    sequence_tv_from_oscillation,
    sequence_tv_from_oscillation_steps,
    sequence_tv_from_sup,
    sequence_tv_from_sup_steps,
    shortfall,
    tv_from_kl,
    tv_from_oscillation,
)

sequences = settings(max_examples=40, deadline=None)
numbers = settings(max_examples=100, deadline=None)
OSCILLATIONS = st.floats(1e-4, 20.0)
HORIZONS = st.integers(1, 20_000)


def mean_step_tv(tree):
    """Sum over steps of the mean token TV, prefixes under q."""
    rows = zip(tree.before_q[:-1], tree.p, tree.q, strict=True)
    return sum((law * total_variation(p, q)).sum(1) for law, p, q in rows)


def coin_tosses(rows, horizon):
    """TV, chi-square and Bhattacharyya coefficient of `horizon` independent steps of one coin, exactly."""
    heads = np.arange(horizon + 1)
    p, q = binom.pmf(heads, horizon, rows.p[0, 0]), binom.pmf(heads, horizon, rows.q[0, 0])
    with np.errstate(divide="ignore", invalid="ignore"):
        chi2 = np.where(q > 0, (p - q) ** 2 / q, 0.0).sum()
    return total_variation(p, q), chi2, np.sqrt(p * q).sum()


def disjoint_steps(alpha, horizon):
    """Laws of the three-token pair of B2: common part 1 - alpha, disjoint remainders, every step."""
    p, q = np.array([1 - alpha, alpha, 0.0]), np.array([1 - alpha, 0.0, alpha])
    laws = [p, q]
    for _ in range(horizon - 1):
        laws = [np.multiply.outer(law, one).ravel() for law, one in zip(laws, (p, q), strict=True)]
    return laws


@sequences
@given(trees())
def test_b1_holds(tree):
    mean_tv = mean_step_tv(tree) / tree.horizon
    assert_holds(tree.sequence_tv, sequence_tv_from_mean(np.minimum(mean_tv, 1.0), tree.horizon))


def test_b1_is_reached():
    one_step = symmetric_coin(0.7)
    token_tv = total_variation(one_step.p, one_step.q)
    assert_reached(token_tv, sequence_tv_from_mean(token_tv, 1), share=1 - 1e-12)
    still = pairs_of([[0.1, 0.2]] * 2, [[0.0, 0.0]] * 2)
    only_first_drifts = tree_of([one_step, still], rows=1, n=2)
    bound = sequence_tv_from_mean(mean_step_tv(only_first_drifts) / 2, 2)
    assert_reached(only_first_drifts.sequence_tv, bound, share=1 - 1e-12)


def test_b1_is_reached_by_many_disjoint_steps():
    assert_reached(total_variation(*disjoint_steps(1e-3, 6)), sequence_tv_from_mean(1e-3, 6))


@sequences
@given(trees())
def test_b2_holds(tree):
    sup = np.stack([total_variation(p, q).max(1) for p, q in zip(tree.p, tree.q, strict=True)], 1).clip(0, 1)
    assert_holds(tree.sequence_tv, sequence_tv_from_sup_steps(sup))
    assert_holds(sequence_tv_from_sup_steps(sup), sequence_tv_from_sup(sup.max(1), tree.horizon))


@pytest.mark.parametrize("alpha", [1e-6, 0.13, 0.9])
def test_b2_is_reached(alpha):
    assert_reached(total_variation(*disjoint_steps(alpha, 5)), sequence_tv_from_sup(alpha, 5), share=1 - 1e-9)
    assert_reached(sequence_tv_from_sup_steps([alpha] * 5), sequence_tv_from_sup(alpha, 5), share=1 - 1e-12)


@sequences
@given(trees())
def test_b3_holds(tree):
    bound = sequence_tv_from_oscillation_steps(tree.sup_oscillation)
    assert_holds(tree.sequence_tv, bound)
    assert_holds(bound, sequence_tv_from_oscillation(tree.sup_oscillation.max(1), tree.horizon))
    assert_holds(bound, np.linalg.norm(tree.sup_oscillation, axis=1) / 4)


@pytest.mark.parametrize("drift", [1e-4, 0.7, 8.0])
def test_b3_is_reached(drift):
    rows = symmetric_coin(drift)
    assert_reached(total_variation(rows.p, rows.q), sequence_tv_from_oscillation(drift, 1), share=1 - 1e-9)


@pytest.mark.parametrize(("horizon", "share"), [(16, 0.78), (256, 0.79), (4096, 0.79)])
def test_b3_is_reached_to_78_percent_by_many_coins(horizon, share):
    drift = 0.2 / np.sqrt(horizon)
    exact = coin_tosses(symmetric_coin(drift), horizon)[0]
    assert_reached(exact, sequence_tv_from_oscillation(drift, horizon), share=share)
    assert exact < 0.8 * sequence_tv_from_oscillation(drift, horizon)  # the constant sqrt(2/pi)


@numbers
@given(OSCILLATIONS, HORIZONS)
def test_b3_is_never_above_the_other_routes(drift, horizon):
    root = sequence_tv_from_oscillation(drift, horizon)
    assert_holds(root, sequence_tv_from_sup(tv_from_oscillation(drift), horizon))
    assert_holds(root, tv_from_kl(horizon * drift**2 / 8))


@sequences
@given(trees())
def test_b4_holds(tree):
    kl = sum((law * step).sum(1) for law, step in zip(tree.before_q[:-1], tree.kl, strict=True))
    np.testing.assert_allclose(
        -(tree.before_q[-1] * tree.sequence_log_ratio).sum(1), kl, atol=1e-9
    )  # chain rule
    np.testing.assert_allclose((tree.before_q[-1] * k3(tree.sequence_log_ratio)).sum(1), kl, atol=1e-9)
    assert_holds(tree.sequence_tv, sequence_tv_from_kl(kl))


def test_b4_is_reached():
    rows = symmetric_coin(1e-3)
    kl = kl_inference_to_train(rows)
    assert_reached(total_variation(rows.p, rows.q), sequence_tv_from_kl(kl))


def test_b4_is_reached_to_79_percent_by_many_coins():
    rows = symmetric_coin(0.2 / 64)
    kl = 4096 * kl_inference_to_train(rows)[0]
    assert_reached(coin_tosses(rows, 4096)[0], sequence_tv_from_kl(kl), share=0.79)


@sequences
@given(trees())
def test_b5_holds(tree):
    ratio = np.exp(tree.sequence_log_ratio)
    chi2 = (tree.before_q[-1] * (ratio - 1) ** 2).sum(1)
    assert_holds(chi2, sequence_chi2_from_oscillation_steps(tree.sup_oscillation))
    largest = tree.sup_oscillation.max(1)
    assert_holds(chi2, sequence_chi2_from_oscillation(largest, tree.horizon))
    assert_holds(sequence_ess_share_from_oscillation(largest, tree.horizon), 1 / (1 + chi2))
    affinity = np.sqrt(tree.before_p[-1] * tree.before_q[-1]).sum(1)
    assert_holds(sequence_bhattacharyya_from_oscillation(largest, tree.horizon), affinity)
    assert_holds(np.abs(tree.sequence_log_ratio).max(1), tree.horizon * largest)


@pytest.mark.parametrize(("drift", "horizon"), [(0.9, 2), (0.05, 50), (2.0, 6)])
def test_b5_is_reached(drift, horizon):
    rows = coin(-drift, drift)
    exact = coin_tosses(rows, horizon)[1]
    assert_reached(exact, sequence_chi2_from_oscillation(drift, horizon))
    assert exact == pytest.approx((1 + chi_square(rows)[0]) ** horizon - 1)
    assert_reached(sequence_ess_share_from_oscillation(drift, horizon), 1 / (1 + exact))
    affinity = coin_tosses(symmetric_coin(drift), horizon)[2]
    assert_reached(sequence_bhattacharyya_from_oscillation(drift, horizon), affinity)


@numbers
@given(st.floats(0.02, 4.0), st.floats(-3.0, 3.0), st.sampled_from((1, 16, 64)))
def test_b6_holds(drift, log_odds, horizon):
    rows = coin(log_odds, drift)
    heads = np.arange(horizon + 1)
    centred = heads * rows.log_ratio[0, 0] + (horizon - heads) * rows.log_ratio[0, 1]
    centred = centred + horizon * kl_inference_to_train(rows)[0]
    mass = binom.pmf(heads, horizon, rows.q[0, 0])
    for deviation in np.linspace(0.0, 1.5, 40) * drift * np.sqrt(horizon):
        bound = log_ratio_tail(deviation, drift, horizon)
        assert_holds(mass[centred >= deviation + 1e-9].sum(), bound)
        assert_holds(mass[centred <= -deviation - 1e-9].sum(), bound)


def reach_at_one_deviation(horizon, drift=0.5):
    """Exact tail over bound at r = D sqrt(H)/2, the largest standard deviation, for fair coins."""
    rows = coin(0.0, drift)
    heads = (horizon + round(np.sqrt(horizon))) // 2
    deviation = (heads - horizon / 2) * drift
    assert deviation == pytest.approx(drift * np.sqrt(horizon) / 2)
    return binom.sf(heads - 1, horizon, rows.q[0, 0]) / log_ratio_tail(deviation, drift, horizon)


def test_b6_is_reached_to_82_percent_by_one_step_and_28_by_many():
    assert reach_at_one_deviation(1) == pytest.approx(0.824, abs=0.001)
    assert reach_at_one_deviation(16) == pytest.approx(0.375, abs=0.001)
    assert reach_at_one_deviation(256) == pytest.approx(0.287, abs=0.001)


@numbers
@given(st.floats(1e-6, 0.999), OSCILLATIONS, HORIZONS)
def test_b6_radius_inverts_the_tail(alpha, drift, horizon):
    radius = log_ratio_radius(drift, horizon, alpha=alpha)
    assert log_ratio_tail(radius, drift, horizon) == pytest.approx(alpha, rel=1e-9, abs=0.0)


@sequences
@given(trees())
def test_b7_is_an_identity(tree):
    mean = (tree.before_q[-1] * shortfall(tree.sequence_log_ratio)).sum(1)
    np.testing.assert_allclose(mean, tree.sequence_tv, atol=1e-9)


def test_b_edges():
    assert sequence_tv_from_oscillation(0.0, 1e6) == sequence_tv_from_sup(0.0, 1e6) == 0.0
    assert sequence_tv_from_oscillation(np.inf, 1) == sequence_tv_from_sup(1.0, 1) == 1.0
    assert sequence_tv_from_oscillation(np.inf, 0) == sequence_chi2_from_oscillation(np.inf, 0) == 0.0
    assert sequence_tv_from_mean(1.0, 1e6) == 1.0
    assert sequence_chi2_from_oscillation(10.0, 1e9) == np.inf
    assert sequence_tv_from_oscillation(1e-12, 1e6) == pytest.approx(1e-12 * 1e3 / 4, rel=1e-9, abs=0.0)
    assert log_ratio_tail(0.0, 0.0, 10) == 1.0
    assert log_ratio_tail(1e-300, 0.0, 10) == 0.0


def test_b_a_bound_on_each_token_does_not_bound_the_product():
    assert 0.99**1000 < 5e-5
    assert 1.01**1000 > 2e4
    assert ABSOLUTE < 0.99**1000  # the products are numbers, not rounding
