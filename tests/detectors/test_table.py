"""The table of a batch: every entry is what its clause says of its pair in its slice."""

import numpy as np
import pytest
from hypothesis import given, settings
from pair_factory import EVERYTHING, clause, pair, ragged_pairs

from paritas.contracts.model import Estimator, Match, Operator, Requirement, Slice
from paritas.detectors import table as module
from paritas.detectors.evidence import PairBatch
from paritas.detectors.rows import make_row
from paritas.detectors.slices import token_mask
from paritas.detectors.statistics import gradient_bias, token_bets, unit_values
from paritas.detectors.table import Table, factors, joined

LATE = Slice("late", match=Match(tokens=(Requirement("position", Operator.GTE, (2.0,)),)))
MATH = Slice("math", match=Match(labels=(Requirement("slice", Operator.IN, ("math",)),)))
CLAUSES = (
    clause("tv", 0.05),
    clause("mean_ratio", 1.002),
    clause("top1_frequency", 0.01),
    clause("kl_k3", 0.1),
    clause("pairing_rate", at_least=0.9),
    clause("gradient_bias", 0.1),
)
COLUMNS = tuple((c, s) for s in (EVERYTHING, LATE, MATH) for c in CLAUSES)


@settings(max_examples=25)
@given(ragged_pairs())
def test_every_entry_is_computed_on_its_own(pairs):
    batch = PairBatch.of(pairs)
    whole = Table.of(batch, COLUMNS, {})
    for i, (asked, declared) in enumerate(COLUMNS):
        mask = token_mask(declared.match, batch)
        row = make_row(asked, declared, declared.name, 1.0)
        census = asked.statistic == "pairing_rate"
        raw = np.ones(len(batch)) if census else unit_values(batch, asked, mask)
        growth, decline = factors(row, row.scale.down(raw))
        if asked.statistic in ("mean_ratio", "top1_frequency"):
            growth = token_bets(batch, asked, mask, row.up)
        np.testing.assert_array_equal(whole.known[:, i], ~np.isnan(raw))
        np.testing.assert_array_equal(whole.scaled[:, i], row.scale.down(raw))
        np.testing.assert_array_equal(whole.growth[:, i], growth)
        np.testing.assert_array_equal(whole.decline[:, i], decline)
        np.testing.assert_array_equal(whole.tokens[:, i], batch.counts(mask))


def test_slices_that_take_every_token_share_their_work(monkeypatch):
    made = []

    def counting(batch, asked, declared, estimator, real=module._column):
        made.append((asked.id, declared.name))
        return real(batch, asked, declared, estimator)

    monkeypatch.setattr(module, "_column", counting)
    Table.of(PairBatch.of([pair([0.1, 0.2])]), COLUMNS, {})
    assert sorted(made) == sorted((c.id, s) for c in CLAUSES for s in ("all", "late"))


def test_one_pair_in_some_columns():
    whole = Table.of(PairBatch.of([pair([0.1]), pair([-0.1, -0.2])]), COLUMNS, {})
    some = whole.at(1, np.array([0, 3]))
    np.testing.assert_array_equal(some.scaled, whole.scaled[1, [0, 3]])
    np.testing.assert_array_equal(some.growth, whole.growth[1, [0, 3]])
    np.testing.assert_array_equal(some.decline, whole.decline[1, [0, 3]])
    assert some.tokens.tolist() == [2, 2]


def test_no_columns_and_no_pairs():
    assert Table.of(PairBatch.of([pair([0.1])]), (), {}).known.shape == (1, 0)
    assert Table.of(PairBatch.of([]), COLUMNS, {}).known.shape == (0, len(COLUMNS))


@pytest.mark.parametrize(
    "estimator",
    [
        Estimator("none"),
        Estimator("tis", cap=3.0),
        Estimator("clip", clip=0.2),
        Estimator("mis", cap=2.0, low=0.5),
    ],
    ids=lambda e: e.kind,
)
def test_a_contracts_estimator_replaces_the_clauses_own(estimator):
    batch = PairBatch.of([pair([0.9, -0.9, 0.1])])
    whole = Table.of(batch, ((CLAUSES[-1], EVERYTHING),), {"gradient_bias": estimator})
    row = make_row(CLAUSES[-1], EVERYTHING, "all", 1.0, estimator=estimator)
    assert row.scale.up(float(whole.scaled[0, 0])) == pytest.approx(gradient_bias(batch, estimator)[0])
    assert 0.0 <= whole.scaled[0, 0] <= 1.0


def test_an_estimator_that_needs_advantages_cannot_tell():
    whole = Table.of(
        PairBatch.of([pair([0.1])]),
        ((CLAUSES[-1], EVERYTHING),),
        {"gradient_bias": Estimator("ppo_min", clip=0.2)},
    )
    assert not whole.known.any()


def test_bets_on_a_signed_mean_play_each_sign():
    row = make_row(clause("calibration_gap", 0.1), EVERYTHING, "all", 1.0)
    raw = np.array([0.5, -0.5, 0.0])
    growth, decline = factors(row, row.scale.down(raw))
    expected = 1.0 + np.abs(row.up) * (np.sign(row.up) * raw[:, None] - 0.1)
    np.testing.assert_allclose(growth, np.log(expected), rtol=1e-9)
    assert not decline.any()


def test_a_value_that_is_not_known_bets_nothing():
    row = make_row(CLAUSES[0], EVERYTHING, "all", 1.0)
    growth, decline = factors(row, np.array([np.nan, row.tau]))
    assert not growth.any()
    assert not decline.any()


def test_a_group_is_the_mean_of_its_members_and_token_bets_multiply():
    batch = PairBatch.of([pair([0.1]), pair([-0.5, -0.7])])
    whole = Table.of(batch, COLUMNS, {})
    rows = [make_row(c, s, s.name, 1.0) for c, s in COLUMNS[:2]]
    parts = [[whole.at(place, np.array([i])) for place in (0, 1)] for i in (0, 1)]
    got = joined(rows, parts)
    np.testing.assert_allclose(got.scaled, whole.scaled[:, :2].mean(axis=0))
    np.testing.assert_allclose(got.growth[0], factors(rows[0], got.scaled[:1])[0][0])
    np.testing.assert_allclose(got.growth[1], whole.growth[:, 1].sum(axis=0))
    np.testing.assert_allclose(got.decline[1], factors(rows[1], got.scaled[1:])[1][0])
    assert got.tokens.tolist() == [3, 3]
