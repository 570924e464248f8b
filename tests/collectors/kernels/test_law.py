"""The law tokens are drawn from: against loops written on their own, and against its own frequencies."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.collectors.kernels.law import draw, is_neutral, law_of, most_likely, neutral
from paritas.records import Sampling


def direct(logits, law):
    """Probabilities by a loop over sorted tokens, float64."""
    weights = {i: math.exp((x - max(logits)) / (law.temperature or 1.0)) for i, x in enumerate(logits)}
    weights = {i: w / sum(weights.values()) for i, w in weights.items()}
    if law.min_p:
        weights = {i: w for i, w in weights.items() if w >= law.min_p * max(weights.values())}
    ordered = sorted(weights, key=lambda i: -weights[i])
    if law.top_k:
        ordered = ordered[: law.top_k]
    total, kept, reached = sum(weights[i] for i in ordered), [], 0.0
    for i in ordered:
        if law.top_p is None or reached < law.top_p:
            kept.append(i)
        reached += weights[i] / total
    mass = sum(weights[i] for i in kept)
    return [weights[i] / mass if i in kept else 0.0 for i in range(len(logits))]


LAWS = st.builds(
    Sampling,
    temperature=st.sampled_from([None, 1.0, 0.6, 1.7]),
    top_p=st.sampled_from([None, 1.0, 0.93, 0.5, 0.01]),
    top_k=st.sampled_from([None, 0, 1, 3, 100]),
    min_p=st.sampled_from([None, 0.0, 0.11, 1.0]),
)


@settings(deadline=None, max_examples=150)
@given(LAWS, st.integers(0, 10_000))
def test_equals_a_loop(law, seed):
    logits = np.random.default_rng(seed).normal(0, 2, (3, 9)).astype(np.float32)
    found = np.exp(law_of(logits, law), dtype=np.float64)
    expected = [direct(row, law) for row in logits.astype(np.float64).tolist()]
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_huge_logits_neither_overflow_nor_vanish():
    rows = law_of(np.array([[1e30, 0.0, -1e30], [-5.0, -5.0, -np.inf]], np.float32), neutral())
    assert rows.tolist()[0][0] == 0.0
    np.testing.assert_allclose(np.exp(rows[1]), [0.5, 0.5, 0.0], atol=1e-7)


def test_ties_at_a_border_stay_in():
    assert np.exp(law_of(np.zeros((1, 4), np.float32), Sampling(top_k=2))).round(6).tolist() == [[0.25] * 4]


def test_frequencies_are_the_law():
    rows = np.log(np.array([[0.1, 0.6, 0.0, 0.3]]) + 1e-300).astype(np.float32)
    rows[0, 2] = -np.inf
    chances = np.random.default_rng(1).random(4000)
    drawn = draw(np.repeat(rows, 4000, axis=0), chances)
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 4000, [0.1, 0.6, 0.0, 0.3], atol=0.03)


@pytest.mark.parametrize(("chance", "token"), [(0.0, 1), (0.999999999, 2)])
def test_the_ends_of_the_unit_interval_are_inside_the_support(chance, token):
    rows = np.array([[-np.inf, math.log(0.5), math.log(0.5), -np.inf]], np.float32)
    assert draw(rows, np.array([chance])).tolist() == [token]


def test_most_likely_are_sorted_with_ties_by_id_and_without_what_is_outside():
    rows = np.array([[-1.0, -0.5, -1.0, -np.inf, -3.0]], np.float32)
    assert most_likely(rows, 3) == [[(1, -0.5), (0, -1.0), (2, -1.0)]]
    assert most_likely(rows, 9) == [[(1, -0.5), (0, -1.0), (2, -1.0), (4, -3.0)]]
    assert most_likely(rows, 0) == [[]]


def test_what_is_neutral():
    assert is_neutral(Sampling())
    assert is_neutral(neutral())
    for changed in ({"temperature": 0.9}, {"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.1}):
        assert not is_neutral(Sampling(**changed))
