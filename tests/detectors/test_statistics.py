"""Every per-unit statistic against a formula written down on its own, token by token."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import SEEDS, both, clause, kept_of, pair, ragged_batches, top_k

from paritas.contracts.catalogue import CATALOGUE
from paritas.contracts.model import Compare, Estimator
from paritas.detectors.evidence import PairBatch
from paritas.detectors.objectives import OBJECTIVE_VALUES
from paritas.detectors.pairing import match
from paritas.detectors.statistics import UNIT_VALUES, gradient_bias, token_bets, unit_values
from paritas.detectors.timing_shapes import SHAPES
from paritas.records import LogprobSemantics, TokenStatus


def ratio(ell, ceiling=math.inf):
    return math.exp(min(ell, ceiling)) if ell > -math.inf else 0.0


def mean(values):
    known = [v for v in values if not math.isnan(v)]
    return math.fsum(known) / len(known) if known else math.nan


def tokens_of(one, kept, column):
    whole = getattr(one, column) if hasattr(one, column) else getattr(one.top, column)
    return [float(v) for v, k in zip(whole, kept, strict=True) if k]


def mean_of(function, column="log_ratio"):
    return lambda one, c, kept: mean([function(v, c) for v in tokens_of(one, kept, column)])


def share_of(*statuses):
    def direct(one, _clause, _kept):
        total = sum(n for s, n in one.counts.items() if s not in (TokenStatus.PROMPT, TokenStatus.MASKED))
        return sum(one.counts.get(s, 0) for s in statuses) / total if total else math.nan

    return direct


def exceeds(value, c):
    return value if c.quantile is None or math.isnan(value) else float(value > c.at_most)


def top1(one, _clause, kept):
    hits, chances = tokens_of(one, kept, "is_top1"), tokens_of(one, kept, "top1_q")
    return mean([h - q for h, q in zip(hits, chances, strict=True)])


def sequence_tv(one, _clause, kept):
    broken = (TokenStatus.MISSING, TokenStatus.SENTINEL, TokenStatus.NONFINITE, TokenStatus.POSITIVE)
    if not all(kept) or not len(one.log_ratio) or any(one.counts.get(s) for s in broken):
        return math.nan
    return max(0.0, 1.0 - ratio(float(np.sum(one.log_ratio)), 0.0))


def own_tv(one, _, kept):
    estimate = [max(0.0, 1.0 - ratio(ell, 0.0)) for ell in tokens_of(one, kept, "log_ratio")]
    exact = tokens_of(one, kept, "exact_tv")
    return mean([e if math.isnan(x) else x for e, x in zip(estimate, exact, strict=True)])


def own_bias(ell, c):
    if c.clip is None:
        return 1.0 - min(ratio(ell, 9.0), c.cap or 2.0)
    return 1.0 - min(ratio(ell, 9.0), 1.0 + c.clip) + max(1.0 - c.clip - ratio(ell, 9.0), 0.0)


def outside(ell, c):
    width = c.clip or 0.2
    return float(not 1.0 - width <= ratio(ell, 9.0) <= 1.0 + width)


def unknown(value):
    return math.nan if value is None else float(value)


DIRECT = {
    "tv": own_tv,
    "tv_topk": lambda one, c, kept: min(mean(tokens_of(one, kept, "hybrid_tv")), 1.0),
    "logit_oscillation": mean_of(exceeds, "oscillation"),
    "argmax_flip_rate": mean_of(lambda v, c: v, "flip"),
    "logprob_abs_diff": mean_of(lambda ell, c: abs(ell)),
    "ratio_tail": mean_of(lambda ell, c: float(abs(ell) > math.log(c.above or 2.0))),
    "mean_ratio": mean_of(lambda ell, c: min(ratio(ell, 9.0), c.cap or 2.0)),
    "top1_frequency": top1,
    "sequence_tv": sequence_tv,
    "gradient_bias": mean_of(own_bias),
    "phantom_clip_rate": mean_of(outside),
    "calibration_gap": lambda one, c, kept: mean(tokens_of(one, kept, "gap")),
    "kl_k3": mean_of(lambda ell, c: ratio(ell, 50.0) - 1.0 - min(ell, 50.0)),
    "chi_square": mean_of(lambda ell, c: (ratio(ell, 50.0) - 1.0) ** 2),
    "ess": mean_of(lambda ell, c: ratio(ell, 50.0) ** 2),
    "time_to_first_token": lambda one, c, kept: exceeds(unknown(one.timings.ttft_s), c),
    "inter_token_latency": lambda one, c, kept: exceeds(one.itl_mean_s, c),
    "weights_lag": lambda one, c, kept: max(unknown(one.lag), 0.0),
    "nonfinite_rate": share_of(TokenStatus.SENTINEL, TokenStatus.NONFINITE, TokenStatus.POSITIVE),
    "missing_rate": share_of(TokenStatus.MISSING),
    "logprob_semantics_known": lambda one, c, kept: float(
        one.sampling.semantics is not LogprobSemantics.UNKNOWN
    ),
}
OPTIONS = st.fixed_dictionaries(
    {"at_most": st.sampled_from([0.05, 0.5])},
    optional={
        "cap": st.sampled_from([1.0, 2.0, 5.0]),
        "clip": st.sampled_from([0.0, 0.2, 1.5]),
        "above": st.sampled_from([1.1, 2.0]),
        "quantile": st.just(0.99),
    },
)


def test_the_names_are_those_of_the_catalogue():
    assert {*UNIT_VALUES, "pairing_rate", "kernel_identity", "silence", "agent_silence", *SHAPES} == set(
        CATALOGUE
    )
    assert set(DIRECT) | set(OBJECTIVE_VALUES) == set(UNIT_VALUES)  # test_objectives.py has the others


@pytest.mark.parametrize("name", sorted(DIRECT))
@settings(max_examples=40)
@given(ragged_batches(), OPTIONS)
def test_a_statistic_equals_its_formula(name, drawn, options):
    (batch, mask), asked = drawn, clause(name, **options)
    expected = [DIRECT[name](one, asked, kept_of(batch, mask, i)) for i, one in enumerate(batch.pairs)]
    got = unit_values(batch, asked, mask)
    assert got.dtype == np.float64
    # k3 near zero cancels in the direct form, not in ours: hence the absolute part
    np.testing.assert_allclose(got, np.array(expected, np.float64), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("name", ["pairing_rate", "kernel_identity", "silence"])
def test_what_is_judged_from_states_has_no_unit_values(name):
    with pytest.raises(KeyError, match=name):
        unit_values(PairBatch.of([]), clause(name, 0.5))


@settings(max_examples=60)
@given(ragged_batches(), st.floats(0.001, 1.1), st.sampled_from([1.5, 2.0]))
def test_mean_ratio_bets_are_the_explicit_product(drawn, limit, cap):
    (batch, mask), asked = drawn, clause("mean_ratio", limit, cap=cap)
    bets = np.array([0.01, 0.5, 0.9]) / limit
    got = np.exp(token_bets(batch, asked, mask, bets))
    for i, one in enumerate(batch.pairs):
        tokens = [min(ratio(e, 9.0), cap) for e in tokens_of(one, kept_of(batch, mask, i), "log_ratio")]
        expected = [math.prod(1.0 + bet * (w - limit) for w in tokens) for bet in bets]
        np.testing.assert_allclose(got[i], expected, rtol=1e-9)


@settings(max_examples=60)
@given(ragged_batches(), st.floats(0.0, 0.2))
def test_top1_bets_are_the_explicit_product_both_ways(drawn, limit):
    (batch, mask), asked = drawn, clause("top1_frequency", limit)
    bets = np.array([0.1, 0.7, -0.1, -0.7])
    got = np.exp(token_bets(batch, asked, mask, bets))
    for i, one in enumerate(batch.pairs):
        kept = kept_of(batch, mask, i)
        gains = [
            h - q
            for h, q in zip(tokens_of(one, kept, "is_top1"), tokens_of(one, kept, "top1_q"), strict=True)
            if not math.isnan(h - q)
        ]
        expected = [math.prod(1.0 + abs(b) * (math.copysign(g, g * b) - limit) for g in gains) for b in bets]
        np.testing.assert_allclose(got[i], expected, rtol=1e-9)


@given(SEEDS, st.lists(st.sampled_from([0, 1, 31, 32, 33, 64, 200]), min_size=1, max_size=5))
def test_bets_of_long_sequences_neither_overflow_nor_feel_their_neighbours(seed, lengths):
    rng, asked = np.random.default_rng(seed), clause("mean_ratio", 1.0, cap=5.0)
    pairs = [pair(rng.normal(0, 1.5, n), name=f"s{i}") for i, n in enumerate(lengths)]
    bets = np.array([0.01, 0.9])
    together = token_bets(PairBatch.of(pairs), asked, None, bets)
    for i, one in enumerate(pairs):
        assert together[i].tobytes() == token_bets(PairBatch.of([one]), asked, None, bets)[0].tobytes()
        logs = [
            math.fsum(math.log1p(b * (min(ratio(e, 9.0), 5.0) - 1.0)) for e in one.log_ratio) for b in bets
        ]
        np.testing.assert_allclose(together[i], logs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("ell", "factor"), [(-50.0, 0.1), (9.0, 4.6)])
def test_a_thousand_factors_of_one_kind_neither_vanish_nor_overflow(ell, factor):
    batch, asked = PairBatch.of([pair([ell] * 1000)]), clause("mean_ratio", 1.0, cap=5.0)
    got = token_bets(batch, asked, None, np.array([0.9]))
    assert got[0, 0] == pytest.approx(1000 * math.log(factor), rel=1e-9)


ESTIMATORS = {
    "none": (Estimator("none"), lambda w: 2.0 * max(1.0 - w, 0.0)),
    "tis": (Estimator("tis", cap=3.0), lambda w: 1.0 - min(w, 3.0)),
    "clip": (Estimator("clip", clip=0.2), lambda w: 1.0 - min(w, 1.2) + max(0.8 - w, 0.0)),
    "mis": (Estimator("mis", low=0.5, cap=2.0), lambda w: 1.0 - w * (0.5 <= w <= 2.0)),
}


@pytest.mark.parametrize("kind", ESTIMATORS)
@settings(max_examples=40)
@given(ragged_batches())
def test_the_certificate_of_each_estimator_is_that_of_d3(kind, drawn):
    (batch, mask), (estimator, direct) = drawn, ESTIMATORS[kind]
    expected = [
        mean([direct(ratio(e, 9.0)) for e in tokens_of(one, kept_of(batch, mask, i), "log_ratio")])
        for i, one in enumerate(batch.pairs)
    ]
    np.testing.assert_allclose(gradient_bias(batch, estimator, mask), expected, rtol=1e-9, atol=1e-12)


def test_an_estimator_that_needs_advantages_tells_nothing():
    batch = PairBatch.of([pair([0.1]), pair([])])
    assert np.isnan(gradient_bias(batch, Estimator("ppo_min", clip=0.2))).all()


# ---- expectations over a whole vocabulary: what makes the numbers above mean something


@st.composite
def laws(draw):
    """Two laws on a small vocabulary, each zero somewhere."""
    rng, n = np.random.default_rng(draw(SEEDS)), draw(st.integers(2, 8))
    p, q = rng.dirichlet(np.full(n, 0.7), 2)
    q = q * (rng.random(n) < 0.8)
    p = p * (rng.random(n) < 0.8)
    q[rng.integers(n)] += 0.3
    p[rng.integers(n)] += 0.3
    return p / p.sum(), q / q.sum()


def one_token_pairs(p, q):
    """Return the pair of each token the sampler can draw, and its probability."""
    drawn = np.flatnonzero(q)
    with np.errstate(divide="ignore"):
        ell = np.log(p[drawn]) - np.log(q[drawn])
    return PairBatch.of([pair([e]) for e in ell]), q[drawn]


def expected_value(p, q, asked):
    batch, chances = one_token_pairs(p, q)
    return float(chances @ unit_values(batch, asked))


def total_variation(p, q):
    return float(np.abs(p - q).sum() / 2)


@given(laws())
def test_tv_is_unbiased_whatever_the_supports(drawn):
    p, q = drawn
    assert expected_value(p, q, clause("tv", 0.1)) == pytest.approx(total_variation(p, q), abs=1e-12)


@given(laws(), st.sampled_from([1.0, 2.0, 5.0]))
def test_the_mean_ratio_never_exceeds_one(drawn, cap):
    p, q = drawn
    got = expected_value(p, q, clause("mean_ratio", 1.0, cap=cap))
    assert got <= 1.0 + 1e-12
    assert got == pytest.approx(float(np.minimum(p, cap * q).sum()), abs=1e-12)


@given(laws(), st.sampled_from([0.0, 0.2, 0.9]))
def test_the_gradient_certificates_are_those_of_d3(drawn, clip):
    p, q = drawn
    w = np.where(q > 0, p / np.where(q > 0, q, 1.0), 0.0)
    missing = p[q == 0].sum()
    clipped = float(q @ np.abs(np.clip(w, 1 - clip, 1 + clip) - w) + missing)
    truncated = float(q @ np.abs(np.minimum(w, 2.0) - w) + missing)
    assert expected_value(p, q, clause("gradient_bias", 0.1, clip=clip)) == pytest.approx(clipped, abs=1e-12)
    assert expected_value(p, q, clause("gradient_bias", 0.1)) == pytest.approx(truncated, abs=1e-12)


def listed(law, k):
    """Return the k most likely tokens of a law and their log-probabilities."""
    best = np.argsort(-law, kind="stable")[:k]
    with np.errstate(divide="ignore"):
        return top_k([best], [np.log(law[best])])


def drawn_batch(p, q, k):
    """Return the pair of each token the sampler can draw, with both kernels' top-k lists, and its probability."""
    tokens = np.flatnonzero(q)
    return PairBatch.of([drawn_pair(p, q, t, k) for t in tokens]), q[tokens]


