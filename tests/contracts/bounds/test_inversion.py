"""F1 to F5: one step down the chain at a time."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.contracts.bounds import (
    kl_of_tv,
    oscillation_of_sequence_tv,
    oscillation_of_tv,
    sequence_tv_from_kl,
    sequence_tv_from_oscillation,
    sequence_tv_from_sup,
    sequence_tv_of_reward_drift,
    token_tv_of_sequence_tv,
    tv_from_oscillation,
)
from paritas.errors import ContractError

numbers = settings(max_examples=200, deadline=None)
THETAS = st.one_of(st.floats(1e-12, 0.999), st.floats(-12.0, -1e-6).map(lambda e: 10.0**e))
HORIZONS = st.integers(1, 1_000_000)
PUBLISHED = (  # theta, H, token TV, D by F3, D by F4, KL a token
    (0.01, 128, 7.85e-5, 3.14e-4, 3.54e-3, 1.56e-6),
    (0.01, 1024, 9.82e-6, 3.93e-5, 1.25e-3, 1.95e-7),
    (0.01, 8192, 1.23e-6, 4.91e-6, 4.42e-4, 2.44e-8),
    (0.10, 128, 8.23e-4, 3.29e-3, 3.54e-2, 1.56e-4),
    (0.10, 1024, 1.03e-4, 4.12e-4, 1.25e-2, 1.95e-5),
    (0.10, 8192, 1.29e-5, 5.15e-5, 4.43e-3, 2.44e-6),
)


@numbers
@given(st.floats(0.0, 10.0), st.floats(0.1, 100.0))
def test_f1_is_an_identity(drift, width):
    assert sequence_tv_of_reward_drift(drift, (-1.0, width - 1.0)) == pytest.approx(drift / width)


def test_f1_edges():
    assert sequence_tv_of_reward_drift(0.1, (2.0, 2.0)) == math.inf
    assert sequence_tv_of_reward_drift(3.0, (0.0, 1.0)) == 3.0  # vacuous, and said so by its size


@numbers
@given(THETAS, HORIZONS)
def test_f2_is_an_identity(theta, horizon):
    alpha = token_tv_of_sequence_tv(theta, horizon)
    assert sequence_tv_from_sup(alpha, horizon) == pytest.approx(theta, rel=1e-9, abs=0.0)


@numbers
@given(THETAS)
def test_f3_is_an_identity(theta):
    assert tv_from_oscillation(oscillation_of_tv(theta)) == pytest.approx(theta, rel=1e-9, abs=0.0)


@numbers
@given(THETAS, HORIZONS)
def test_f4_is_an_identity(theta, horizon):
    drift = oscillation_of_sequence_tv(theta, horizon)
    assert sequence_tv_from_oscillation(drift, horizon) == pytest.approx(theta, rel=1e-9, abs=0.0)


@numbers
@given(THETAS, HORIZONS)
def test_f4_is_never_below_f3(theta, horizon):
    direct = oscillation_of_sequence_tv(theta, horizon)
    assert direct >= oscillation_of_tv(token_tv_of_sequence_tv(theta, horizon)) * (1 - 1e-9)


@numbers
@given(THETAS)
def test_f4_equals_f3_at_one_token(theta):
    assert oscillation_of_sequence_tv(theta, 1) == pytest.approx(oscillation_of_tv(theta), rel=1e-9, abs=0.0)


@numbers
@given(THETAS)
def test_f5_is_an_identity(theta):
    assert sequence_tv_from_kl(kl_of_tv(theta)) == pytest.approx(theta, rel=1e-9, abs=0.0)


@numbers
@given(THETAS, st.floats(1e-6, 0.999), HORIZONS, st.floats(1.0, 1000.0))
def test_f7_holds(theta, shrink, horizon, stretch):
    smaller, longer = theta * shrink, horizon * stretch
    for budget in (token_tv_of_sequence_tv, oscillation_of_sequence_tv):
        assert budget(smaller, horizon) <= budget(theta, horizon) * (1 + 1e-12)
        assert budget(theta, longer) <= budget(theta, horizon) * (1 + 1e-12)
    for budget in (kl_of_tv, oscillation_of_tv):
        assert budget(smaller) <= budget(theta)


def test_f7_is_reached():
    assert oscillation_of_sequence_tv(1e-6, 100) == pytest.approx(
        2 * oscillation_of_sequence_tv(1e-6, 400), rel=1e-6, abs=0.0
    )
    assert token_tv_of_sequence_tv(1e-6, 100) == pytest.approx(
        2 * token_tv_of_sequence_tv(1e-6, 200), rel=1e-5, abs=0.0
    )


@pytest.mark.parametrize(("theta", "horizon", "token_tv", "by_f3", "by_f4", "kl"), PUBLISHED)
def test_the_published_table(theta, horizon, token_tv, by_f3, by_f4, kl):
    alpha = token_tv_of_sequence_tv(theta, horizon)
    drift = oscillation_of_sequence_tv(theta, horizon)
    computed = (alpha, oscillation_of_tv(alpha), drift, kl_of_tv(theta) / horizon)
    np.testing.assert_allclose(computed, (token_tv, by_f3, by_f4, kl), rtol=5e-3)


def test_edges():
    assert token_tv_of_sequence_tv(0.0, 100) == oscillation_of_sequence_tv(0.0, 100) == kl_of_tv(0.0) == 0.0
    assert token_tv_of_sequence_tv(1.0, 100) == 1.0
    assert oscillation_of_sequence_tv(1.0, 100) == oscillation_of_tv(1.0) == kl_of_tv(1.0) == math.inf
    assert oscillation_of_sequence_tv(1e-140, 1e6) == pytest.approx(4e-143, rel=1e-6, abs=0.0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: oscillation_of_tv(5.0), "token_tv must be between 0 and 1, got 5"),
        (lambda: oscillation_of_tv(math.nan), "token_tv must be between 0 and 1, got nan"),
        (lambda: kl_of_tv(-0.1), "tv must be between 0 and 1, got -0.1"),
        (lambda: token_tv_of_sequence_tv(0.1, math.inf), "no budget can be derived without a horizon"),
        (lambda: token_tv_of_sequence_tv(0.1, 0.5), "max_tokens must be 1 or more, got 0.5"),
        (lambda: token_tv_of_sequence_tv(0.1, math.nan), "max_tokens must be 1 or more, got nan"),
        (
            lambda: sequence_tv_of_reward_drift(-1.0, (0.0, 1.0)),
            "reward_drift must be a finite number, 0 or more, got -1",
        ),
        (
            lambda: sequence_tv_of_reward_drift(0.1, (1.0, 0.0)),
            "reward_range must be [lowest, highest], got [1, 0]",
        ),
        (
            lambda: sequence_tv_of_reward_drift(0.1, (0.0, math.nan)),
            "reward_range must be [lowest, highest], got [0, nan]",
        ),
    ],
)
def test_what_a_contract_can_get_wrong(call, text):
    with pytest.raises(ContractError) as caught:
        call()
    assert str(caught.value) == text


def test_hints_say_what_to_write():
    with pytest.raises(ContractError) as percent:
        oscillation_of_tv(5.0)
    assert percent.value.hint == "write 5 % as 0.05"
    with pytest.raises(ContractError) as unset:
        token_tv_of_sequence_tv(0.1, math.inf)
    assert unset.value.hint == "set max_tokens"
