"""D4 to D6, D8, D13: what truncation and clipping cut off."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from softmax_pairs import (
    SEEDS,
    assert_holds,
    assert_reached,
    chi_square,
    coin,
    softmax_pairs,
    symmetric_coin,
    two_valued,
)

from paritas.contracts.bounds import (
    clipped_amount_from_oscillation,
    lower_tail_from_oscillation,
    optimal_cap,
    oscillation_of_clipped_amount,
    oscillation_of_upper_tail,
    tv_from_oscillation,
    upper_tail_from_chi2,
    upper_tail_from_oscillation,
)

pairs = settings(max_examples=60, deadline=None)
numbers = settings(max_examples=100, deadline=None)
CAPS = st.floats(1.0, 6.0)
FLOORS = st.floats(0.0, 1.0)
CLIPS = st.one_of(st.floats(0.0, 1.5), st.floats(1e-6, 1e-2))
BETAS = st.floats(1e-9, 0.999)


def upper_tail(rows, cap):
    return (rows.q * np.maximum(rows.w - cap, 0)).sum(1)


def lower_tail(rows, floor):
    return (rows.q * np.maximum(floor - rows.w, 0)).sum(1)


@pairs
@given(softmax_pairs(), CAPS)
def test_d4_holds(rows, cap):
    assert_holds(upper_tail(rows, cap), upper_tail_from_oscillation(rows.oscillation, cap))


@pytest.mark.parametrize(("drift", "cap"), [(1e-3, 1.0), (0.5, 1.0), (1.0, 1.5), (3.0, 2.0), (3.0, 5.0)])
def test_d4_is_reached(drift, cap):
    rows = two_valued(drift, np.sqrt(cap) * np.exp(-drift / 2))
    assert_reached(upper_tail(rows, cap), upper_tail_from_oscillation(drift, cap), share=1 - 1e-6)


def test_d4_is_tanh_at_one_and_zero_up_to_log_cap():
    drift = np.array([0.0, 1e-300, 1e-6, 0.3, 5.0, 800.0, np.inf])
    np.testing.assert_allclose(
        upper_tail_from_oscillation(drift, 1.0), tv_from_oscillation(drift), rtol=1e-12
    )
    assert upper_tail_from_oscillation(np.log(2.0), 2.0) == 0.0
    assert upper_tail_from_oscillation(np.log(2.0) + 1e-6, 2.0) > 0.0
    assert upper_tail_from_oscillation(np.inf, 5.0) == 1.0


@pairs
@given(softmax_pairs(), FLOORS)
def test_d5_holds(rows, floor):
    assert_holds(lower_tail(rows, floor), lower_tail_from_oscillation(rows.oscillation, floor))


@pytest.mark.parametrize(("drift", "floor"), [(1e-3, 1.0), (0.5, 1.0), (1.0, 0.7), (3.0, 0.2)])
def test_d5_is_reached(drift, floor):
    rows = two_valued(drift, np.sqrt(floor) * np.exp(-drift / 2))
    assert_reached(lower_tail(rows, floor), lower_tail_from_oscillation(drift, floor), share=1 - 1e-6)


def test_d5_edges():
    assert lower_tail_from_oscillation(np.inf, 0.3) == 0.3
    assert lower_tail_from_oscillation(np.inf, 0.0) == lower_tail_from_oscillation(5.0, 0.0) == 0.0


@pairs
@given(softmax_pairs(), CLIPS)
def test_d6_holds(rows, clip):
    amount = (rows.q * np.abs(np.clip(rows.w, 1 - clip, 1 + clip) - rows.w)).sum(1)
    assert_holds(amount, clipped_amount_from_oscillation(rows.oscillation, clip))


@pytest.mark.parametrize(
    ("drift", "clip", "rows"),
    [
        (1.0, 0.1, symmetric_coin(1.0)),  # both tails
        (0.5, 0.0, symmetric_coin(0.5)),
        (0.5, 0.4, two_valued(0.5, np.sqrt(1.4) * np.exp(-0.25))),  # the upper tail alone
        (3.0, 1.5, two_valued(3.0, np.sqrt(2.5) * np.exp(-1.5))),
    ],
)
def test_d6_is_reached(drift, clip, rows):
    amount = (rows.q * np.abs(np.clip(rows.w, 1 - clip, 1 + clip) - rows.w)).sum(1)
    assert_reached(amount, clipped_amount_from_oscillation(drift, clip), share=1 - 1e-6)


@numbers
@given(st.floats(0.0, 30.0), FLOORS)
def test_d6_lower_tail_alone_is_never_the_largest(drift, clip):
    assert_holds(lower_tail_from_oscillation(drift, 1 - clip), upper_tail_from_oscillation(drift, 1 + clip))


@pairs
@given(softmax_pairs(), st.floats(1.0001, 8.0))
def test_d8_holds(rows, cap):
    assert_holds(upper_tail(rows, cap), upper_tail_from_chi2(chi_square(rows), cap))
    assert_holds(upper_tail(rows, cap), (rows.p * (rows.w > cap)).sum(1))


def rare_ratio(ratio, chance):
    """One token of chance `chance` under q has w = `ratio`; the rest shares what is left of p."""
    rest = (1 - chance * ratio) / (1 - chance)
    log_odds = np.log(chance) - np.log1p(-chance)
    return coin(log_odds, np.log(ratio / rest))


@pytest.mark.parametrize("cap", [1.01, 1.5, 4.0])
def test_d8_is_reached(cap):
    rows = rare_ratio(2 * cap - 1, 1e-4)
    assert_reached(upper_tail(rows, cap), upper_tail_from_chi2(chi_square(rows), cap))
    huge = rare_ratio(cap * 1e4, 1e-7)
    assert_reached(upper_tail(huge, cap), (huge.p * (huge.w > cap)).sum(1))


def test_d8_edges():
    assert upper_tail_from_chi2(0.0, 1.0) == 0.0
    assert upper_tail_from_chi2(1.0, 1.0) == np.inf


def mse_bound(weights, mass, cap, samples):
    tail = (mass * np.maximum(weights - cap, 0)).sum()
    return tail**2 + (mass * np.minimum(weights, cap) ** 2).sum() / samples


@numbers
@given(SEEDS, st.floats(1.0, 1e4), st.floats(0.1, 2.0))
def test_d13_holds(seed, samples, spread):
    rng = np.random.default_rng(seed)
    mass, weights = rng.dirichlet(np.ones(8)), np.exp(rng.normal(size=8) * spread)
    weights = weights / (mass * weights).sum()
    cap = optimal_cap(weights, samples, probability=mass)
    best = mse_bound(weights, mass, cap, samples)
    for other in cap * np.array([0.5, 0.9, 0.99, 1.01, 1.1, 2.0]):
        assert_holds(best, mse_bound(weights, mass, other, samples))


@numbers
@given(SEEDS, st.floats(1.0, 1e4))
def test_d13_is_reached(seed, samples):
    weights = np.exp(np.random.default_rng(seed).normal(size=50))
    cap = optimal_cap(weights, samples)
    assert cap == pytest.approx(samples * np.maximum(weights - cap, 0).mean(), rel=1e-9, abs=0.0)


@numbers
@given(BETAS, st.floats(1.0, 20.0))
def test_f6_holds_for_truncation(beta, cap):
    drift = oscillation_of_upper_tail(beta, cap)
    assert upper_tail_from_oscillation(drift, cap) == pytest.approx(beta, rel=1e-6, abs=0.0)


@numbers
@given(BETAS, st.floats(0.0, 3.0))
def test_f6_holds_for_clipping(beta, clip):
    drift = oscillation_of_clipped_amount(beta, clip)
    assert_holds(clipped_amount_from_oscillation(drift, clip), beta)
    if np.isfinite(drift):
        assert clipped_amount_from_oscillation(drift * 1.001, clip) > beta


def test_f6_edges_of_the_tails():
    assert oscillation_of_upper_tail(0.0, 2.0) == pytest.approx(np.log(2))
    assert oscillation_of_upper_tail([1.0, 7.0], 2.0).tolist() == [np.inf, np.inf]
    assert oscillation_of_upper_tail(0.3, 1.0) == pytest.approx(4 * np.arctanh(0.3))
    assert oscillation_of_clipped_amount(0.0, 0.2) == pytest.approx(np.log(1.2))
    assert oscillation_of_clipped_amount(2.0, 0.0) == np.inf
    assert oscillation_of_clipped_amount(0.0, 0.0) == 0.0
