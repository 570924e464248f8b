"""Shared columns: each against its definition token by token, and that nothing reported costs and tells nothing."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from pair_factory import no_lists, pair, ragged_batches

from paritas.detectors import token_columns as columns
from paritas.detectors.diagnosis import fingerprints
from paritas.detectors.evidence import PairBatch
from paritas.detectors.pairs import BAD, TopColumns, is_reported, unreported
from paritas.records import TokenStatus

CEILING = columns.LOG_RATIO_CEILING


@settings(max_examples=30)
@given(ragged_batches())
def test_columns_equal_their_definitions(drawn):
    batch, _ = drawn
    cut = [min(float(ell), CEILING) for ell in batch.log_ratio]
    told = {
        columns.sizes: [abs(float(ell)) for ell in batch.log_ratio],
        columns.cut: cut,
        columns.excess: [math.expm1(ell) for ell in cut],
        columns.k3: [math.expm1(ell) - ell for ell in cut],
        columns.owner: [i for i, one in enumerate(batch.pairs) for _ in range(one.tokens)],
        columns.whole: [
            bool(one.tokens) and not any(one.counts.get(s, 0) for s in (*BAD, TokenStatus.MISSING))
            for one in batch.pairs
        ],
    }
    for column, direct in told.items():
        assert column(batch).tolist() == pytest.approx(direct, rel=1e-12, abs=0.0), column.__name__
    assert columns.is_calm(batch) == all(abs(float(ell)) <= CEILING for ell in batch.log_ratio)


@settings(max_examples=30)
@given(ragged_batches())
def test_the_capped_mean_is_that_of_the_capped_ratio(drawn):
    batch, mask = drawn
    got = columns.capped_mean(batch, 2.0, mask)
    kept = np.ones(len(batch.log_ratio), bool) if mask is None else mask
    for i, value in enumerate(got):
        part = slice(batch.offsets[i], batch.offsets[i + 1])
        some = [min(math.exp(min(e, 9.0)), 2.0) - 1.0 for e in batch.log_ratio[part][kept[part]].tolist()]
        assert value == pytest.approx(np.mean(some) if some else math.nan, rel=1e-9, abs=1e-12, nan_ok=True)


def test_what_nobody_reported_takes_the_memory_of_one_number_and_says_so():
    nothing = unreported(5)
    assert np.isnan(nothing).all()
    assert nothing.shape == (5,)
    assert not is_reported(nothing)
    assert [is_reported(column) for column in (np.full(5, np.nan), np.zeros(1), np.zeros(0))] == [
        True,
        True,
        False,
    ]
    assert is_reported(np.broadcast_to(1.0, 5))


def test_pairs_without_lists_tell_the_same_however_their_columns_are_held():
    plain, held = (
        PairBatch.of([pair([0.1, -0.2], top=top), pair([0.3], top=one)])
        for top, one in (
            (no_lists(2), no_lists(1)),
            (TopColumns(*(unreported(2) for _ in range(7))), TopColumns(*(unreported(1) for _ in range(7)))),
        )
    )
    assert fingerprints(plain).tobytes() == fingerprints(held).tobytes()
    assert not is_reported(held.top.exact_tv)
    assert is_reported(plain.top.exact_tv)


def test_lists_of_some_pairs_are_kept_beside_pairs_without():
    some = TopColumns(*(np.array([0.5]) for _ in range(7)))
    batch = PairBatch.of(
        [pair([0.1], top=TopColumns(*(unreported(1) for _ in range(7)))), pair([0.1], top=some)]
    )
    assert batch.top.exact_tv[1] == 0.5
    assert np.isnan(batch.top.exact_tv[0])
