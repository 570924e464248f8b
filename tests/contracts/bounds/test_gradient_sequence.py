"""D11 and D12: policy-gradient bias over whole responses."""

import numpy as np
import pytest
from hypothesis import given, settings
from softmax_pairs import (
    SEEDS,
    assert_holds,
    assert_reached,
    four_tokens,
    random_scores,
    total_variation,
    trees,
)

from paritas.contracts.bounds import (
    outcome_bias_from_sup,
    sequence_bias_from_chi2,
    sequence_bias_from_oscillation,
    sequence_bias_from_prefix_tv,
    token_weighted_bias_from_sup,
    truncated_sequence_bias,
    uncorrected_bias_from_sup,
)

sequences = settings(max_examples=40, deadline=None)


def tv_sup(tree):
    steps = zip(tree.p, tree.q, strict=True)
    return np.stack([total_variation(p, q).max(1) for p, q in steps], 1).max(1).clip(0, 1)


def step_mean(prefix_law, step_law, signal):
    return np.einsum("rm,rmn,rmnd->rd", prefix_law, step_law, signal)


@sequences
@given(trees(), SEEDS)
def test_d11_holds(tree, seed):
    rng = np.random.default_rng(seed)
    weighted = uncorrected = 0.0
    for t, (p, q) in enumerate(zip(tree.p, tree.q, strict=True)):
        signal = rng.choice([-1.0, 1.0], p.shape)[..., None] * random_scores(rng, p, 2)
        target = step_mean(tree.before_p[t], p, signal)
        weighted = weighted + step_mean(tree.before_q[t], p, signal) - target
        uncorrected = uncorrected + step_mean(tree.before_q[t], q, signal) - target
    prefix = np.stack(
        [total_variation(a, b) for a, b in zip(tree.before_p, tree.before_q, strict=True)], 1
    ).clip(0, 1)
    weighted, uncorrected = (np.linalg.norm(bias, axis=1) for bias in (weighted, uncorrected))
    assert_holds(weighted, sequence_bias_from_prefix_tv(prefix[:, :-1]))
    assert_holds(uncorrected, sequence_bias_from_prefix_tv(prefix[:, 1:]))
    assert_holds(weighted, token_weighted_bias_from_sup(tv_sup(tree), tree.horizon))
    assert_holds(uncorrected, uncorrected_bias_from_sup(tv_sup(tree), tree.horizon))


def response_signal(tree, rng):
    """Sum of scores over each response, with E_p g = 0 at every prefix, and a sign advantage."""
    rows, n = tree.p[0].shape[0], tree.p[0].shape[-1]
    total = np.zeros((rows, n**tree.horizon, 2))
    steps = []
    for t, p in enumerate(tree.p):
        score = random_scores(rng, p, 2).reshape(rows, n ** (t + 1), 2)
        steps.append(np.repeat(score, n ** (tree.horizon - t - 1), axis=1))
        total = total + steps[-1]
    return steps, total, rng.choice([-1.0, 1.0], total.shape[:2])


@sequences
@given(trees(), SEEDS)
def test_d11_holds_for_outcome_advantages(tree, seed):
    rng = np.random.default_rng(seed)
    steps, total, advantage = response_signal(tree, rng)
    p, q, ratio = tree.before_p[-1], tree.before_q[-1], np.exp(tree.sequence_log_ratio)
    bias = 0.0
    for t, score in enumerate(steps):  # token-level weight w_t on step t
        token_ratio = np.repeat(
            (tree.p[t] / tree.q[t]).reshape(len(p), -1), p.shape[1] // tree.p[t][0].size, axis=1
        )
        bias = bias + ((q * token_ratio - p) * advantage)[..., None] * score
    norm = np.linalg.norm(bias.sum(1), axis=1)
    assert_holds(norm, outcome_bias_from_sup(tv_sup(tree), tree.horizon))
    capped = np.minimum(ratio, 1.5)
    truncated = np.linalg.norm((((q * capped - p) * advantage)[..., None] * total).sum(1), axis=1)
    assert_holds(truncated, truncated_sequence_bias((q * capped).sum(1), tree.horizon))


