"""Rows: limits on the test's scale, bets that keep wealth positive, shares of the budget."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import EVERYTHING, SEEDS, clause, contract, ragged_pairs

from paritas.contracts.catalogue import CATALOGUE, Side, Test
from paritas.contracts.model import Slice, Stage
from paritas.detectors.evidence import PairBatch
from paritas.detectors.rows import TWO_SIDED, clauses_at, make_row, share_of
from paritas.detectors.statistics import UNIT_VALUES, unit_values

JUDGED = sorted(n for n, e in CATALOGUE.items() if e.test is not Test.STATE)
QUANTILES = sorted(n for n, e in CATALOGUE.items() if "quantile" in e.options)


def row_of(statistic, limit=None, **more):
    side = {"at_least": limit} if CATALOGUE[statistic].side is Side.AT_LEAST else {"at_most": limit}
    return make_row(clause(statistic, **{**side, **more}), EVERYTHING, "all", 0.01)


def limits_of(name):
    """Limits inside the statistic's range: the whole of it, and tight ones."""
    high = min(CATALOGUE[name].hi, 3.0)
    return st.floats(1e-9, high) | st.sampled_from([0.0, 1e-6, min(1.0, high)])


@pytest.mark.parametrize("name", JUDGED)
@settings(max_examples=30)
@given(st.data())
def test_wealth_stays_positive_over_the_whole_range(name, data):
    row = row_of(name, data.draw(limits_of(name)), cap=data.draw(st.sampled_from([None, 1.0, 2.0, 5.0])))
    ends = np.array([0.0, row.tau, 1.0 if row.bounded else 1e6])
    # token bets run on the statistic's own scale, the others on the test's
    if row.entry.test is not Test.CONDITIONAL_MEAN and not row.two_sided:
        assert np.all(1.0 + np.outer(ends - row.tau, row.up) >= 0.1 - 1e-9)
    if row.bounded:
        assert np.all(1.0 - np.outer(ends - row.tau, row.down) >= 0.1 - 1e-9)
    else:
        assert not row.down.any()  # nothing bounds what a bet against "exceeded" could lose


@given(st.floats(0.5, 1.5), st.sampled_from([1.0, 2.0, 5.0]))
def test_ratio_bets_stay_positive_on_every_token(limit, cap):
    row = row_of("mean_ratio", limit, cap=cap)
    assert np.all(1.0 + np.outer(np.array([0.0, cap]) - limit, row.up) >= 0.1 - 1e-9)


@pytest.mark.parametrize("name", TWO_SIDED)
@given(limit=st.floats(0.0, 0.5))
def test_bets_on_a_signed_mean_stay_positive_both_ways(name, limit):
    row = row_of(name, limit)
    assert row.two_sided
    signed = np.array([-1.0, 1.0]) - limit
    assert np.all(1.0 + np.outer(signed, np.abs(row.up)) >= 0.1 - 1e-9)
    assert sorted(row.up) == sorted(-row.up)
    assert not row.down.any()


@pytest.mark.parametrize("name", sorted(UNIT_VALUES))
@settings(max_examples=30)
@given(ragged_pairs(), st.data())
def test_values_lie_in_the_unit_interval_on_the_tests_scale(name, pairs, data):
    options = {"cap": data.draw(st.sampled_from([None, 1.0, 2.0, 5.0]))}
    options["clip"] = (
        data.draw(st.sampled_from([None, 0.0, 0.2, 1.0, 1.5])) if "clip" in CATALOGUE[name].options else None
    )
    options["quantile"] = 0.9 if name in QUANTILES and data.draw(st.booleans()) else None
    row = row_of(name, 0.5, **options)
    values = row.scale.down(unit_values(PairBatch.of(pairs), row.clause))
    values = values[~np.isnan(values)]
    assert np.all(values >= -1e-12)
    if row.bounded:
        assert np.all(values <= 1.0 + 1e-12)


@pytest.mark.parametrize("name", JUDGED)
@given(limit=st.floats(1e-9, 1.0))
def test_the_scale_is_turned_so_that_small_is_good_and_can_be_undone(name, limit):
    row = row_of(name, limit)
    worse = limit + (0.1 if CATALOGUE[name].side is not Side.AT_LEAST else -0.1)
    if name != "ess":
        assert row.scale.down(np.array(worse)) > row.tau
        assert row.scale.up(row.tau) == pytest.approx(limit, abs=1e-12)
        assert row.limit == limit


