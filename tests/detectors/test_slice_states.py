"""Slice states: many pairs at once are remembered as one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import SEEDS, clause, contract, pair, paired

from paritas.contracts.model import Stage
from paritas.detectors.diagnosis import FIELDS, Recent
from paritas.detectors.evaluate import Evaluator
from paritas.detectors.slice_states import EXEMPLARS, SliceState, fold_recent
from paritas.detectors.units import Batch
from paritas.records import Sampling


@settings(max_examples=30)
@given(SEEDS, st.integers(1, 40), st.integers(1, 9), st.lists(st.integers(0, 40), max_size=3))
def test_sums_are_those_of_one_by_one_bit_for_bit(seed, n, window, cuts):
    sums = np.random.default_rng(seed).normal(size=(n, len(FIELDS)))
    one, many = Recent(window=window), Recent(window=window)
    for unit in sums:
        one.fold(unit)
    for part in np.split(sums.copy(), sorted(min(cut, n) for cut in cuts)):
        fold_recent(many, part)
    assert (many.older.tobytes(), many.newer.tobytes()) == (one.older.tobytes(), one.newer.tobytes())
    assert many.filled == one.filled


def batch_of(pairs):
    columns = Evaluator(contract(clause("tv", 0.5)), stage=Stage.FULL, recover=False).columns
    return Batch.of([paired(p) for p in pairs], columns, by_group=False)


@pytest.mark.parametrize("step", [1, 7, 50])
def test_the_worst_pairs_and_the_newest_laws_are_kept(step):
    sizes = np.random.default_rng(0).permutation(50) / 100
    pairs = [
        pair([s], name=f"s{i}", lag=i % 4, sampling=Sampling(temperature=float(i)))
        for i, s in enumerate(sizes)
    ]
    batch, state = batch_of(pairs), SliceState(Recent())
    for first in range(0, 50, step):
        state.note(batch, np.arange(first, min(first + step, 50)))
    worst = sorted(pairs, key=lambda p: -p.log_ratio[0])[:EXEMPLARS]
    assert [trace_id for _, trace_id in state.worst] == [p.trace_id for p in worst]
    assert (state.allowed_lag, state.inference.temperature) == (3, 49.0)


def test_equal_sizes_are_ordered_by_trace_id():
    pairs = [pair([0.1], name=f"s{i}") for i in range(20)]
    state = SliceState(Recent())
    state.note(batch_of(pairs), np.arange(20))
    assert [trace_id for _, trace_id in state.worst] == sorted(p.trace_id for p in pairs)[:EXEMPLARS]
