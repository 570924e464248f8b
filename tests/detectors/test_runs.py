"""Runs: many units together leave the bank as one by one, bit for bit, or leave it alone."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import EVERYTHING, NS, SEEDS, clause

from paritas.detectors.bank import Bank
from paritas.detectors.bets import Bets
from paritas.detectors.rows import make_row
from paritas.detectors.runs import SliceRun, fold_alone, fold_run
from paritas.detectors.sequential import CEILING
from paritas.detectors.table import Table

CLAUSES = (
    clause("tv", 0.05),
    clause("kl_k3", 0.02),
    clause("nonfinite_rate", 0.0),
    clause("calibration_gap", 0.1),
)
ROWS = tuple(make_row(c, EVERYTHING, "all", 0.01) for c in CLAUSES)
INSTANCES = 3
PERIOD_NS = 1000 * NS


def bank_of(*, recover):
    bank = Bank(period_ns=PERIOD_NS, recover=recover)
    for _ in range(INSTANCES):
        for row in ROWS:
            bank.add(row)
    return bank


def image(bank):
    return {name: v.tobytes() for name, v in vars(bank).items() if isinstance(v, np.ndarray)}


class Stream:
    """Units that touch one of three instances each; some cannot tell some clauses."""

    def __init__(self, seed, n, mean):
        rng = np.random.default_rng(seed)
        self.known = rng.random((n + 1, len(ROWS))) < rng.choice([0.8, 1.0])
        values = np.minimum(rng.exponential(mean, (n + 1, len(ROWS))), 1.0)
        values[:, 2] *= rng.random(n + 1) < 0.02
        self.scaled = np.where(self.known, values, 0.0)
        self.factors = Bets.of(ROWS).multiply(np.where(self.known, values, np.nan))
        self.tokens = rng.integers(0, 50, self.known.shape)
        self.instance = rng.integers(0, INSTANCES, n)
        self.event_ns = (
            rng.integers(0, 50, n).cumsum() * NS - rng.integers(0, 90, n) * NS
        )  # back now and then
        self.without = (~self.known & (rng.random((n + 1, 1)) < 0.9)).astype(np.int64)

    def table(self):
        return Table(
            self.known, self.scaled, self.factors, self.tokens, self.without, np.ones(len(self.known))
        )

    def run(self, first, stop, table=None):
        held, instance = np.unique(self.instance[first:stop], return_inverse=True)
        places = np.arange(first, stop)
        rows = held[:, None] * len(ROWS) + np.arange(len(ROWS))
        told = (np.arange(len(ROWS)), instance, places, places, self.event_ns[places], places, instance)
        return SliceRun(table or self.table(), [str(i) for i in held], rows, *told)

    def fold_one(self, bank, i):
        """Fold unit i alone; return whether a row changed its state."""
        (told,) = fold_alone(bank, [self.run(i, i + 1)])
        return bool(told.violated.size or told.recovered.size)


def fold_together(bank, stream, first, stop, length=64):
    """Fold as the evaluator does: runs up to a change, the unit of the change alone; count the changes."""
    changes, table = 0, stream.table()
    while first < stop:
        last = min(first + length, stop)
        units = fold_run(bank, [stream.run(first, last, table)], first, last)
        if 0 < units < last - first:
            assert fold_run(bank, [stream.run(first, first + units, table)], first, first + units) == units
        if units < last - first:
            changes += stream.fold_one(bank, first + units)
            units += 1
        first += units
    return changes


@settings(max_examples=30)
@given(SEEDS, st.integers(1, 80), st.sampled_from([0.005, 0.04, 0.3]), st.booleans())
def test_together_is_one_by_one(seed, n, mean, recover):
    stream = Stream(seed, n, mean)
    alone, together = bank_of(recover=recover), bank_of(recover=recover)
    changes = sum(stream.fold_one(alone, i) for i in range(n))
    assert fold_together(together, stream, 0, n) == changes
    assert image(together) == image(alone)


@settings(max_examples=20)
@given(SEEDS, st.integers(2, 60), st.data())
def test_a_run_may_be_cut_anywhere(seed, n, data):
    stream, cut = Stream(seed, n, 0.02), data.draw(st.integers(1, n - 1))
    whole, cut_up = bank_of(recover=True), bank_of(recover=True)
    fold_together(whole, stream, 0, n)
    fold_together(cut_up, stream, 0, cut)
    cut_up = pickle.loads(pickle.dumps(cut_up))
    fold_together(cut_up, stream, cut, n)
    assert image(cut_up) == image(whole)


@pytest.mark.parametrize("recover", [True, False])
def test_an_incident_and_its_end_are_the_same_together(recover):
    """Violation, a thousand quiet units, certified recovery: all of it happens in this stream."""
    stream, alone, together = Stream(1, 3600, 0.3), bank_of(recover=recover), bank_of(recover=recover)
    stream.scaled[300:], stream.known[:] = 0.0, True
    stream.scaled[:, 3] = 0.5  # the middle of a signed range
    stream.factors = Bets.of(ROWS).multiply(stream.scaled)
    changes = sum(stream.fold_one(alone, i) for i in range(3600))
    assert fold_together(together, stream, 0, 3600) == changes
    assert image(together) == image(alone)
    assert alone.violated.any() == (not recover)


def test_wealth_at_its_ceiling_is_the_same_together():
    stream, alone, together = Stream(2, 60, 0.3), bank_of(recover=False), bank_of(recover=False)
    for bank in (alone, together):
        bank.violated[:], bank.alarm[:] = True, CEILING / 2.0
    for i in range(60):
        stream.fold_one(alone, i)
    assert fold_together(together, stream, 0, 60) == 0
    assert image(together) == image(alone)
    assert alone.alarm.max() == CEILING


def test_a_run_that_changes_a_state_folds_nothing():
    stream, bank = Stream(3, 60, 0.3), bank_of(recover=True)
    before = image(bank)
    first = fold_run(bank, [stream.run(0, 60)], 0, 60)
    assert first < 60
    assert image(bank) == before
    assert fold_run(bank, [stream.run(0, first)], 0, first) == first
    assert stream.fold_one(bank, first)


def test_nothing_is_folded_of_nothing():
    assert fold_run(bank_of(recover=True), [], 3, 7) == 4


def test_runs_of_the_same_columns_are_joined():
    stream = Stream(5, 40, 0.01)
    whole = stream.run(0, 40)
    parts = [stream.run(0, 25), stream.run(25, 40)]
    joined = SliceRun.joined(parts)
    assert joined.names == [*parts[0].names, *parts[1].names]
    assert [name for name, _ in joined.by_name()] == list(joined.names)
    told = [outcomes.tolist() for _, outcomes in joined.by_name()]
    assert told[:INSTANCES] == [[i for i in outcomes if i < 25] for _, outcomes in whole.by_name()]
    one, other = bank_of(recover=False), bank_of(recover=False)
    assert fold_run(one, [whole], 0, 40) == 40
    assert [fold_run(other, [parts[0]], 0, 25), fold_run(other, [parts[1]], 25, 40)] == [25, 15]
    assert image(one) == image(other)
