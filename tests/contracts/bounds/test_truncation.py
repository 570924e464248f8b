"""A11 to A17: truncated sampling and greedy decoding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit
from softmax_pairs import (
    SEEDS,
    assert_holds,
    assert_reached,
    pairs_of,
    random_pairs,
    random_sets,
    restrict,
    softmax_pairs,
    symmetric_coin,
    total_variation,
)

from paritas.contracts.bounds import (
    argmax_is_stable,
    kept_oscillation,
    kl_from_kept_mass,
    min_p_is_stable,
    top_k_is_stable,
    top_p_is_stable,
    tv_from_margin,
    tv_from_oscillation,
    tv_interval_one_side_truncated,
    tv_interval_sets_differ,
)

pairs = settings(max_examples=50, deadline=None)
implications = settings(max_examples=15, deadline=None)
JUST_BELOW = 0.995


@pairs
@given(softmax_pairs(), SEEDS)
def test_a11_holds(rows, seed):
    kept = random_sets(np.random.default_rng(seed), rows.q)
    drift = kept_oscillation(rows.drift, kept) / rows.temperature
    assert (drift <= rows.oscillation).all()
    assert_holds(total_variation(restrict(rows.p, kept), restrict(rows.q, kept)), tv_from_oscillation(drift))


def test_a11_is_reached():
    rows, kept = pairs_of([-0.2, 0.2, 2.0], [0.4, -0.4, 9.0]), np.array([[True, True, False]])
    measured = total_variation(restrict(rows.p, kept), restrict(rows.q, kept))
    assert_reached(measured, tv_from_oscillation(kept_oscillation(rows.drift, kept)))


def test_a11_refuses_an_empty_set():
    with pytest.raises(ValueError, match=r"^kept must hold at least one token$"):
        kept_oscillation([0.0, 1.0], [False, False])


@pairs
@given(softmax_pairs(), SEEDS)
def test_a12_holds(rows, seed):
    kept = random_sets(np.random.default_rng(seed), rows.q)
    sampled, mass = restrict(rows.q, kept), np.minimum((rows.p * kept).sum(1), 1.0)
    lower, upper = tv_interval_one_side_truncated(
        mass, np.minimum(total_variation(restrict(rows.p, kept), sampled), 1)
    )
    assert_holds(total_variation(rows.p, sampled), upper)
    assert_holds(lower, total_variation(rows.p, sampled))


def test_a12_is_reached():
    law, kept = np.array([[0.5, 0.395, 0.105]]), np.array([[True, True, False]])
    sampled = restrict(law, kept)
    lower, upper = tv_interval_one_side_truncated(0.895)
    assert_reached(total_variation(law, sampled), upper, share=1 - 1e-12)
    assert_reached(lower, total_variation(law, sampled), share=1 - 1e-12)
    np.testing.assert_allclose(law[kept] / sampled[kept], 0.895)  # every sampled ratio is the kept mass
    divergence = (sampled[0, :2] * np.log(sampled[0, :2] / law[0, :2])).sum()
    assert divergence == pytest.approx(float(kl_from_kept_mass(0.895)), rel=1e-12, abs=0.0)


@pairs
@given(softmax_pairs(), SEEDS)
def test_a13_holds(rows, seed):
    rng = np.random.default_rng(seed)
    trained, sampled = random_sets(rng, rows.q), random_sets(rng, rows.q)
    shared_token = (np.arange(len(rows.q)), rng.integers(0, rows.q.shape[1], len(rows.q)))
    trained[shared_token] = sampled[shared_token] = True
    p, q, both = restrict(rows.p, trained), restrict(rows.q, sampled), trained & sampled
    shared = [np.minimum((law * both).sum(1), 1.0) for law in (p, q)]
    lower, upper = tv_interval_sets_differ(*shared, kept_oscillation(rows.drift, both) / rows.temperature)
    assert_holds(total_variation(p, q), upper)
    assert_holds(lower, total_variation(p, q))


def test_a13_is_reached():
    rows = symmetric_coin(0.6)
    p = np.array([*(0.9 * rows.p[0]), 0.1, 0.0])
    q = np.array([*(0.9 * rows.q[0]), 0.0, 0.1])
    assert_reached(total_variation(p, q), tv_interval_sets_differ(0.9, 0.9, 0.6).upper, share=1 - 1e-12)
    same = np.array([0.9, 0.1, 0.0]), np.array([0.9, 0.0, 0.1])
    assert_reached(tv_interval_sets_differ(0.9, 0.9, 0.0).lower, total_variation(*same), share=1 - 1e-12)


def top_set(logits, k):
    return np.argsort(np.argsort(-logits, 1), 1) < np.asarray(k).reshape(-1, 1)


def nucleus(logits, top_p):
    """Kept set of top-p by its definition: the fewest largest tokens whose mass reaches it."""
    law = np.exp(logits - logits.max(1, keepdims=True))
    law = np.sort(law / law.sum(1, keepdims=True), 1)[:, ::-1]
    size = np.minimum((np.cumsum(law, 1) < top_p).sum(1) + 1, logits.shape[1])
    return top_set(logits, size)


def min_p_set(logits, min_p):
    return logits >= logits.max(1, keepdims=True) + np.log(min_p)


def stable_rows(seed, n=9, rows=2000):
    """Logits and a drift of known oscillation, at temperature 1."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, n)) * np.exp(rng.uniform(-2, 2, (rows, 1)))
    drift = np.where(rng.random((rows, n)) < 0.5, 1.0, rng.uniform(-1, 1, (rows, n)))
    drift = drift * np.exp(rng.uniform(-5, 1, (rows, 1)))
    return logits, drift, np.ptp(drift, axis=1)


