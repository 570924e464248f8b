"""D7, D10, D18: what a mask or a clip range catches because the kernels differ."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from softmax_pairs import (
    assert_holds,
    assert_reached,
    coin,
    mismatched_pairs,
    pairs_of,
    softmax_pairs,
    total_variation,
    two_valued,
)

from paritas.contracts.bounds import (
    bias_statistic,
    clip_never_binds,
    is_phantom_clip,
    masked_mass_from_oscillation,
    masked_mass_from_tv,
    oscillation_of_masked_mass,
)
from paritas.contracts.model import Estimator

pairs = settings(max_examples=60, deadline=None)
numbers = settings(max_examples=100, deadline=None)
LOWS, HIGHS = st.floats(0.0, 1.0), st.floats(1.0, 4.0)


def masked(rows, low, high):
    return (rows.p * ((rows.w < low) | (rows.w > high))).sum(1)


@pairs
@given(softmax_pairs(), LOWS, HIGHS)
def test_d7_holds(rows, low, high):
    assert_holds(masked(rows, low, high), masked_mass_from_oscillation(rows.oscillation, low, high))


@pytest.mark.parametrize(("drift", "cap"), [(1e-2, 1.005), (0.9, 1.3), (3.0, 2.0)])
def test_d7_is_reached(drift, cap):
    just_above = two_valued(drift, cap * (1 + 1e-9) * np.exp(-drift))
    assert_reached(
        masked(just_above, 0.0, cap), masked_mass_from_oscillation(drift, 0.0, cap), share=1 - 1e-4
    )
    just_below = two_valued(drift, (1 - 1e-9) / cap)
    assert_reached(
        masked(just_below, 1 / cap, 1e9), masked_mass_from_oscillation(drift, 1 / cap, 1e9), share=1 - 1e-4
    )


def test_d7_is_reached_by_masking_everything():
    rows = two_valued(0.7, np.exp(-0.35))
    assert masked(rows, 0.8, 1.25) == pytest.approx(1.0)
    assert masked_mass_from_oscillation(0.7, 0.8, 1.25) == 1.0


@pairs
@given(mismatched_pairs(), LOWS, HIGHS)
def test_d10_holds(rows, low, high):
    ratio = np.exp(rows.log_ratio)
    dropped = (rows.p * ((rows.q == 0) | (ratio < low) | (ratio > high))).sum(1)
    assert_holds(dropped, masked_mass_from_tv(np.minimum(total_variation(rows.p, rows.q), 1), low, high))


def test_d10_is_reached():
    low, high, tv = 0.5, 2.0, 0.1  # masked: p = 0.2 just above 2, p = 0.1 just below 1/2
    ratio = np.array([high * (1 + 1e-9), low * (1 - 1e-9), 1.0])
    p = np.array([tv * high / (high - 1), tv * low / (1 - low), 0.7])
    q = p / ratio
    assert q.sum() == pytest.approx(1.0)
    assert_reached(p[:2].sum(), masked_mass_from_tv(total_variation(p, q), low, high), share=1 - 1e-6)


def test_d10_bias_of_masks_does_not_vanish_where_that_of_weights_does():
    rng = np.random.default_rng(1)
    rows = pairs_of(rng.normal(size=4000), rng.uniform(-5e-4, 5e-4, 4000))  # D = 1e-3
    sign = np.sign(rows.log_ratio)

    def beta(estimator):
        return (rows.q * bias_statistic(rows.log_ratio, estimator, advantage=sign)).sum()

    assert beta(Estimator(kind="ppo_min", clip=0.0)) > 0.999
    assert beta(Estimator(kind="clip", clip=0.0)) < 3e-4
    assert beta(Estimator(kind="mis", low=1 / 1.0001, cap=1.0001)) == pytest.approx(0.8, abs=0.02)
    assert beta(Estimator(kind="tis", cap=1.0001)) < 1e-4
    assert masked_mass_from_oscillation(1e-3, 1 / 1.0001, 1.0001) == 1.0


@pairs
@given(softmax_pairs(), st.floats(0.01, 2.0))
def test_d18_holds(rows, clip):
    never = clip_never_binds(rows.oscillation, clip * (1 + 1e-12))
    assert not is_phantom_clip(rows.log_ratio[never], clip * (1 + 1e-9)).any()


@pytest.mark.parametrize("clip", [1e-3, 0.2, 0.5])
def test_d18_is_reached(clip):
    drift = 1.005 * np.log1p(clip)
    assert not clip_never_binds(drift, clip)
    assert is_phantom_clip(coin(-20.0, drift).log_ratio, clip).any()
    assert clip_never_binds(np.log1p(clip), clip)


def test_d18_phantom_rate_of_a_lognormal_ratio_is_the_published_one():
    ell = np.random.default_rng(3).normal(-(0.15**2) / 2, 0.15, 400_000)
    assert is_phantom_clip(ell, 0.2).mean() == pytest.approx(0.18, abs=0.005)
    assert is_phantom_clip([-np.inf, 0.0], 1.0).tolist() == [False, False]  # w = 0 is inside [0, 2]


@numbers
@given(st.floats(0.0, 0.999), LOWS, HIGHS)
def test_f6_holds_for_masks(beta, low, high):
    drift = oscillation_of_masked_mass(beta, low, high)
    assert_holds(masked_mass_from_oscillation(drift * (1 - 1e-12), low, high), beta + 1e-9)
    beyond = masked_mass_from_oscillation(drift * (1 + 1e-6) + 1e-9, low, high)
    assert beyond >= beta * (1 - 1e-6)


def test_f6_edges_of_the_masks():
    assert oscillation_of_masked_mass(0.0, 0.5, 1.2) == pytest.approx(np.log(1.2))
    assert oscillation_of_masked_mass(0.0, 0.9, 1.2) == pytest.approx(-np.log(0.9))
    assert oscillation_of_masked_mass(0.0, 1.0, 1.0) == 0.0
    assert oscillation_of_masked_mass(0.1, 0.0, 2.0) == pytest.approx(np.log(1.9 / 0.9))
    assert oscillation_of_masked_mass(1.0, 0.9, 1.1) == np.inf
    assert masked_mass_from_tv(0.0, 1.0, 1.0) == 0.0
    assert masked_mass_from_tv(1e-9, 1.0, 2.0) == 1.0
