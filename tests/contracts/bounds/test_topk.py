"""A18: total variation from the top-K lists of both kernels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from softmax_pairs import assert_holds, assert_reached, mismatched_pairs, softmax_pairs, total_variation

from paritas.contracts.bounds import tv_interval_from_top_k


def listed(law, k):
    with np.errstate(divide="ignore"):
        return np.log(law[:, :k])


@settings(max_examples=60, deadline=None)
@given(softmax_pairs(), st.integers(1, 64))
def test_a18_holds(rows, k):
    lower, upper = tv_interval_from_top_k(listed(rows.p, k), listed(rows.q, k))
    assert_holds(total_variation(rows.p, rows.q), upper)
    assert_holds(lower, total_variation(rows.p, rows.q))


@settings(max_examples=60, deadline=None)
@given(mismatched_pairs(), st.integers(1, 64))
def test_a18_holds_for_differing_supports(rows, k):
    lower, upper = tv_interval_from_top_k(listed(rows.p, k), listed(rows.q, k))
    assert_holds(total_variation(rows.p, rows.q), upper)
    assert_holds(lower, total_variation(rows.p, rows.q))


def test_a18_is_reached():
    p = np.array([[0.6, 0.3, 0.1, 0.0]])
    disjoint, aligned = np.array([[0.55, 0.3, 0.0, 0.15]]), np.array([[0.5, 0.3, 0.2, 0.0]])
    upper = tv_interval_from_top_k(listed(p, 2), listed(disjoint, 2)).upper
    assert_reached(total_variation(p, disjoint), upper, share=1 - 1e-12)
    lower = tv_interval_from_top_k(listed(p, 2), listed(aligned, 2)).lower
    assert_reached(lower, total_variation(p, aligned), share=1 - 1e-12)


def test_a18_closes_on_whole_vocabularies_and_pads_with_minus_infinity():
    p, q = np.log([0.6, 0.4]), np.log([0.5, 0.5])
    lower, upper = tv_interval_from_top_k([*p, -np.inf], [*q, -np.inf])
    assert lower == pytest.approx(0.1)
    assert upper == pytest.approx(0.1)


def test_a18_refuses_a_nan_entry():
    with pytest.raises(ValueError, match=r"^log_p must be 1e-06 or less, got nan$"):
        tv_interval_from_top_k([np.nan], [0.0])
