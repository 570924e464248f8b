"""Reading the chain upward: scalars that a budget compiler compares."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.contracts.bounds import (
    derive_from_gradient_bias,
    derive_from_reward_drift,
    derive_from_token_tv,
    forecast_gradient_bias,
    forecast_gradient_bias_from_oscillation,
    forecast_reward,
    forecast_sequence_tv,
    forecast_sequence_tv_from_kl,
    forecast_sequence_tv_from_sup,
    forecast_sequence_tv_sqrt,
    forecast_token_tv,
)
from paritas.contracts.model import Estimator

numbers = settings(max_examples=100, deadline=None)
SHARES = st.floats(1e-9, 0.9)


@numbers
@given(SHARES, st.floats(0.1, 50.0), st.integers(1, 100_000))
def test_forecast_of_a_derived_budget_is_the_declared_one(share, width, horizon):
    declared = share * width
    budget = derive_from_reward_drift(declared, reward_range=(0.0, width), horizon=horizon)
    for theta in (
        forecast_sequence_tv(budget.token_tv_mean, horizon),
        forecast_sequence_tv_sqrt(budget.oscillation, horizon),
        forecast_sequence_tv_from_sup(budget.token_tv_sup, horizon),
        forecast_sequence_tv_from_kl(budget.kl_token, horizon),
    ):
        assert forecast_reward(theta, (0.0, width)) == pytest.approx(declared, rel=1e-9, abs=0.0)


@numbers
@given(SHARES)
def test_token_forecast_inverts_the_token_budget(tv):
    assert forecast_token_tv(derive_from_token_tv(tv).oscillation) == pytest.approx(tv, rel=1e-9, abs=0.0)


@numbers
@given(
    SHARES,
    st.sampled_from(
        (Estimator(kind="none"), Estimator(kind="tis", cap=2.0), Estimator(kind="clip", clip=0.2))
    ),
)
def test_gradient_forecasts_invert_the_gradient_budget(beta, estimator):
    budget = derive_from_gradient_bias(beta, estimator)
    assert forecast_gradient_bias(budget.token_tv_mean, estimator) == pytest.approx(beta, rel=1e-9, abs=0.0)
    assert forecast_gradient_bias_from_oscillation(budget.oscillation, estimator) == pytest.approx(
        beta, rel=1e-6, abs=0.0
    )


def test_forecasts_are_plain_floats():
    for value in (
        forecast_token_tv(0.1),
        forecast_sequence_tv(0.01, 10),
        forecast_reward(0.1, (0, 1)),
        forecast_gradient_bias(0.1, Estimator()),
    ):
        assert type(value) is float


def test_an_insufficient_lower_clause_shows():
    assert forecast_sequence_tv(0.02, 500) == 1.0  # bf16-sized drift certifies nothing for long answers
    assert forecast_reward(forecast_sequence_tv(1e-5, 500), (0.0, 1.0)) == pytest.approx(0.005)