def assert_implied(premise, conclusion, at_least=0.05):
    assert premise.mean() > at_least  # the premise is not empty
    assert conclusion[premise].all()


@implications
@given(SEEDS, st.integers(1, 8))
def test_a14_holds(seed, k):
    logits, drift, omega = stable_rows(seed)
    same = (top_set(logits, k) == top_set(logits + drift, k)).all(1)
    assert_implied(top_k_is_stable(logits, k, logit_oscillation=omega), same)


def test_a14_is_reached():
    logits, drift = np.array([[2.0, 1.0, 0.0]]), np.array([[0.0, -0.5, 0.51]])  # gap 1, oscillation 1.01
    assert not top_k_is_stable(logits, 2, logit_oscillation=1.01)
    assert top_k_is_stable(logits, 2, logit_oscillation=JUST_BELOW)
    assert (top_set(logits, 2) != top_set(logits + drift, 2)).any()


def test_a14_keeping_everything_is_stable():
    assert top_k_is_stable([[1.0, 1.0]], 2, logit_oscillation=[9.0]).tolist() == [True]
    with pytest.raises(ValueError, match=r"^k must be 1 or more, got 0$"):
        top_k_is_stable([1.0, 0.0], 0, logit_oscillation=1.0)


@implications
@given(SEEDS, st.floats(0.3, 0.99))
def test_a15_holds(seed, top_p):
    logits, drift, omega = stable_rows(seed)
    same = (nucleus(logits, top_p) == nucleus(logits + drift, top_p)).all(1)
    assert_implied(top_p_is_stable(logits, top_p, logit_oscillation=omega), same, at_least=0.02)


def test_a15_is_reached():
    logits = np.log([[0.6, 0.3, 0.1]])
    nucleus_mass_sinks = (0.85, logit(0.9) - logit(0.85), [-0.5, -0.5, 0.5])  # (ii)
    top_token_suffices = (0.65, logit(0.65) - logit(0.6), [0.5, -0.5, -0.5])  # (iii)
    for top_p, edge, direction in (nucleus_mass_sinks, top_token_suffices):
        assert not top_p_is_stable(logits, top_p, logit_oscillation=edge * 1.005)
        assert top_p_is_stable(logits, top_p, logit_oscillation=edge * 0.995)
        moved = logits + 1.005 * edge * np.array([direction])
        assert (nucleus(logits, top_p) != nucleus(moved, top_p)).any()


