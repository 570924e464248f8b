"""The float-safe pieces against 460-digit arithmetic, and every bound at extreme arguments."""

import inspect
import json
import math
import pickle
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.contracts import bounds
from paritas.contracts.bounds.numerics import (
    binary_kl,
    checked,
    expm1_minus,
    log_cosh,
    log_expm1,
    log_softmax,
    logit,
    neg_log1m_square,
    sigmoid,
    union_of_independent,
)

numbers = settings(max_examples=100, deadline=None)
DIGITS = 460  # the small ones cancel hundreds of digits; a double has 16
CLOSE = 1e-12


def exact(function, *arguments):
    with localcontext() as context:
        context.prec = DIGITS
        return float(function(*(Decimal(float(a)) for a in arguments)))


MAGNITUDES = st.floats(-30.0, 2.0).map(lambda e: 10.0**e)
SHARES = st.one_of(st.floats(1e-12, 1.0 - 1e-12), st.floats(-30.0, -1.0).map(lambda e: 10.0**e))


def decimal_log_cosh(x):
    return ((x.exp() + (-x).exp()) / 2).ln()


@settings(max_examples=40, deadline=None)
@given(MAGNITUDES)
def test_log_cosh_is_exact(x):
    assert log_cosh(x) == pytest.approx(exact(decimal_log_cosh, x), rel=CLOSE, abs=0.0)
    assert log_cosh(-x) == log_cosh(x)


@settings(max_examples=40, deadline=None)
@given(MAGNITUDES)
def test_log_expm1_is_exact(x):
    expected = exact(lambda v: (v.exp() - 1).ln(), x)
    assert log_expm1(x) == pytest.approx(expected, rel=CLOSE, abs=1e-15)


@settings(max_examples=40, deadline=None)
@given(MAGNITUDES, st.sampled_from((-1.0, 1.0)))
def test_expm1_minus_is_exact(size, sign):
    expected = exact(lambda v: v.exp() - 1 - v, sign * size)
    assert expm1_minus(sign * size) == pytest.approx(expected, rel=1e-11, abs=0.0)


@settings(max_examples=40, deadline=None)
@given(MAGNITUDES)
def test_sigmoid_and_logit_are_exact(x):
    assert sigmoid(-x) == pytest.approx(exact(lambda v: 1 / (1 + v.exp()), x), rel=CLOSE, abs=0.0)
    assert sigmoid(x) + sigmoid(-x) == pytest.approx(1.0, rel=1e-15, abs=0.0)
    assert logit(sigmoid(-x)) == pytest.approx(-x, rel=1e-9, abs=1e-15)


@settings(max_examples=40, deadline=None)
@given(SHARES)
def test_neg_log1m_square_is_exact(t):
    assert neg_log1m_square(t) == pytest.approx(exact(lambda v: -(1 - v * v).ln(), t), rel=CLOSE, abs=0.0)


@settings(max_examples=40, deadline=None)
@given(SHARES, st.integers(1, 1000))
def test_union_of_independent_is_exact(a, k):
    assert union_of_independent(a, k) == pytest.approx(
        exact(lambda v: 1 - (1 - v) ** k, a), rel=1e-11, abs=0.0
    )


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-6, 1 - 1e-6), st.floats(-12.0, -0.5).map(lambda e: 10.0**e))
def test_binary_kl_is_exact_for_close_coins(x, step):
    y = x + step * min(x, 1 - x)
    expected = exact(lambda a, b: a * (a / b).ln() + (1 - a) * ((1 - a) / (1 - b)).ln(), x, y)
    assert binary_kl(x, y) == pytest.approx(expected, rel=1e-6, abs=0.0)


def test_ends():
    assert (sigmoid(-np.inf), sigmoid(np.inf), sigmoid(0.0)) == (0.0, 1.0, 0.5)
    assert (logit(0.0), logit(1.0)) == (-np.inf, np.inf)
    assert (log_cosh(0.0), log_cosh(np.inf), log_expm1(0.0), log_expm1(np.inf)) == (
        0.0,
        np.inf,
        -np.inf,
        np.inf,
    )
    assert (expm1_minus(-np.inf), expm1_minus(np.inf), expm1_minus(0.0)) == (np.inf, np.inf, 0.0)
    assert (binary_kl(0.5, 0.0), binary_kl(0.5, 1.0), binary_kl(0.0, 0.0)) == (np.inf, np.inf, 0.0)
    assert binary_kl(0.0, 0.25) == pytest.approx(-np.log(0.75))
    assert binary_kl(5e-324, 0.5) == pytest.approx(np.log(2))
    assert union_of_independent(0.0, np.inf) == 0.0
    assert union_of_independent(1.0, 1.0) == 1.0
    np.testing.assert_allclose(np.exp(log_softmax([1e308, 0.0])), [1.0, 0.0])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"low": 0.0, "high": 1.0}, "x must be between 0 and 1, got nan"),
        ({}, "x must be 0 or more, got nan"),
        ({"low": 5e-324}, "x must be above 0, got nan"),
        ({"low": 5e-324, "high": 1.0}, "x must be above 0 and at most 1, got nan"),
        ({"low": -np.inf}, "x must be a number, got nan"),
        ({"low": -np.inf, "high": 2.0}, "x must be 2 or less, got nan"),
        ({"low": -np.finfo(float).max, "high": np.finfo(float).max}, "x must be finite, got nan"),
        ({"low": -np.inf, "high": np.finfo(float).max}, "x must be below infinity, got nan"),
    ],
)
def test_checked_says_what_was_wanted(arguments, text):
    with pytest.raises(ValueError, match="x must") as caught:
        checked([0.5, math.nan], "x", **arguments)
    assert str(caught.value) == text


