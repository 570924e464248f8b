"""What a limit on a number of others means here: our statistic never exceeds it while theirs keeps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from softmax_pairs import (
    assert_holds,
    assert_reached,
    coin,
    mismatched_pairs,
    softmax_pairs,
    total_variation,
)

from paritas.contracts.bounds import (
    tail_from_k3,
    tail_from_log_difference,
    tail_from_multiplicative_error,
    tv_from_log_difference,
    tv_from_multiplicative_error,
)

pairs = settings(max_examples=60, deadline=None)
ABOVE = st.sampled_from((1.05, 1.5, 2.0, 4.0))


def mean(values, rows):
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(rows.q > 0, rows.q * values, 0.0).sum(1)


def multiplicative_error(rows):
    """E exp|ell|, at least 1; a huge number where it is infinite, which allows everything."""
    with np.errstate(over="ignore"):
        return np.clip(mean(np.exp(np.abs(rows.log_ratio)), rows), 1.0, 1e300)


def log_difference(rows):
    return mean(np.abs(rows.log_ratio), rows)


def k3(rows):
    with np.errstate(over="ignore"):
        return np.clip(mean(np.expm1(rows.log_ratio) - rows.log_ratio, rows), 0.0, 1e300)


def tail(rows, above):
    return mean(np.abs(rows.log_ratio) > np.log(above), rows)


@pairs
@given(softmax_pairs())
def test_total_variation_stays_below_what_their_means_allow(rows):
    tv = total_variation(rows.p, rows.q)
    assert_holds(tv, tv_from_multiplicative_error(multiplicative_error(rows)))
    assert_holds(tv, tv_from_log_difference(log_difference(rows)))


@pairs
@given(mismatched_pairs())
def test_missing_mass_adds_half_of_itself(rows):
    allowed = tv_from_multiplicative_error(multiplicative_error(rows)) + rows.missing / 2
    assert_holds(total_variation(rows.p, rows.q), allowed)


@pairs
@given(softmax_pairs(), ABOVE)
def test_the_tail_stays_below_markov(rows, above):
    share = tail(rows, above)
    assert_holds(share, tail_from_multiplicative_error(multiplicative_error(rows), above))
    assert_holds(share, tail_from_k3(k3(rows), above))
    assert_holds(share, tail_from_log_difference(log_difference(rows), above))


def test_the_multiplicative_error_is_reached_as_the_drift_goes_to_zero():
    rows = coin(0.3, 1e-3)
    assert_reached(total_variation(rows.p, rows.q), tv_from_multiplicative_error(multiplicative_error(rows)))


def test_the_log_difference_is_reached_by_a_likely_token_that_loses_to_a_rare_one():
    rows = coin(-11.0, 8.0)
    assert_reached(total_variation(rows.p, rows.q), tv_from_log_difference(log_difference(rows)), share=0.95)


def test_markov_is_reached_by_a_token_at_the_end():
    assert float(tail_from_multiplicative_error(1.0 + 0.2 * (2.0 - 1.0), 2.0)) == pytest.approx(0.2)
    assert float(tail_from_k3(0.2 * (0.5 - 1 + np.log(2)), 2.0)) == pytest.approx(0.2)
    assert float(tail_from_log_difference(0.2 * np.log(2), 2.0)) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tv_from_multiplicative_error(0.9), "error must be"),
        (lambda: tail_from_k3(0.1, 1.0), "above must be"),
        (lambda: tv_from_log_difference(float("nan")), "difference must be"),
    ],
)
def test_impossible_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
