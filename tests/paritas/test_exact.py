"""Whole distributions compared: against the definition, and what its estimates estimate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.exact import ExactDrift, exact_drift, join_drifts


def laws(rng, n=4, vocabulary=7):
    logits = rng.normal(0, 2, (n, vocabulary))
    return (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000))
def test_equals_the_definitions(seed):
    rng = np.random.default_rng(seed)
    q, p = laws(rng), laws(rng)
    found = exact_drift(q, p)
    for i in range(len(q)):
        probabilities = np.exp(q[i].astype(float)), np.exp(p[i].astype(float))
        assert found.tv[i] == pytest.approx(
            np.maximum(probabilities[0] - probabilities[1], 0).sum(), abs=1e-6
        )
        drift = [float(b) - float(a) for a, b in zip(q[i], p[i], strict=True)]
        assert found.oscillation[i] == pytest.approx(max(drift) - min(drift), abs=1e-5)
        best = int(np.argmax(p[i]))
        assert found.flip[i] == float(best != int(np.argmax(q[i])))
        assert found.gap[i] == pytest.approx(probabilities[0][best] - probabilities[1][best], abs=1e-6)


def test_equal_laws_are_at_zero():
    q = laws(np.random.default_rng(1))
    found = exact_drift(q, q)
    assert [getattr(found, name).tolist() for name in ExactDrift.__slots__] == [[0.0] * 4] * 4


def test_another_support_shows_and_stays_finite():
    q = np.array([[0.0, -np.inf]], np.float32)
    p = np.log(np.array([[0.75, 0.25]], np.float32))
    found = exact_drift(q, p)
    assert found.tv.tolist() == [0.25]
    assert found.oscillation[0] == pytest.approx(9999 + np.log(0.25) - np.log(0.75), rel=1e-6)
    assert exact_drift(q, q).oscillation.tolist() == [0.0]


def test_the_mean_of_the_estimate_is_the_exact_value():
    rng = np.random.default_rng(2)
    q, p = laws(rng, 1, 30), laws(rng, 1, 30)
    drawn = rng.choice(30, size=40_000, p=np.exp(q[0].astype(float)) / np.exp(q[0].astype(float)).sum())
    estimate = np.maximum(-np.expm1(p[0, drawn] - q[0, drawn]), 0).mean()
    assert estimate == pytest.approx(float(exact_drift(q, p).tv[0]), abs=0.01)


def test_chunks_join():
    q, p = (laws(np.random.default_rng(s), 5) for s in (1, 2))
    whole, parts = exact_drift(q, p), [exact_drift(q[:2], p[:2]), exact_drift(q[2:], p[2:])]
    joined = join_drifts(parts)
    for name in ExactDrift.__slots__:
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))
    assert len(joined) == 5
    assert len(join_drifts([])) == 0


def test_columns_must_be_aligned():
    one, two = np.zeros(1, np.float32), np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="aligned"):
        ExactDrift(one, one, one, two)