@pytest.mark.parametrize("horizon", [2, 6, 50])
def test_d11_is_reached(horizon):
    p, q, score, advantage = four_tokens(0.3)  # drift in token 1 only; later A g equals its sign
    first = abs(((q - p) * advantage * score).sum())
    later = (horizon - 1) * first
    tv = total_variation(p, q)
    prefix = np.array([0.0] + [tv] * horizon)
    assert_reached(later, sequence_bias_from_prefix_tv(prefix[:-1]), share=1 - 1e-9)
    assert_reached(first + later, sequence_bias_from_prefix_tv(prefix[1:]), share=1 - 1e-9)
    assert later / (first + later) == pytest.approx(
        (horizon - 1) / horizon
    )  # all that token weights remove is 1/H


@pytest.mark.parametrize("horizon", [2, 20])
def test_d11_is_reached_in_terms_of_the_supremum(horizon):
    alpha = 1e-4  # disjoint remainders: the prefix laws differ once a remainder was drawn
    touched = 1 - (1 - alpha) ** np.arange(horizon + 1)
    assert_reached(2 * touched[:-1].sum(), token_weighted_bias_from_sup(alpha, horizon))
    assert_reached(2 * touched[1:].sum(), uncorrected_bias_from_sup(alpha, horizon))


@sequences
@given(trees(), SEEDS)
def test_d12_holds(tree, seed):
    _, total, advantage = response_signal(tree, np.random.default_rng(seed))
    p, q = tree.before_p[-1], tree.before_q[-1]
    bias = np.linalg.norm((((q - p) * advantage)[..., None] * total).sum(1), axis=1)
    bound = sequence_bias_from_chi2(((q - p) ** 2 / p).sum(1), tree.horizon)
    assert_holds(bias, bound)
    a_priori = sequence_bias_from_oscillation(tree.sup_oscillation.max(1), tree.horizon)
    assert_holds(np.minimum(bound, 2 * tree.horizon), a_priori)
    assert_holds(bias, a_priori)


@pytest.mark.parametrize("horizon", [1, 4, 10])
def test_d12_is_reached(horizon):
    tilt = 1e-3  # p: fair coins, q: 1/2 + tilt; score +1 and -1, advantage 1
    coins = np.array(np.meshgrid(*[[1.0, -1.0]] * horizon)).reshape(horizon, -1)
    q, p = np.prod(0.5 + tilt * coins, axis=0), np.full(2**horizon, 0.5**horizon)
    bias = ((q - p) * coins.sum(0)).sum()
    assert_reached(bias, sequence_bias_from_chi2(((q - p) ** 2 / p).sum(), horizon))
    drift = np.log((0.5 + tilt) / (0.5 - tilt))
    assert_reached(bias, sequence_bias_from_oscillation(drift, horizon))


def test_d11_and_d12_edges():
    assert token_weighted_bias_from_sup(1.0, 5) == 8.0  # the first step has no prefix
    assert uncorrected_bias_from_sup(1.0, 5) == 10.0
    assert outcome_bias_from_sup(1.0, 5) == 10.0
    assert token_weighted_bias_from_sup(0.3, 1) == outcome_bias_from_sup(0.3, 1) == 0.0
    assert uncorrected_bias_from_sup(0.3, 1) == pytest.approx(0.6)
    assert sequence_bias_from_oscillation(np.inf, 7) == 14.0
    assert truncated_sequence_bias([1.01, 0.9], 10).tolist() == [0.0, pytest.approx(1.0)]
    with pytest.raises(
        ValueError, match=r"^horizon must be between 1 and|^horizon must be 1 or more, got 0$"
    ):
        uncorrected_bias_from_sup(0.1, 0)