def drawn_pair(p, q, token, k):
    with np.errstate(divide="ignore"):
        inference, train = both(q=[np.log(q[token])], p=[np.log(p[token])], token=[token])
    lists = replace(inference, top=listed(q, k)), replace(train, top=listed(p, k))
    return match(*lists, Compare()).pair


@given(laws(), st.integers(1, 4))
def test_the_hybrid_is_unbiased_whatever_the_lists(drawn, k):
    p, q = drawn
    batch, chances = drawn_batch(p, q, k)
    got = float(chances @ batch.top.hybrid_tv)
    assert got == pytest.approx(total_variation(p, q), abs=2e-6)  # log-probabilities are float32


def test_a_sequence_of_lost_tokens_counts_one():
    lists = {"top": top_k([[1, 2]], np.log([[0.6, 0.4]]))}, {"top": top_k([[1, 2]], [[np.log(0.1), np.nan]])}
    inference, train = both(q=[np.log(0.4)], p=[-np.inf], token=[2])
    one = match(replace(inference, **lists[0]), replace(train, **lists[1]), Compare()).pair
    assert one.top.hybrid_tv == pytest.approx([1.5], abs=1e-6)
    assert unit_values(PairBatch.of([one]), clause("tv_topk", 0.1)).tolist() == [1.0]


@given(laws(), st.integers(1, 4))
def test_the_top1_gain_is_zero_on_average_exactly_when_the_log_is_the_law(drawn, k):
    p, q = drawn
    batch, chances = drawn_batch(p, q, k)
    gains = unit_values(batch, clause("top1_frequency", 0.1))
    assert float(chances @ gains) == pytest.approx(0.0, abs=1e-6)
    colder = chances**2 / (chances**2).sum()  # logged q, sampled at half its temperature
    assert float(colder @ gains) == pytest.approx(float(colder.max() - chances.max()), abs=1e-6)
