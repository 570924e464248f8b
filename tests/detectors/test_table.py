"""The table of a batch: what was measured, as bets; and what a sequence without a partner tells."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from pair_factory import EVERYTHING, clause, pair, ragged_pairs

from paritas.contracts.model import Match, Operator, Requirement, Slice
from paritas.detectors.evidence import PairBatch
from paritas.detectors.measures import Columns, measure
from paritas.detectors.sequential import CEILING
from paritas.detectors.table import Table, factors

LATE = Slice("late", match=Match(tokens=(Requirement("position", Operator.GTE, (2.0,)),)))
CLAUSES = (
    clause("tv", 0.05),
    clause("mean_ratio", 1.002),
    clause("top1_frequency", 0.01),
    clause("kl_k3", 0.1),
    clause("pairing_rate", at_least=0.9),
)
COLUMNS = Columns.of([(c, s) for s in (EVERYTHING, LATE) for c in CLAUSES], {})


def table_of(pairs, columns=COLUMNS):
    return Table.of(measure(PairBatch.of(pairs), columns), columns)


@settings(max_examples=25)
@given(ragged_pairs())
def test_every_entry_is_the_bet_of_its_measure(pairs):
    whole, told = table_of(pairs), measure(PairBatch.of(pairs), COLUMNS)
    for i, row in enumerate(COLUMNS.rows):
        known = ~np.isnan(told.scaled[:, i])
        growth, decline = np.exp(factors(row, told.scaled[:, i]))
        if i in COLUMNS.conditional:
            growth = told.on_tokens[:, :, COLUMNS.conditional.index(i)]
        np.testing.assert_array_equal(whole.known[:-1, i], known)
        np.testing.assert_array_equal(whole.scaled[:-1, i], np.where(known, told.scaled[:, i], 0.0))
        np.testing.assert_allclose(whole.factors[:-1, 0, :, i], growth, rtol=1e-12)
        np.testing.assert_allclose(whole.factors[:-1, 1, :, i], decline, rtol=1e-12)
        np.testing.assert_array_equal(whole.tokens[:-1, i], told.tokens[:, i])


def test_a_sequence_without_a_partner_tells_that_it_did_not_pair():
    whole = table_of([pair([0.1])])
    pairing = [row.clause.statistic == "pairing_rate" for row in COLUMNS.rows]
    assert whole.known[-1].tolist() == pairing
    row = COLUMNS.rows[pairing.index(True)]
    np.testing.assert_array_equal(whole.scaled[-1], np.where(pairing, row.scale.down(np.array(0.0)), 0.0))
    assert not whole.tokens[-1].any()
    assert not whole.without[-1].any()


def test_no_columns_and_no_pairs():
    assert table_of([pair([0.1])], Columns.of((), {})).known.shape == (2, 0)
    assert table_of([]).known.shape == (1, len(COLUMNS.rows))


def groups_of(pairs, *sizes):
    starts = np.cumsum([0, *sizes[:-1]])
    whole = table_of(pairs)
    return whole, whole.grouped(np.arange(len(pairs)), starts, COLUMNS)


def test_a_group_is_the_mean_of_its_members_and_token_bets_multiply():
    whole, got = groups_of([pair([0.1]), pair([-0.5, -0.7]), pair([0.3])], 2, 1)
    for i, row in enumerate(COLUMNS.rows):
        known = whole.known[:2, i]
        assert got.known[0, i] == known.any()
        mean = whole.scaled[:2, i][known].mean() if known.any() else 0.0
        assert got.scaled[0, i] == pytest.approx(mean)
        growth, decline = np.exp(factors(row, np.array([mean if known.any() else np.nan])))
        if i in COLUMNS.conditional:
            growth = whole.factors[0, 0, :, i] * whole.factors[1, 0, :, i]
        np.testing.assert_allclose(got.factors[0, 0, :, i], np.ravel(growth))
        np.testing.assert_allclose(got.factors[0, 1, :, i], decline[0])
    np.testing.assert_array_equal(got.tokens[0], (whole.tokens * whole.known)[:2].sum(axis=0))


def test_a_group_of_one_is_its_member():
    whole, got = groups_of([pair([0.1]), pair([-0.5, -0.7]), pair([0.3])], 2, 1)
    for name in ("known", "scaled", "factors", "without"):
        np.testing.assert_array_equal(getattr(got, name)[1], getattr(whole, name)[2])


def test_members_that_cannot_tell_are_counted_and_left_out():
    late = COLUMNS.place["tv", "late"]
    whole, got = groups_of([pair([0.1]), pair([-0.5, -0.7, -0.9])], 2)
    assert whole.known[:2, late].tolist() == [False, True]
    assert (got.without[0, late], got.tokens[0, late]) == (1, 1)
    assert got.scaled[0, late] == whole.scaled[1, late]


def test_token_bets_of_a_group_that_lose_everything_and_win_everything_stay_numbers():
    whole, _ = groups_of([pair([0.0])] * 4, 4)
    bets = whole.factors.copy()
    bets[:4, 0, :, COLUMNS.conditional[0]] = np.array([CEILING, CEILING, CEILING, 0.0])[:, None]
    got = replace(whole, factors=bets).grouped(np.arange(4), np.array([0, 3]), COLUMNS)
    assert (got.factors[:, 0, :, COLUMNS.conditional[0]] == np.array([[CEILING], [0.0]])).all()
    lost = replace(whole, factors=bets).grouped(np.arange(4), np.array([0]), COLUMNS)
    assert (lost.factors[0, 0, :, COLUMNS.conditional[0]] == 0.0).all()