EXTREMES = np.array(
    [0.0, 5e-324, 1e-300, 1e-16, 1e-8, 1e-3, 0.049, 0.051, 1.0, 30.0, 700.0, 1e4, 1e154, 1e308, np.inf]
)
OF_OSCILLATION = {  # function of D -> largest value it may take
    "tv_from_oscillation": (bounds.tv_from_oscillation, 1.0),
    "tv_with_rest": (lambda d: bounds.tv_from_oscillation_and_rest(d, 0.01), 1.0),
    "kl": (bounds.kl_from_oscillation, np.inf),
    "jeffreys": (bounds.jeffreys_from_oscillation, np.inf),
    "chi2": (bounds.chi2_from_oscillation, np.inf),
    "hellinger2": (bounds.hellinger2_from_oscillation, 1.0),
    "one_minus_ess": (lambda d: 1 - bounds.ess_share_from_oscillation(d), 1.0),
    "one_minus_affinity": (lambda d: 1 - bounds.bhattacharyya_from_oscillation(d), 1.0),
    "sequence_tv": (lambda d: bounds.sequence_tv_from_oscillation(d, 1000), 1.0),
    "sequence_tv_steps": (lambda d: bounds.sequence_tv_from_oscillation_steps(d[:, None]), 1.0),
    "sequence_chi2": (lambda d: bounds.sequence_chi2_from_oscillation(d, 1000), np.inf),
    "sequence_affinity": (lambda d: 1 - bounds.sequence_bhattacharyya_from_oscillation(d, 1000), 1.0),
    "sequence_bias": (lambda d: bounds.sequence_bias_from_oscillation(d, 1000), 2000.0),
    "upper_tail": (lambda d: bounds.upper_tail_from_oscillation(d, 2.0), 1.0),
    "upper_tail_at_one": (lambda d: bounds.upper_tail_from_oscillation(d, 1.0), 1.0),
    "lower_tail": (lambda d: bounds.lower_tail_from_oscillation(d, 0.5), 0.5),
    "clipped": (lambda d: bounds.clipped_amount_from_oscillation(d, 0.2), 1.8),
    "masked": (lambda d: bounds.masked_mass_from_oscillation(d, 0.5, 2.0), 1.0),
    "nll": (bounds.nll_drift_from_oscillation, np.inf),
    "confidence": (lambda d: bounds.confidence_drift_from_oscillation(0.9, d), 0.9),
    "largest_ratio": (lambda d: bounds.ratio_interval(d).upper, np.inf),
    "event": (lambda d: bounds.event_interval(0.3, d).upper, 1.0),
    "variance_bound": (lambda d: bounds.kl_from_variance(0.5, d), np.inf),
    "l2": (bounds.oscillation_from_l2_drift, np.inf),
    "radius": (lambda d: bounds.log_ratio_radius(d, 100, alpha=0.05), np.inf),
}


@pytest.mark.parametrize("name", sorted(OF_OSCILLATION))
def test_every_bound_is_a_rising_number_from_zero_to_infinity(name):
    """No warning (they are errors here), no NaN, monotone in D, inside its range at both ends."""
    function, largest = OF_OSCILLATION[name]
    values = np.asarray(function(EXTREMES))
    assert values.shape == EXTREMES.shape
    assert not np.isnan(values).any()
    assert (values[1:] >= values[:-1] * (1 - 1e-9)).all()
    assert (values <= largest * (1 + 1e-12)).all()
    assert values[-1] == pytest.approx(largest)


@pytest.mark.parametrize("name", sorted(OF_OSCILLATION))
def test_scalars_and_arrays_agree(name):
    function, _ = OF_OSCILLATION[name]
    if name == "sequence_tv_steps":
        return
    whole = np.asarray(function(EXTREMES))
    for place in (0, 3, 8, 14):
        one = function(float(EXTREMES[place]))
        assert isinstance(one, np.float64)
        assert one == whole[place]
    grid = np.asarray(function(np.tile(EXTREMES, (2, 1))))
    assert grid.shape == (2, len(EXTREMES))


@numbers
@given(st.floats(0.0, 1e-5))
def test_small_drift_keeps_its_leading_term(drift):
    quarter = drift / 4
    assert bounds.tv_from_oscillation(drift) == pytest.approx(quarter, rel=1e-9, abs=1e-320)
    assert bounds.sequence_tv_from_oscillation(drift, 1) == pytest.approx(quarter, rel=1e-9, abs=1e-150)
    assert bounds.upper_tail_from_oscillation(drift, 1.0) == pytest.approx(quarter, rel=1e-9, abs=1e-320)
    assert bounds.kl_from_oscillation(drift) == pytest.approx(drift**2 / 8, rel=1e-9, abs=1e-300)
    assert bounds.hellinger2_from_oscillation(drift) == pytest.approx(drift**2 / 32, rel=1e-9, abs=1e-300)


def test_public_names_are_documented_and_picklable():
    functions = [getattr(bounds, name) for name in bounds.__all__]
    assert all(inspect.getdoc(f) for f in functions if callable(f) and f is not bounds.Array)
    named = [f for f in functions if inspect.isfunction(f)]
    assert pickle.loads(pickle.dumps(named)) == named
    assert json.dumps(bounds.MeanLimits().as_dict())
