"""The statistics of training objectives: each against a formula of its own, and against what it claims to bound."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import SEEDS, clause, kept_of, no_lists, pair, ragged_batches
from softmax_pairs import (
    assert_holds,
    assert_reached,
    coin,
    kl_inference_to_train,
    mismatched_pairs,
    softmax_pairs,
    total_variation,
)

from paritas.contracts.bounds import bias_statistic
from paritas.contracts.model import Estimator
from paritas.detectors.evidence import PairBatch
from paritas.detectors.objectives import OBJECTIVE_VALUES, label_number
from paritas.detectors.pairs import TopColumns
from paritas.detectors.statistics import UNIT_VALUES, gradient_bias, unit_values
from paritas.records import TokenStatus

BROKEN = (TokenStatus.MISSING, TokenStatus.SENTINEL, TokenStatus.NONFINITE, TokenStatus.POSITIVE)
LABELS = st.sampled_from(["", "1", "-0.5", "0", "0.25", "true", "false", "nan", "much"])


def values(name, pairs, mask=None, **options):
    return unit_values(PairBatch.of(pairs), clause(name, 0.5, **options), mask)


def is_whole(one, kept):
    return bool(len(one.log_ratio)) and all(kept) and not any(one.counts.get(s) for s in BROKEN)


def average(found):
    return math.fsum(found) / len(found) if found else math.nan


def per_token(one, kept, function):
    return average([function(float(e)) for e, k in zip(one.log_ratio, kept, strict=True) if k])


def clip_ends(c):
    low = c.clip or 0.2
    return (math.log1p(-low) if low < 1 else -math.inf), math.log1p(c.clip_high or low)


def number(one, name):
    told = {"true": "1", "false": "0"}.get(one.attributes.get(name, ""), one.attributes.get(name, ""))
    try:
        return float(told) if math.isfinite(float(told)) else math.nan
    except ValueError:
        return math.nan


def ppo(one, c, kept):
    advantage, (low, high) = number(one, "advantage"), clip_ends(c)
    if math.isnan(advantage):
        return math.nan
    return per_token(one, kept, lambda e: (advantage > 0 and e > high) or (advantage < 0 and e < low))


def gspo(one, c, kept):
    low, high = clip_ends(c)
    if not is_whole(one, kept):
        return math.nan
    middle = float(np.mean(one.log_ratio))
    return float(middle > high or middle < low)


def truncated_k3(e):
    return 1.0 if e > 10 else min(math.expm1(e) - e, 1.0) if e > -math.inf else 1.0


def gap(one, _c, kept):
    pairs = zip(one.log_ratio, one.logprob_q, kept, strict=True)
    return average([abs(math.exp(min(q + e, 0.0)) - math.exp(q)) for e, q, k in pairs if k])


def reward(one, c, kept, side):
    low, high = c.reward_range or (0.0, 1.0)
    share = (number(one, "reward") - low) / (high - low)
    if not is_whole(one, kept) or not 0 <= share <= 1:
        return math.nan
    return (1 - min(math.exp(min(float(np.sum(one.log_ratio)), 5.0)), 2.0)) * side(share)


DIRECT = {
    "distillation_drift": lambda one, c, kept: per_token(one, kept, lambda e: min(abs(e), 1.0)),
    "gspo_clip_rate": gspo,
    "ppo_clip_rate": ppo,
    "probability_gap": gap,
    "reward_gain": lambda one, c, kept: reward(one, c, kept, lambda share: 1 - share),
    "reward_loss": lambda one, c, kept: reward(one, c, kept, lambda share: share),
    "trust_region_kl": lambda one, c, kept: per_token(one, kept, truncated_k3),
}
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "clip": st.sampled_from([0.1, 0.2, 1.5]),
        "clip_high": st.sampled_from([0.28, 2.0]),
        "reward_range": st.sampled_from([(-1.0, 1.0), (0.0, 2.0)]),
    },
)


@pytest.mark.parametrize("name", sorted(DIRECT))
@settings(max_examples=40, deadline=None)
@given(ragged_batches(), OPTIONS, st.lists(LABELS, min_size=7, max_size=7))
def test_a_statistic_equals_its_formula(name, drawn, options, labels):
    batch, mask = drawn
    for one, label in zip(batch.pairs, labels, strict=False):
        one.attributes.update(advantage=label, reward=label)
    asked = clause(name, 0.5, **options)
    expected = [DIRECT[name](one, asked, kept_of(batch, mask, i)) for i, one in enumerate(batch.pairs)]
    got = unit_values(batch, asked, mask)
    np.testing.assert_allclose(got, np.array(expected, np.float64), rtol=1e-9, atol=1e-12)


def test_every_objective_is_registered_and_tested():
    assert set(OBJECTIVE_VALUES) <= set(UNIT_VALUES)
    own = {"phantom_clip_rate", "confidence_drift", "dpo_margin_drift"}  # the first in test_statistics
    assert set(OBJECTIVE_VALUES) == set(DIRECT) | own


def test_the_phantom_range_may_be_asymmetric():
    pairs = [pair(np.log([0.7, 0.85, 1.25, 1.35]))]
    assert values("phantom_clip_rate", pairs, clip=0.2).tolist() == [0.75]
    assert values("phantom_clip_rate", pairs, clip=0.2, clip_high=0.28).tolist() == [0.5]


def test_ppo_drops_only_what_the_advantage_pushes_further():
    ell = np.log([0.7, 1.0, 1.3])
    told = [pair(ell, attributes={"advantage": a}) for a in ("2", "-2", "0", "")]
    np.testing.assert_allclose(values("ppo_clip_rate", told, clip=0.2), [1 / 3, 1 / 3, 0.0, np.nan])
    np.testing.assert_allclose(values("ppo_clip_rate", told[:1], clip=0.2, clip_high=0.4), [0.0])


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from(["1", "-1", "0"]))
def test_the_bias_of_ppo_min_needs_the_sign_of_the_advantage(seed, advantage):
    ell = np.random.default_rng(seed).normal(0, 0.3, 9)
    estimator = Estimator("ppo_min", cap=2.0, clip=0.2)
    batch = PairBatch.of([pair(ell, attributes={"advantage": advantage}), pair(ell)])
    told = gradient_bias(batch, estimator)
    expected = np.mean(bias_statistic(ell, estimator, advantage=float(advantage)))
    np.testing.assert_allclose(told, [expected, np.nan])


def mean_truncated(rows):
    return (rows.q * np.minimum(np.expm1(rows.log_ratio) - rows.log_ratio, 1.0)).sum(1)


@settings(max_examples=60, deadline=None)
@given(softmax_pairs())
def test_the_trust_region_stays_below_the_kl_and_bounds_total_variation(rows):
    region = mean_truncated(rows)
    assert_holds(region, kl_inference_to_train(rows))
    assert_holds(total_variation(rows.p, rows.q), np.sqrt(2.0 * region))


def test_the_trust_region_is_the_kl_while_no_token_reaches_the_cut():
    rows = coin(0.3, 0.5)
    assert_reached(mean_truncated(rows), kl_inference_to_train(rows), share=1 - 1e-12)


@settings(max_examples=60, deadline=None)
@given(softmax_pairs())
def test_the_probability_gap_never_exceeds_twice_the_total_variation(rows):
    assert_holds((rows.q * np.abs(rows.p - rows.q)).sum(1), 2 * total_variation(rows.p, rows.q))


@settings(max_examples=60, deadline=None)
@given(mismatched_pairs(), SEEDS)
def test_the_reward_certificates_enclose_the_drift_whatever_the_supports(rows, seed):
    r = np.random.default_rng(seed).random(rows.q.shape)
    lost = 1 - np.minimum(np.exp(rows.log_ratio), 2.0)
    drift = (rows.p * r).sum(1) - (rows.q * r).sum(1)
    assert_holds(1 + drift, 1 + (rows.q * lost * (1 - r)).sum(1))  # above zero, so that rounding is relative
    assert_holds(1 - drift, 1 + (rows.q * lost * r).sum(1))


def test_the_reward_certificates_are_the_drift_while_no_ratio_exceeds_two():
    rows, r = coin(0.3, 0.4), np.array([[1.0, 0.0]])
    lost = 1 - np.minimum(np.exp(rows.log_ratio), 2.0)
    drift = (rows.p * r).sum(1) - (rows.q * r).sum(1)
    np.testing.assert_allclose(drift, (rows.q * lost * (1 - r)).sum(1), rtol=1e-9)
    np.testing.assert_allclose(-drift, (rows.q * lost * r).sum(1), rtol=1e-9)


def test_a_reward_outside_its_range_tells_nothing():
    told = [pair([0.1], attributes={"reward": r}) for r in ("3", "-1.01", "", "1", "-1")]
    found = values("reward_loss", told, reward_range=(-1.0, 1.0))
    assert np.isnan(found).tolist() == [True, True, True, False, False]
    assert found[4] == 0.0


def preference(kind, ell, group="g", **more):
    labels = {"preference": kind} if kind else {}
    return pair(ell, group_id=group, attributes=labels, **more)


def test_the_margin_cancels_what_both_answers_share():
    shared = [preference("chosen", [0.3, 0.3]), preference("rejected", [0.6])]
    np.testing.assert_allclose(values("dpo_margin_drift", shared, beta=0.1), [0.0, 0.0], atol=1e-15)
    apart = [preference("chosen", [0.5, 0.5]), preference("rejected", [-1.0])]
    np.testing.assert_allclose(values("dpo_margin_drift", apart, beta=0.1), [math.tanh(0.05)] * 2)
    np.testing.assert_allclose(values("dpo_margin_drift", apart, beta=2.0), [math.tanh(1.0)] * 2)


@pytest.mark.parametrize(
    "pairs",
    [
        [preference("chosen", [0.5])],
        [preference("chosen", [0.5]), preference("rejected", [0.1], group="other")],
        [preference("chosen", [0.5], group=""), preference("rejected", [0.1], group="")],
        [preference("chosen", [0.5]), preference("chosen", [0.5]), preference("rejected", [0.1])],
        [preference("chosen", [0.5]), preference("", [0.1])],
        [preference("chosen", [0.5]), preference("rejected", [])],
        [preference("chosen", [0.5]), preference("rejected", [0.1], counts={TokenStatus.MISSING: 1})],
        [preference("chosen", [0.5]), preference("rejected", [0.1], run_id="another")],
    ],
)
def test_a_preference_that_is_not_one_pair_tells_nothing(pairs):
    assert np.isnan(values("dpo_margin_drift", pairs, beta=0.1)).all()


@settings(max_examples=200, deadline=None)
@given(st.floats(-20, 20), st.floats(-20, 20))
def test_the_margin_statistic_bounds_the_change_of_the_preference_probability(margin, change):
    def sigmoid(x):
        return 1 / (1 + math.exp(-x))

    moved = abs(sigmoid(margin + change) - sigmoid(margin))
    assert moved <= math.tanh(abs(change) / 4) + 1e-12
    assert abs(sigmoid(change / 2) - sigmoid(-change / 2)) == pytest.approx(math.tanh(abs(change) / 4))


def confident(q, p, flip=None):
    """A pair whose kernels give their most likely token these probabilities."""
    n = len(q)
    columns = {name: np.full(n, np.nan) for name in TopColumns.__slots__}
    columns |= {
        "top1_q": np.array(q),
        "gap": np.array(q) - np.array(p),
        "flip": np.zeros(n) if flip is None else np.array(flip),
    }
    return pair(np.zeros(n), top=TopColumns(**columns))


def test_confidence_drift_without_options_is_the_mean_gap():
    told = [confident([0.9, 0.5], [0.8, 0.55]), confident([0.9, 0.5], [0.8, 0.1], flip=[0.0, 1.0])]
    np.testing.assert_allclose(values("confidence_drift", told), [0.075, 0.1])
    assert np.isnan(values("confidence_drift", [pair([0.1], top=no_lists(1))])).all()


@settings(max_examples=100, deadline=None)
@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.floats(0.2, 5), st.floats(0.01, 0.5))
def test_confidence_is_recalibrated_on_the_logit_and_then_smoothed(q, p, temperature, smoothing):
    def h(f):
        return (1 - smoothing) / (1 + math.exp(-math.log(f / (1 - f)) / temperature))

    found = values("confidence_drift", [confident([q], [p])], temperature=temperature, smoothing=smoothing)
    assert found[0] == pytest.approx(abs(h(q) - h(p)), abs=1e-12)


def test_a_certain_kernel_stays_certain_at_any_temperature():
    found = values("confidence_drift", [confident([1.0], [1.0]), confident([1.0], [0.0])], temperature=3.0)
    np.testing.assert_allclose(found, [0.0, 1.0])


def test_a_label_is_a_finite_number_or_nothing():
    texts = ("1.5", "-2", "true", "false", "inf", "nan", "x", "")
    told = [label_number(pair([0.0], attributes={"reward": t}), "reward") for t in texts]
    np.testing.assert_equal(told, [1.5, -2.0, 1.0, 0.0, *[math.nan] * 4])