def test_an_ess_limit_binds_the_mean_of_the_squared_ratio():
    row = row_of("ess", 0.8)
    assert (row.limit, row.tau) == (1.25, 1.25)


def test_a_quantile_limit_binds_the_share_above_it():
    row = row_of("time_to_first_token", 2.0, quantile=0.99)
    assert row.limit == row.tau == pytest.approx(0.01)
    assert row.is_quantile
    assert row.bounded
    assert row.unit == "share above 2 seconds"
    assert row_of("tv", 0.1).unit == "probability"


@pytest.mark.parametrize("name", QUANTILES)
def test_a_mean_of_unbounded_values_can_never_be_certified(name):
    row = row_of(name, 0.5)
    assert not row.bounded
    assert not row.down.any()


@pytest.mark.parametrize(
    ("name", "limit", "one_suffices"),
    [
        ("nonfinite_rate", 0.0, True),
        ("nonfinite_rate", 0.001, False),
        ("pairing_rate", 1.0, True),
        ("pairing_rate", 0.99, False),
        ("weights_lag", 3.0, True),
        ("silence", 30.0, True),
        ("tv", 0.0, True),
        ("top1_frequency", 0.0, False),
        ("gradient_bias", 0.0, False),
    ],
)
def test_which_limits_one_value_refutes(name, limit, one_suffices):
    assert row_of(name, limit).counterexample is one_suffices


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ({}, (-1.0, 1.0)),
        ({"cap": 5.0}, (-4.0, 1.0)),
        ({"clip": 0.2}, (-0.2, 1.8)),
        ({"clip": 0.0}, (0.0, 2.0)),
        ({"clip": 1.5}, (-1.5, 1.0)),
    ],
)
def test_the_range_of_the_gradient_certificate(options, ends):
    scale = row_of("gradient_bias", 0.1, **options).scale
    assert (scale.up(0.0), scale.up(1.0)) == pytest.approx(ends)


def test_clauses_of_other_stages_are_left_out():
    here, there = clause("tv", 0.1), clause("kl_k3", 0.1, stages=(Stage.CANARY,))
    both = contract(here, there)
    assert clauses_at(both, Stage.FULL) == (here,)
    assert clauses_at(both, Stage.CANARY) == (here, there)


# ---- the budget

PLAIN = st.integers(0, 3)
BY = st.lists(st.integers(1, 6), max_size=3)
STATISTICS = st.lists(st.sampled_from(sorted(CATALOGUE)), min_size=1, max_size=6)


@given(PLAIN, BY, STATISTICS)
def test_the_shares_of_all_rows_sum_to_at_most_one(plain, by, statistics):
    slices = [Slice(f"plain{i}") for i in range(plain)]
    slices += [Slice(f"by{i}", by=("k",), at_most=n) for i, n in enumerate(by)]
    clauses = [clause(s, 0.5, id=f"{s}-{i}") for i, s in enumerate(statistics)]
    whole = contract(*clauses, slices=slices)
    tested = [c for c in clauses if CATALOGUE[c.statistic].test not in (Test.STATE, Test.SUPREMUM)]
    shares = [
        share_of(whole, clauses, s, order)
        for _ in tested
        for s in slices
        for order in range(1, s.at_most + 2 if s.by else 2)
    ]
    assert all(s > 0.0 for s in shares)
    assert math.fsum(shares) <= 1.0 + 1e-12


def test_a_contract_without_tested_clauses_still_has_rows():
    only = clause("silence", 30.0)
    assert share_of(contract(only), [only], EVERYTHING, 1) == 1.0


def test_early_values_of_a_by_slice_get_more():
    by = Slice("by", by=("k",), at_most=16)
    whole = contract(clause("tv", 0.1), slices=[EVERYTHING, by])
    shares = [share_of(whole, whole.clauses, by, order) for order in (1, 2, 17)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] > 0.5 * 0.5 / 17


@given(SEEDS)
def test_slices_that_a_clause_leaves_out_give_their_share_to_nobody(seed):
    rng = np.random.default_rng(seed)
    slices = [Slice(f"s{i}") for i in range(4)]
    some = clause("tv", 0.1, slices=tuple(s.name for s in slices if rng.random() < 0.5))
    whole, restricted = contract(clause("tv", 0.1), slices=slices), contract(some, slices=slices)
    for s in slices:
        assert share_of(whole, whole.clauses, s, 1) == share_of(restricted, restricted.clauses, s, 1)
    assert replace(whole, clauses=()) == replace(restricted, clauses=())
