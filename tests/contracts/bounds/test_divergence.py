"""A1 to A10: one token, from oscillation to divergences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from softmax_pairs import (
    SEEDS,
    assert_holds,
    assert_reached,
    blocks,
    chi_square,
    coin,
    kl_inference_to_train,
    kl_train_to_inference,
    mismatched_pairs,
    pairs_of,
    random_sets,
    softmax_pairs,
    symmetric_coin,
    total_variation,
)

from paritas.contracts.bounds import (
    bhattacharyya_from_oscillation,
    chi2_from_oscillation,
    ess_share_from_oscillation,
    event_interval,
    hellinger2_from_oscillation,
    jeffreys_from_oscillation,
    kl_from_oscillation,
    kl_from_variance,
    l2_distance_from_l2_drift,
    oscillation_from_l2_drift,
    ratio_interval,
    tv_from_kl,
    tv_from_oscillation,
    tv_from_oscillation_and_rest,
)
from paritas.contracts.bounds.numerics import sigmoid

pairs = settings(max_examples=60, deadline=None)
DRIFTS = (1e-6, 1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


def tv(rows):
    return total_variation(rows.p, rows.q)


def rest(law):
    """Everything but the top token, without cancellation."""
    return np.sort(law, 1)[:, :-1].sum(1)


def l2_drift(rows):
    return np.linalg.norm(rows.drift - rows.drift.mean(1, keepdims=True), axis=1)


@pairs
@given(softmax_pairs())
def test_a1_holds(rows):
    low, high = ratio_interval(rows.oscillation)
    assert_holds(rows.w.max(1), high)
    least = rows.w.min(1)
    kept = least > 0.0  # a ratio below 1e-308 is 0 in float64; its logarithm is tested below
    assert_holds(1 / least[kept], 1 / low[kept])
    assert_holds(-rows.log_ratio.min(1), rows.oscillation)
    assert (rows.log_ratio.min(1) <= 1e-12).all()
    assert (rows.log_ratio.max(1) >= -1e-12).all()


@pytest.mark.parametrize("drift", [1e-3, 1.0, 20.0])
def test_a1_is_reached(drift):
    assert_reached(coin(-30.0 - drift, drift).log_ratio.max(), drift)
    assert_reached(-coin(30.0, drift).log_ratio.min(), drift)


@pairs
@given(softmax_pairs(), SEEDS)
def test_a1_holds_for_events(rows, seed):
    event = random_sets(np.random.default_rng(seed), rows.q, share=0.4)
    low, high = event_interval(np.minimum((rows.q * event).sum(1), 1.0), rows.oscillation)
    moved = (rows.p * event).sum(1)
    assert_holds(moved, high)
    assert_holds(low, moved)


def test_a1_is_reached_for_events():
    rows = blocks(-0.3, 1.7, sizes=(2, 5))
    high = event_interval(rows.q[0, :2].sum(), 1.7).upper
    assert_reached(rows.p[0, :2].sum(), high, share=1 - 1e-12)
    assert_reached(event_interval(rows.q[0, 2:].sum(), 1.7).lower, rows.p[0, 2:].sum(), share=1 - 1e-12)


@pairs
@given(softmax_pairs())
def test_a2_holds(rows):
    assert_holds(tv(rows), tv_from_oscillation(rows.oscillation))


@pytest.mark.parametrize("drift", DRIFTS)
def test_a2_is_reached(drift):
    for rows in (symmetric_coin(drift), blocks(-drift / 2, drift)):
        assert_reached(tv(rows), tv_from_oscillation(drift), share=1 - 1e-9)


def test_a2_lipschitz_constant_is_a_quarter():
    small = np.array([1e-12, 1e-6, 1e-3])
    assert_reached(tv_from_oscillation(small), small / 4)


@pairs
@given(softmax_pairs())
def test_a3_holds(rows):
    for law in (rows.q, rows.p):
        bound = tv_from_oscillation_and_rest(rows.oscillation, rest(law))
        assert_holds(tv(rows), bound)
        assert_holds(bound, tv_from_oscillation(rows.oscillation))


@pytest.mark.parametrize("log_odds", [0.8, 3.0, 20.0, 300.0])
@pytest.mark.parametrize("share", [1e-6, 0.1, 0.5, 0.999])
def test_a3_is_reached(log_odds, share):
    drift = share * 2 * log_odds  # D < 2 L
    gain = sigmoid(-log_odds) * np.expm1(drift)
    bound = tv_from_oscillation_and_rest(drift, sigmoid(-log_odds))
    assert_reached(sigmoid(log_odds) * gain / (1 + gain), bound, share=1 - 1e-9)
    if log_odds < 30:  # beyond, the pair itself does not fit in floats
        assert_reached(tv(coin(-log_odds, drift)), bound, share=1 - 1e-6)


@pytest.mark.parametrize("excess", [1.001, 1.02, 1.5])
def test_a3_is_reached_where_the_top_token_does_not_help(excess):
    rest_mass, drift = sigmoid(-1.0), 2.0 * excess  # L = 1, D > 2 L
    raised = sigmoid(-drift / 2)  # the best set fits into the rest
    rows = pairs_of(np.log([1 - rest_mass, raised, rest_mass - raised]), [0.0, drift, 0.0])
    assert_reached(tv(rows), tv_from_oscillation_and_rest(drift, rest_mass), share=1 - 1e-9)


def test_a3_takes_a2_where_the_top_token_does_not_help():
    assert tv_from_oscillation_and_rest(2.0, 0.5) == tv_from_oscillation(2.0)
    assert tv_from_oscillation_and_rest(np.inf, 0.0) == 1.0
    assert tv_from_oscillation_and_rest(5.0, 0.0) == 0.0
    assert tv_from_oscillation_and_rest(1300.0, sigmoid(-700.0)) == pytest.approx(1.0)  # exp(D) is no float


@pairs
@given(softmax_pairs())
def test_a4_holds(rows):
    bound = kl_from_oscillation(rows.oscillation)
    assert_holds(kl_inference_to_train(rows), bound)
    assert_holds(kl_train_to_inference(rows), bound)


@pytest.mark.parametrize("drift", [1e-3, 0.04, 0.06, 0.5, 1.0, 5.0, 20.0])
def test_a4_is_reached(drift):
    mass = 1 / drift - 1 / np.expm1(drift)
    log_odds = np.log(mass / (1 - mass))
    assert_reached(kl_inference_to_train(coin(log_odds, drift)), kl_from_oscillation(drift), share=1 - 1e-6)
    mirrored = coin(log_odds + drift, -drift)  # roles of p and q exchanged
    assert_reached(kl_train_to_inference(mirrored), kl_from_oscillation(drift), share=1 - 1e-6)


def test_a4_closed_form_lies_below_both_simple_ones():
    drift = np.logspace(-9, 5, 500)
    assert_holds(kl_from_oscillation(drift), np.minimum(drift**2 / 8, drift))
    assert_reached(kl_from_oscillation(1e-3), 1e-6 / 8, share=1 - 1e-6)
    assert_reached(kl_from_oscillation(1e5), 1e5, share=0.999)


def test_a4_series_meets_the_closed_form():
    below, above = kl_from_oscillation(np.array([0.05 * (1 - 1e-12), 0.05 * (1 + 1e-12)]))
    assert below == pytest.approx(above, rel=1e-11, abs=0.0)


@pairs
@given(softmax_pairs())
def test_a5_holds(rows):
    both = kl_inference_to_train(rows) + kl_train_to_inference(rows)
    assert_holds(both, rows.oscillation * tv(rows))
    assert_holds(both, jeffreys_from_oscillation(rows.oscillation))


@pytest.mark.parametrize("drift", [1e-3, 0.1, 1.0, 10.0])
def test_a5_is_reached(drift):
    rows = symmetric_coin(drift)
    both = kl_inference_to_train(rows) + kl_train_to_inference(rows)
    assert_reached(both, jeffreys_from_oscillation(drift), share=1 - 1e-6)


@pairs
@given(softmax_pairs())
def test_a6_holds(rows):
    assert_holds(chi_square(rows), chi2_from_oscillation(rows.oscillation))
    assert_holds(ess_share_from_oscillation(rows.oscillation), 1 / (1 + chi_square(rows)))


@pytest.mark.parametrize("drift", [1e-4, 0.1, 1.0, 5.0, 20.0])
def test_a6_is_reached(drift):
    rows = coin(-drift, drift)
    assert_reached(chi_square(rows), chi2_from_oscillation(drift), share=1 - 1e-6)
    assert_reached(ess_share_from_oscillation(drift), 1 / (1 + chi_square(rows)), share=1 - 1e-6)


@pairs
@given(softmax_pairs())
def test_a7_holds(rows):
    hellinger2 = 0.5 * (rows.q * np.expm1(rows.log_ratio / 2) ** 2).sum(1)
    assert_holds(hellinger2, hellinger2_from_oscillation(rows.oscillation))
    assert_holds(hellinger2_from_oscillation(rows.oscillation), rows.oscillation**2 / 32)
    assert_holds(bhattacharyya_from_oscillation(rows.oscillation), np.sqrt(rows.p * rows.q).sum(1))


@pytest.mark.parametrize("drift", [1e-4, 0.1, 1.0, 10.0])
def test_a7_is_reached(drift):
    rows = symmetric_coin(drift)
    hellinger2 = 0.5 * (rows.q * np.expm1(rows.log_ratio / 2) ** 2).sum(1)
    assert_reached(hellinger2, hellinger2_from_oscillation(drift), share=1 - 1e-6)
    affinity = np.sqrt(rows.p * rows.q).sum(1)
    assert_reached(bhattacharyya_from_oscillation(drift), affinity, share=1 - 1e-9)


@pairs
@given(softmax_pairs())
def test_a8_holds(rows):
    drift = oscillation_from_l2_drift(l2_drift(rows), temperature=rows.temperature)
    assert_holds(rows.oscillation, drift)
    assert_holds(tv(rows), tv_from_oscillation(drift))
    distance = np.linalg.norm(rows.p - rows.q, axis=1)
    assert_holds(distance, l2_distance_from_l2_drift(l2_drift(rows), temperature=rows.temperature))


@pytest.mark.parametrize("drift", [1e-4, 0.1, 1.0, 10.0])
def test_a8_is_reached(drift):
    rows = symmetric_coin(drift)
    assert_reached(tv(rows), tv_from_oscillation(oscillation_from_l2_drift(l2_drift(rows))), share=1 - 1e-9)
    small = symmetric_coin(min(drift, 0.1))
    distance = np.linalg.norm(small.p - small.q, axis=1)
    assert_reached(distance, l2_distance_from_l2_drift(l2_drift(small)))


def test_a8_distance_is_at_most_that_of_two_certain_tokens():
    assert l2_distance_from_l2_drift(1e9) == np.sqrt(2)


def variance_and_largest(rows):
    x = rows.drift / rows.temperature[:, None]
    x = x - (rows.q * x).sum(1, keepdims=True)
    return (rows.q * x * x).sum(1), x.max(1).clip(0)


@pairs
@given(softmax_pairs())
def test_a9_holds(rows):
    assert_holds(kl_inference_to_train(rows), kl_from_variance(*variance_and_largest(rows)))


@pytest.mark.parametrize("drift", [1e-4, 1e-2, 0.05])
def test_a9_is_reached(drift):
    rows = coin(-3.0, drift)
    assert_reached(kl_inference_to_train(rows), kl_from_variance(*variance_and_largest(rows)))


def test_a9_is_half_the_variance_for_small_drift_and_survives_large():
    assert kl_from_variance(1e-8, 1e-4) == pytest.approx(0.5e-8, rel=1e-4, abs=0.0)
    assert kl_from_variance(1.0, 1e6) == pytest.approx(1e6, rel=1e-4, abs=0.0)
    assert kl_from_variance(0.0, np.inf) == 0.0
    assert kl_from_variance(1.0, np.inf) == np.inf
    below, above = kl_from_variance(1.0, np.array([1e-2 * (1 - 1e-9), 1e-2 * (1 + 1e-9)]))
    assert below == pytest.approx(above, rel=1e-8, abs=0.0)


@pairs
@given(softmax_pairs())
def test_a10_holds(rows):
    smaller = np.minimum(kl_inference_to_train(rows), kl_train_to_inference(rows))
    assert_holds(tv(rows), tv_from_kl(smaller))


@pairs
@given(mismatched_pairs())
def test_a10_holds_with_missing_mass(rows):
    inside = np.where((rows.q > 0) & (rows.p == 0), np.inf, rows.q * -rows.log_ratio)
    assert_holds(total_variation(rows.p, rows.q), tv_from_kl(np.maximum(inside.sum(1), 0.0)))


@pytest.mark.parametrize("drift", [1e-5, 1e-2, 0.3])
def test_a10_is_reached(drift):
    rows = symmetric_coin(drift)
    assert_reached(tv(rows), tv_from_kl(kl_inference_to_train(rows)))


def test_a10_is_reached_by_disjoint_laws():
    assert tv_from_kl(np.inf) == 1.0


@settings(max_examples=60, deadline=None)
@given(st.floats(0.5, 4.0))
def test_a10_switches_from_pinsker_to_bretagnolle_huber(kl):
    pinsker = np.sqrt(kl / 2)
    assert (tv_from_kl(kl) < pinsker) == (kl > 1.5936)


def test_a10_is_concave_so_it_holds_between_means():
    kl = np.linspace(0, 6, 2001)
    assert (np.diff(tv_from_kl(kl), n=2) <= 1e-12).all()


def test_a_ranges_are_checked():
    with pytest.raises(ValueError, match=r"^oscillation must be 0 or more, got nan$"):
        tv_from_oscillation(np.nan)
    with pytest.raises(ValueError, match=r"^oscillation must be 0 or more, got -1$"):
        kl_from_oscillation([0.0, -1.0])
    with pytest.raises(ValueError, match=r"^rest must be between 0 and 1, got 5$"):
        tv_from_oscillation_and_rest(0.1, 5.0)
    with pytest.raises(ValueError, match=r"^temperature must be above 0, got 0$"):
        oscillation_from_l2_drift(1.0, temperature=0.0)


def test_three_tokens_with_one_constant_shift_do_not_drift():
    rows = pairs_of([1.0, 2.0, 3.0], [7.0, 7.0, 7.0])
    assert rows.oscillation == 0.0
    assert tv(rows) == tv_from_oscillation(rows.oscillation) == 0.0