def test_a15_is_reached_at_the_gap():
    logits = np.log([[0.5, 0.26, 0.24]])  # gap log(26/24) = 0.08
    drift = np.array([[0.0, -0.0405, 0.0405]])
    assert not top_p_is_stable(logits, 0.65, logit_oscillation=0.081)
    assert top_p_is_stable(logits, 0.65, logit_oscillation=0.0795)
    assert (nucleus(logits, 0.65) != nucleus(logits + drift, 0.65)).any()


def test_a15_scales_with_temperature_and_keeps_all_at_one():
    logits = np.log([[0.6, 0.3, 0.1]])
    hot = top_p_is_stable(logits * 3.0, 0.65, logit_oscillation=0.6, temperature=3.0)
    assert hot == top_p_is_stable(logits, 0.65, logit_oscillation=0.2)
    assert top_p_is_stable(logits, 1.0, logit_oscillation=50.0).all()
    with pytest.raises(ValueError, match=r"^top_p must be above 0 and at most 1, got 0$"):
        top_p_is_stable(logits, 0.0, logit_oscillation=1.0)


@implications
@given(SEEDS, st.floats(0.01, 0.5))
def test_a16_holds(seed, min_p):
    logits, drift, omega = stable_rows(seed)
    same = (min_p_set(logits, min_p) == min_p_set(logits + drift, min_p)).all(1)
    assert_implied(min_p_is_stable(logits, min_p, logit_oscillation=omega), same)


def test_a16_is_reached():
    logits = np.array([[0.0, -1.0, -9.0]])
    min_p = np.exp(-2.0)  # the second token is 1 above the edge
    drift = np.array([[0.51, -0.5, -0.5]])
    assert not min_p_is_stable(logits, min_p, logit_oscillation=1.01)
    assert min_p_is_stable(logits, min_p, logit_oscillation=JUST_BELOW)
    assert (min_p_set(logits, min_p) != min_p_set(logits + drift, min_p)).any()


@implications
@given(SEEDS)
def test_a17_holds(seed):
    logits, drift, omega = stable_rows(seed)
    ordered = np.sort(logits, 1)
    stable = argmax_is_stable(ordered[:, -1] - ordered[:, -2], omega)
    assert_implied(stable, logits.argmax(1) == (logits + drift).argmax(1))


def test_a17_is_reached():
    rows = pairs_of([1.0, 0.0], [-0.5 - 1e-9, 0.5 + 1e-9])
    assert rows.p.argmax() != rows.q.argmax()
    assert not argmax_is_stable(1.0, 1.0)
    assert argmax_is_stable(1.0, 1.0 - 1e-9)


@pairs
@given(SEEDS, st.sampled_from((2, 5, 17)), st.floats(0.05, 1.0))
def test_a17_holds_for_tv(seed, n, scale):
    rows = random_pairs(np.random.default_rng(seed), n, drift_scale=scale, logit_scale=4.0)
    ordered = np.sort(rows.logits, 1)
    margin, omega = ordered[:, -1] - ordered[:, -2], np.ptp(rows.drift, axis=1)
    bound = tv_from_margin(margin, omega, temperature=rows.temperature, vocabulary=n)
    assert_holds(total_variation(rows.p, rows.q), bound)


def test_a17_is_reached_for_tv():
    rows = pairs_of([20.0, 0.0, 0.0, 0.0], [0.0, 8.0, 8.0, 8.0])
    bound = tv_from_margin(20.0, 8.0, temperature=1.0, vocabulary=4)
    assert_reached(total_variation(rows.p, rows.q), bound)


def test_a17_at_temperature_zero_only_the_margin_counts():
    margin = np.array([2.0, 1.0, 0.5])
    assert tv_from_margin(margin, 1.0, temperature=0.0, vocabulary=9).tolist() == [0.0, 1.0, 1.0]
