"""Batches: segment sums against loops, and no unit depends on its neighbours."""

import math
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pair_factory import LENGTHS, SEEDS, pair, ragged_batches, ragged_pairs

from paritas.detectors.evidence import PairBatch, segment_mean, segment_sum
from paritas.detectors.pairs import TopColumns


@st.composite
def segments(draw):
    rng, lengths = np.random.default_rng(draw(SEEDS)), draw(LENGTHS)
    offsets = np.cumsum([0, *lengths])
    return rng.normal(size=offsets[-1]) * 10.0 ** rng.integers(-9, 9, offsets[-1]), offsets


@given(segments())
def test_a_segment_sum_equals_a_loop(drawn):
    values, offsets = drawn
    expected = [math.fsum(values[a:b]) for a, b in pairwise(offsets)]
    scale = [np.abs(values[a:b]).sum() for a, b in pairwise(offsets)]
    assert np.all(np.abs(segment_sum(values, offsets) - expected) <= 1e-15 * np.array(scale))


@given(segments(), SEEDS)
def test_a_segment_mean_leaves_out_what_is_not_known(drawn, seed):
    values, offsets = drawn
    known = np.random.default_rng(seed).random(len(values)) < 0.5
    got = segment_mean(values, known, offsets)
    for i, (a, b) in enumerate(pairwise(offsets)):
        kept = values[a:b][known[a:b]]
        np.testing.assert_allclose(got[i], kept.mean() if len(kept) else np.nan, rtol=1e-12, atol=1e-9)


def test_an_infinite_value_stays_in_its_segment():
    got = segment_sum(np.array([1.0, np.inf, 2.0]), np.array([0, 1, 2, 2, 3]))
    assert got.tolist() == [1.0, np.inf, 0.0, 2.0]


def test_nothing_sums_to_nothing():
    assert segment_sum(np.zeros(0), np.array([0])).tolist() == []
    assert segment_sum(np.zeros(0), np.array([0, 0, 0])).tolist() == [0.0, 0.0]
    assert len(PairBatch.of([])) == 0


@given(SEEDS, st.integers(1, 400), st.integers(0, 67), st.integers(0, 67))
def test_neighbours_change_no_bit_of_a_sum(seed, length, before, after):
    rng = np.random.default_rng(seed)
    own, left, right = rng.normal(size=length), rng.normal(size=before), rng.normal(size=after)
    alone = segment_sum(own, np.array([0, length]))[0]
    offsets = np.cumsum([0, before, length, after])
    assert segment_sum(np.concatenate([left, own, right]), offsets)[1] == alone


@given(SEEDS, st.integers(1, 300), st.integers(0, 40))
def test_neighbours_change_no_bit_of_a_transformed_mean(seed, length, before):
    """Vector code paths of exp and log must not depend on where a token stands in the batch."""
    rng = np.random.default_rng(seed)
    own, other = pair(rng.normal(0, 0.3, length)), pair(rng.normal(0, 0.3, before))

    def measured(batch):
        ell = batch.log_ratio
        return [batch.means(f(ell))[-1] for f in (np.expm1, np.exp, lambda x: np.log1p(np.abs(x)))]

    assert measured(PairBatch.of([other, own])) == measured(PairBatch.of([own]))


@given(ragged_pairs())
def test_a_batch_is_its_pairs_end_to_end(pairs):
    batch = PairBatch.of(pairs)
    assert batch.counts().tolist() == [p.tokens for p in pairs]
    for i, one in enumerate(pairs):
        a, b = batch.offsets[i : i + 2]
        np.testing.assert_array_equal(batch.log_ratio[a:b], one.log_ratio)
        np.testing.assert_array_equal(batch.position[a:b], one.position)
        for name in TopColumns.__slots__:
            np.testing.assert_array_equal(getattr(batch.top, name)[a:b], getattr(one.top, name))


@given(ragged_batches())
def test_sums_means_and_counts_take_the_mask(drawn):
    batch, mask = drawn
    kept = np.ones(len(batch.log_ratio), bool) if mask is None else mask
    column = np.where(np.isfinite(batch.log_ratio), batch.log_ratio, np.nan)
    spans = list(pairwise(batch.offsets))
    assert batch.counts(mask).tolist() == [int(kept[a:b].sum()) for a, b in spans]
    filled = np.nan_to_num(column)
    sums = [math.fsum(filled[a:b][kept[a:b]]) for a, b in spans]
    np.testing.assert_allclose(batch.sums(filled, mask), sums, rtol=1e-9, atol=1e-9)
    known = [column[a:b][kept[a:b] & ~np.isnan(column[a:b])] for a, b in spans]
    means = [v.mean() if len(v) else np.nan for v in known]
    np.testing.assert_allclose(batch.means(column, mask), means, rtol=1e-9, atol=1e-9)
