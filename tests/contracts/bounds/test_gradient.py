"""D1 to D3, D9, D14, D17: from the importance ratio to policy-gradient bias."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from softmax_pairs import (
    SEEDS,
    assert_holds,
    assert_reached,
    four_tokens,
    mismatched_pairs,
    random_scores,
    softmax_pairs,
    total_variation,
)

from paritas.contracts.bounds import (
    LOGIT_SCORE_NORM,
    bias_from_oscillation,
    bias_from_tv,
    bias_statistic,
    bias_statistic_range,
    gradient_bias,
    group_advantage_bound,
    logging_error_bias,
)
from paritas.contracts.model import Estimator

pairs = settings(max_examples=50, deadline=None)
ESTIMATORS = st.one_of(
    st.just(Estimator(kind="none")),
    st.builds(Estimator, kind=st.just("is"), cap=st.floats(1.0, 5.0)),
    st.builds(Estimator, kind=st.just("tis"), cap=st.floats(1.0, 5.0)),
    st.builds(Estimator, kind=st.just("clip"), clip=st.floats(0.0, 1.5)),
    st.builds(Estimator, kind=st.just("mis"), cap=st.floats(1.0, 5.0), low=st.floats(0.0, 1.0)),
    st.builds(Estimator, kind=st.just("ppo_min"), cap=st.floats(1.0, 5.0), clip=st.floats(0.0, 1.5)),
)
SHARP = (
    Estimator(kind="none"),
    Estimator(kind="tis", cap=1.2),
    Estimator(kind="clip", clip=0.1),
    Estimator(kind="mis", cap=1.3, low=0.5),
)


def weight(ratio, estimator, advantage):
    """Return the weight an estimator gives a token, from its definition (table of D3)."""
    c = estimator.clip
    match estimator.kind:
        case "none":
            return np.ones_like(ratio)
        case "is":
            return ratio
        case "tis":
            return np.minimum(ratio, estimator.cap)
        case "clip":
            return np.clip(ratio, 1 - c, 1 + c)
        case "mis":
            return ratio * ((ratio >= (estimator.low or 0.0)) & (ratio <= estimator.cap))
    return ratio * ~(((advantage > 0) & (ratio > 1 + c)) | ((advantage < 0) & (ratio < 1 - c)))


def bias_vector(rows, estimator, advantage, score):
    """E_q[phi(w) A g] - E_p[A g], (rows, dimension)."""
    signal = advantage[..., None] * score
    weighted = rows.q * weight(np.exp(rows.log_ratio), estimator, advantage)
    return ((weighted - rows.p)[..., None] * signal).sum(1)


def mean_statistic(rows, estimator, advantage=1.0):
    return (rows.q * bias_statistic(rows.log_ratio, estimator, advantage=advantage)).sum(1)


def random_advantages(rng, shape):
    advantage = rng.uniform(-1, 1, shape)
    return np.where(rng.random((shape[0], 1)) < 0.5, advantage, np.sign(advantage))


@pairs
@given(mismatched_pairs(), SEEDS, ESTIMATORS)
def test_d1_holds(rows, seed, estimator):
    rng = np.random.default_rng(seed)
    advantage, score = 2.5 * random_advantages(rng, rows.p.shape), 0.7 * random_scores(rng, rows.p)
    distance = np.abs(weight(np.exp(rows.log_ratio), estimator, advantage) - np.exp(rows.log_ratio))
    beta = (rows.q * distance).sum(1) + rows.missing
    norm = np.linalg.norm(bias_vector(rows, estimator, advantage, score), axis=1)
    assert_holds(norm, gradient_bias(beta, advantage=2.5, score_norm=0.7))


@pairs
@given(mismatched_pairs(), SEEDS, ESTIMATORS)
def test_d1_holds_for_the_baseline_leak(rows, seed, estimator):
    if estimator.kind == "ppo_min":
        estimator = Estimator(kind="mis", cap=estimator.cap)  # its weight depends on the advantage
    score = random_scores(np.random.default_rng(seed), rows.p)
    weighted = rows.q * weight(np.exp(rows.log_ratio), estimator, 1.0)
    leak = np.linalg.norm((weighted[..., None] * score).sum(1), axis=1)
    assert_holds(leak, np.maximum(mean_statistic(rows, estimator), 0))


def test_d1_is_reached():
    p, q, score, advantage = four_tokens(0.8)
    bias = ((q - p) * 3.0 * advantage * 2.0 * score).sum()
    beta = np.abs(p - q).sum()
    assert_reached(abs(bias), gradient_bias(beta, advantage=3.0, score_norm=2.0), share=1 - 1e-12)


@pairs
@given(mismatched_pairs(), SEEDS)
def test_d2_holds(rows, seed):
    rng = np.random.default_rng(seed)
    advantage, score = random_advantages(rng, rows.p.shape), random_scores(rng, rows.p)
    norm = np.linalg.norm(bias_vector(rows, Estimator(kind="none"), advantage, score), axis=1)
    assert_holds(norm, 2 * total_variation(rows.p, rows.q))


@pytest.mark.parametrize("drift", [1e-6, 0.8, 6.0])
def test_d2_is_reached(drift):
    p, q, score, advantage = four_tokens(drift)
    assert abs((p * score).sum()) + abs((p * advantage).sum()) < 1e-15
    bias = abs(((q - p) * advantage * score).sum())
    assert_reached(bias, 2 * total_variation(p, q), share=1 - 1e-9)
    assert_reached(bias, bias_from_oscillation(drift, Estimator(kind="none")), share=1 - 1e-6)


@pairs
@given(mismatched_pairs(), SEEDS, ESTIMATORS)
def test_d3_holds(rows, seed, estimator):
    rng = np.random.default_rng(seed)
    advantage, score = random_advantages(rng, rows.p.shape), random_scores(rng, rows.p)
    norm = np.linalg.norm(bias_vector(rows, estimator, advantage, score), axis=1)
    assert_holds(norm, np.maximum(mean_statistic(rows, estimator, advantage), 0))


@pytest.mark.parametrize("estimator", SHARP, ids=lambda e: e.kind)
def test_d3_is_reached(estimator):
    p, q, score, advantage = four_tokens(0.8)
    ratio = p / q
    bias = abs(((q * weight(ratio, estimator, advantage) - p) * advantage * score).sum())
    assert_reached(bias, (q * bias_statistic(np.log(ratio), estimator)).sum(), share=1 - 1e-9)


@pairs
@given(mismatched_pairs(), ESTIMATORS)
def test_d3_is_an_identity_where_the_table_says_exactly(rows, estimator):
    if estimator.kind in ("is", "ppo_min"):
        estimator = Estimator(kind="tis", cap=estimator.cap)
    ratio = np.exp(rows.log_ratio)
    beta = (rows.q * np.abs(weight(ratio, estimator, 1.0) - ratio)).sum(1) + rows.missing
    np.testing.assert_allclose(mean_statistic(rows, estimator), beta, atol=1e-9)


@pairs
@given(mismatched_pairs(), ESTIMATORS, SEEDS)
def test_d3_statistics_stay_in_their_range(rows, estimator, seed):
    advantage = random_advantages(np.random.default_rng(seed), rows.p.shape)
    low, high = bias_statistic_range(estimator)
    values = bias_statistic(rows.log_ratio, estimator, advantage=advantage)
    assert ((values >= low - 1e-12) & (values <= high + 1e-12)).all()


@pairs
@given(mismatched_pairs(), st.floats(1.0, 4.0))
def test_d3_orders_the_estimators(rows, cap):
    truncated = mean_statistic(rows, Estimator(kind="tis", cap=cap))
    assert_holds(rows.missing, truncated)
    assert_holds(truncated, mean_statistic(rows, Estimator(kind="mis", cap=cap)))
    assert_holds(truncated, total_variation(rows.p, rows.q))


@pairs
@given(softmax_pairs(), ESTIMATORS)
def test_d3_holds_a_priori_from_oscillation(rows, estimator):
    bound = bias_from_oscillation(rows.oscillation, estimator)
    worst_sign = np.sign(rows.log_ratio)  # masks a token on whichever side it leaves
    if estimator.kind == "is":
        assert (bound == 0).all()
        return
    if estimator.kind == "ppo_min":
        kept = weight(rows.w, estimator, worst_sign)
        assert_holds(1 - (rows.q * kept).sum(1), bound)
        return
    assert_holds(mean_statistic(rows, estimator, worst_sign), bound)


@pairs
@given(mismatched_pairs(), ESTIMATORS)
def test_d3_holds_a_priori_from_tv(rows, estimator):
    ratio = np.exp(rows.log_ratio)
    beta = (rows.q * np.abs(weight(ratio, estimator, np.sign(ratio - 1)) - ratio)).sum(1) + rows.missing
    assert_holds(beta, bias_from_tv(np.minimum(total_variation(rows.p, rows.q), 1), estimator))


@pytest.mark.parametrize("estimator", [*SHARP[:3], Estimator(kind="clip", clip=1.5), Estimator(kind="is")])
def test_d3_is_reached_a_priori_from_tv(estimator):
    p, q = np.array([0.7, 0.3, 0.0]), np.array([0.7, 0.0, 0.3])  # disjoint remainders
    sampled = q > 0
    with np.errstate(divide="ignore"):
        log_ratio = np.log(p[sampled] / q[sampled])
    beta = (q[sampled] * bias_statistic(log_ratio, estimator)).sum()
    assert_reached(beta, bias_from_tv(0.3, estimator), share=1 - 1e-9)


def clipped_moments(rows, clip):
    value = np.clip(rows.w, 1 - clip, 1 + clip)
    mean = (rows.q * value).sum(1, keepdims=True)
    return (rows.q * (value - mean) ** 2).sum(1)


@pairs
@given(softmax_pairs())
def test_d9_holds(rows):
    clips = np.linspace(0.0, 2.0, 17)
    worst = np.stack([mean_statistic(rows, Estimator(kind="clip", clip=c)) for c in clips], 1)
    assert (np.diff(worst, axis=1) <= 1e-12).all()
    assert (np.diff(worst, n=2, axis=1)[:, :6] >= -1e-9).all()  # convex below c = 1
    variance = np.stack([clipped_moments(rows, c) for c in clips], 1)
    assert (np.diff(variance, axis=1) >= -1e-9).all()
    second = np.stack([(rows.q * np.minimum(rows.w, 1 + c) ** 2).sum(1) for c in clips], 1)
    assert (np.diff(second, axis=1) >= -1e-9).all()


def test_d9_is_reached():
    p, q, _, _ = four_tokens(0.8)
    uncorrected = (q * bias_statistic(np.log(p / q), Estimator(kind="clip", clip=0.0))).sum()
    assert uncorrected == pytest.approx(2 * total_variation(p, q))
    full = (q * bias_statistic(np.log(p / q), Estimator(kind="clip", clip=5.0))).sum()
    assert full == pytest.approx(0.0, abs=1e-12)


def test_d9_bias_of_one_pair_and_second_moment_are_not_monotone():
    ratio, q = np.array([3.0, 0.5]), np.array([0.2, 0.8])
    bias = [abs((q * (np.clip(ratio, 1 - c, 1 + c) - ratio)).sum()) for c in (0.0, 0.5, 2.0)]
    np.testing.assert_allclose(bias, [0.0, 0.3, 0.0], atol=1e-12)
    second = [(q * np.clip(ratio, 1 - c, 1 + c) ** 2).sum() for c in (0.0, 0.25, 2.0)]
    np.testing.assert_allclose(second, [1.0, 0.7625, 2.0])


@pairs
@given(SEEDS, st.integers(2, 32), st.booleans())
def test_d14_holds(seed, size, sample):
    rng = np.random.default_rng(seed)
    reward = np.where(rng.random((50, 1)) < 0.5, rng.random((50, size)), rng.random((50, size)) < 1 / size)
    deviation = reward.std(1, ddof=int(sample))
    usable = deviation > 1e-9
    advantage = np.abs(reward - reward.mean(1, keepdims=True)).max(1)[usable] / deviation[usable]
    assert_holds(advantage, group_advantage_bound(size, sample_deviation=sample))


@pytest.mark.parametrize("size", [2, 8, 64])
def test_d14_is_reached(size):
    reward = np.eye(size)[0]
    for sample in (False, True):
        advantage = (reward[0] - reward.mean()) / reward.std(ddof=int(sample))
        assert_reached(advantage, group_advantage_bound(size, sample_deviation=sample), share=1 - 1e-12)


def test_d14_score_norm_of_the_softmax():
    law = np.array([1e-9, 1 - 1e-9])
    assert_reached(np.linalg.norm(np.array([1.0, 0.0]) - law), LOGIT_SCORE_NORM)


@pairs
@given(softmax_pairs(), SEEDS, st.floats(1e-4, 1.0))
def test_d17_holds(rows, seed, eta):
    rng = np.random.default_rng(seed)
    error = rng.uniform(-eta, eta, rows.p.shape)
    signal = random_advantages(rng, rows.p.shape)[..., None] * random_scores(rng, rows.p)
    extra = np.linalg.norm(((rows.p * np.expm1(error))[..., None] * signal).sum(1), axis=1)
    assert_holds(extra, logging_error_bias(eta))
    for estimator, times in ((Estimator(kind="tis", cap=2.0), 1), (Estimator(kind="clip", clip=0.2), 2)):
        off = mean_statistic(rows, estimator) - (
            rows.q * bias_statistic(rows.log_ratio + error, estimator)
        ).sum(1)
        assert_holds(np.abs(off), times * logging_error_bias(eta))


@pytest.mark.parametrize("eta", [1e-6, 2.0**-6, 1.0])
def test_d17_is_reached(eta):
    p, _, score, advantage = four_tokens(1e-9)
    aligned = np.abs(advantage) * np.sign(score)
    assert_reached((p * np.expm1(eta) * aligned * score).sum(), logging_error_bias(eta), share=1 - 1e-9)
