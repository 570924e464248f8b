"""A1 (measuring D from log-probabilities) and A20 (temperature mismatch)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from softmax_pairs import Pairs, assert_holds, softmax_pairs

from paritas.contracts.bounds import oscillation_from_logprobs, oscillation_from_temperatures

pairs = settings(max_examples=60, deadline=None)


@pairs
@given(softmax_pairs())
def test_a1_is_an_identity_between_logits_and_logprobs(rows):
    with np.errstate(divide="ignore"):
        log_q = np.log(rows.q)
    measured = oscillation_from_logprobs(log_q + rows.log_ratio, log_q)
    np.testing.assert_allclose(measured, rows.oscillation, rtol=1e-9, atol=1e-9)


@pairs
@given(softmax_pairs(vocabularies=st.just(17)))
def test_a1_top_k_list_gives_a_lower_bound(rows):
    log_q = np.log(rows.q)[:, :6]
    assert_holds(oscillation_from_logprobs(log_q + rows.log_ratio[:, :6], log_q), rows.oscillation)


def test_oscillation_is_infinite_where_supports_differ():
    half = np.log([0.5, 0.5])
    assert oscillation_from_logprobs(half, [0.0, -np.inf]) == np.inf
    assert oscillation_from_logprobs([-np.inf, 0.0], half) == np.inf
    both_exclude = oscillation_from_logprobs([*half, -np.inf], [*half, -np.inf])
    assert both_exclude == 0.0


def test_oscillation_refuses_nan():
    with pytest.raises(ValueError, match=r"^log_q must be a number, got nan$"):
        oscillation_from_logprobs([0.0], [np.nan])


@pairs
@given(softmax_pairs(), st.floats(0.3, 3.0))
def test_a20_is_an_identity(rows, other):
    drift = rows.logits * (rows.temperature / other - 1.0)[:, None]  # z tau/tau' - z, seen at tau
    mismatch = Pairs(rows.logits, drift, np.asarray(rows.temperature))
    predicted = oscillation_from_temperatures(np.ptp(rows.logits, axis=1), rows.temperature, other)
    np.testing.assert_allclose(mismatch.oscillation, predicted, rtol=1e-9, atol=1e-12)
    at_other = Pairs(rows.logits, np.zeros_like(drift), np.full(len(drift), other))
    np.testing.assert_allclose(mismatch.p, at_other.q, rtol=1e-9, atol=1e-12)


def test_a20_dwarfs_rounding():
    assert oscillation_from_temperatures(20.0, 1.0, 0.6) > 13.0
