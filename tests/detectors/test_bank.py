"""The bank: every row is an explicit recursion on numbers, wherever the stream is cut."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import EVERYTHING, NS, SEEDS, clause

from paritas.contracts.model import Family
from paritas.detectors.bank import QUIET_UNITS, RECOVERY_LOG_THRESHOLD, Bank
from paritas.detectors.rows import make_row
from paritas.detectors.sequential import CEILING, FLOOR, LOG_CEILING, log_mean
from paritas.detectors.table import factors

PERIOD_NS = 1000 * NS
ARRAYS = ("units", "tokens", "without", "total", "spread", "violated", "peak", "last_ns", "since_start")
WEALTH = ("log_alarm", "log_pass", "log_back", "log_over")


def bank_of(*rows, recover=True):
    bank = Bank(period_ns=PERIOD_NS, recover=recover)
    for row in rows:
        bank.add(row)
    return bank


def row_of(statistic="tv", limit=0.05, alpha=0.01, **more):
    return make_row(clause(statistic, limit, **more), EVERYTHING, "all", alpha)


def fold(bank, row, value, event_ns=0, index=0):
    y = row.scale.down(np.array([value]))
    return bank.fold(np.array([index]), y, *factors(row, y), event_ns)


def changes(bank, row, values, start=0):
    """Fold values a second apart; return [(unit, what happened)]."""
    told = []
    for t, value in enumerate(values, start=start):
        crossed = fold(bank, row, value, t * NS)
        told += [(t, "violated")] * crossed.violated.size + [(t, "recovered")] * crossed.recovered.size
    return told


class Scalar:
    """One row, written with numbers in the linear domain, one bet at a time."""

    def __init__(self, row, *, recover=True):
        self.row, self.recover = row, recover
        self.units = self.total = self.spread = 0
        self.violated, self.last, self.peak = False, 0, -math.inf
        self.fresh()
        self.passing, self.over = [1.0] * 10, [1.0] * 10

    def fresh(self):
        self.alarm, self.back, self.since = [0.0] * 10, [0.0] * 10, 0

    def fold(self, y, event_ns):
        mean = min(max((0.5 + self.total) / (self.units + 1), 0.0), 1.0)
        self.spread += (y - mean) ** 2
        self.total, self.units, self.since = self.total + y, self.units + 1, self.since + 1
        elapsed = max(event_ns - self.last, 0) / PERIOD_NS if self.since > 1 else 0.0
        self.last = max(self.last, event_ns)
        mass = 0.25 / (self.since * (self.since + 1)) + 0.25 * min(elapsed, 1.0) + 0.5 * (self.since == 1)
        up = [1.0 + b * (y - self.row.tau) for b in self.row.up]
        down = [1.0 - b * (y - self.row.tau) for b in self.row.down]
        self.alarm = [(r + mass) * f for r, f in zip(self.alarm, up, strict=True)]
        self.passing = [r * f for r, f in zip(self.passing, down, strict=True)]
        self.over = [r * f for r, f in zip(self.over, up, strict=True)]
        wealth = sum(self.alarm) / 10
        self.peak = max(self.peak, wealth)
        fresh = not self.violated and wealth >= 1.0 / self.row.alpha
        if self.violated and self.recover:
            self.back = [(r + 1.0) * f for r, f in zip(self.back, down, strict=True)]
            if sum(self.back) / 10 >= 1000.0:
                self.recovered()
                return "recovered"
        self.violated |= fresh
        return "violated" if fresh else ""

    def recovered(self):
        self.violated, self.peak = False, 0.0
        self.fresh()
        self.units = self.total = self.spread = 0
        self.passing, self.over = [1.0] * 10, [1.0] * 10


STREAMS = st.builds(
    lambda seed, lengths: np.concatenate(
        [
            np.random.default_rng(seed + i).beta(0.6, 0.6 / mean, n)
            for i, (n, mean) in enumerate(zip(lengths, (0.05, 0.3, 0.01), strict=True))
        ]
    ),
    st.integers(0, 2**20),
    st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 500)),
)


@settings(max_examples=15)
@given(STREAMS, st.booleans(), st.integers(1, 997))
def test_a_row_is_an_explicit_recursion(values, recover, stride):
    row = row_of()
    bank, scalar = bank_of(row, recover=recover), Scalar(row, recover=recover)
    for t, value in enumerate(values):
        event_ns = stride * t % 997 * NS  # time goes back now and then
        crossed = fold(bank, row, value, event_ns)
        told = "violated" if crossed.violated.size else "recovered" if crossed.recovered.size else ""
        assert told == scalar.fold(value, event_ns)
    with np.errstate(divide="ignore"):
        expected = [np.log(getattr(scalar, name)) for name in ("alarm", "passing", "back", "over")]
    floor = {"log_pass": -LOG_CEILING, "log_over": -LOG_CEILING}  # so low that it is never earned back
    for name, column in zip(WEALTH, expected, strict=True):
        wanted = np.maximum(column, floor.get(name, -np.inf))
        np.testing.assert_allclose(getattr(bank, name)[0], wanted, rtol=1e-9, atol=1e-9, err_msg=name)
    sums = [(bank.units[0], bank.total[0], bank.spread[0]), (scalar.units, scalar.total, scalar.spread)]
    assert sums[0] == pytest.approx(sums[1])


def test_there_are_recoveries_in_the_streams_above():
    values = np.concatenate([np.full(60, 0.3), np.zeros(300)])
    assert [what for _, what in changes(bank_of(row_of()), row_of(), values)] == ["violated", "recovered"]


@st.composite
def work(draw):
    """Units for three rows: rows touched, values, times that sometimes go back."""
    rng = np.random.default_rng(draw(SEEDS))
    units = []
    for _ in range(draw(st.integers(0, 60))):
        rows = np.flatnonzero(rng.random(3) < 0.7)
        if rows.size:
            units.append((rows, rng.beta(0.3, 2.0, rows.size), int(rng.integers(0, 2000) * NS)))
    return units


def fold_all(bank, rows, units):
    for touched, values, event_ns in units:
        told = [factors(rows[i], np.array([v])) for i, v in zip(touched, values, strict=True)]
        growth, decline = (np.concatenate(side) for side in zip(*told, strict=True))
        bank.fold(touched, values, growth, decline, event_ns)
    return bank


def image(bank):
    return {name: getattr(bank, name).tobytes() for name in (*ARRAYS, *WEALTH)}


ROWS = (row_of(limit=0.05), row_of(limit=0.2, alpha=0.1), row_of("nonfinite_rate", 0.0))


@settings(max_examples=40)
@given(work(), st.integers(0, 60))
def test_a_restart_anywhere_changes_no_bit(units, cut):
    whole = fold_all(bank_of(*ROWS), ROWS, units)
    first = fold_all(bank_of(*ROWS), ROWS, units[:cut])
    assert image(fold_all(pickle.loads(pickle.dumps(first)), ROWS, units[cut:])) == image(whole)


@settings(max_examples=40)
@given(work())
def test_rows_do_not_feel_each_other(units):
    together = fold_all(bank_of(*ROWS), ROWS, units)
    for i, row in enumerate(ROWS):
        own = [(np.array([0]), v[t == i], ns) for t, v, ns in units if i in t]
        alone = fold_all(bank_of(row), (row,), own)
        for name in (*ARRAYS, *WEALTH):
            assert getattr(alone, name)[0].tobytes() == getattr(together, name)[i].tobytes(), name


def test_a_row_added_late_starts_from_nothing():
    bank = fold_all(bank_of(*ROWS[:2]), ROWS, [(np.array([0, 1]), np.array([0.5, 0.5]), NS)] * 9)
    before = {name: getattr(bank, name)[:2].tobytes() for name in (*ARRAYS, *WEALTH)}
    assert bank.add(ROWS[2]) == 2
    assert len(bank) == 3
    assert {name: getattr(bank, name)[:2].tobytes() for name in (*ARRAYS, *WEALTH)} == before
    fresh = bank_of(ROWS[2])
    for name in (*ARRAYS, *WEALTH):
        assert getattr(bank, name)[2].tobytes() == getattr(fresh, name)[0].tobytes(), name


def test_a_violation_is_told_once_and_latched():
    row = row_of()
    bank = bank_of(row, recover=False)
    told = changes(bank, row, np.concatenate([np.full(50, 0.4), np.zeros(3000)]))
    assert [what for _, what in told] == ["violated"]
    assert bank.violated.tolist() == [True]
    assert bank.peak[0] >= -math.log(row.alpha)


def test_recovery_takes_its_certificate_and_closes_the_incident_for_good():
    """A long, loud violation leaves wealth far above the threshold; that wealth must not re-open it."""
    row = row_of()
    bank = bank_of(row)
    told = changes(bank, row, np.concatenate([np.full(400, 0.5), np.zeros(3000)]))
    assert [what for _, what in told] == ["violated", "recovered"]
    quiet = told[1][0] - 400
    fewest = RECOVERY_LOG_THRESHOLD / np.log1p(row.down[-1] * row.tau)
    assert fewest / 2 < quiet < 3 * fewest


def test_after_recovery_everything_starts_afresh():
    row = row_of()
    bank = bank_of(row)
    values = np.concatenate([np.full(60, 0.5), np.zeros(3000)])
    _, (recovered, _) = changes(bank, row, values)
    again = bank_of(row)
    changes(again, row, np.concatenate([np.full(60, 0.5), np.zeros(recovered - 59)]))
    assert not again.violated[0]
    assert (again.units[0], again.total[0], again.spread[0], again.since_start[0]) == (0, 0.0, 0.0, 0)
    assert [what for _, what in changes(again, row, np.full(60, 0.5), start=5000)] == ["violated"]


def test_values_at_the_limit_do_not_look_recovered():
    row = row_of()
    bank = bank_of(row)
    rng = np.random.default_rng(3)
    told = changes(bank, row, np.concatenate([np.full(60, 0.4), rng.binomial(1, 0.05, 600)]))
    assert [what for _, what in told] == ["violated"]


def test_one_value_above_refutes_a_limit_of_zero_and_nothing_else_does():
    row = row_of("nonfinite_rate", 0.0)
    assert row.counterexample
    told = changes(bank_of(row), row, [0.0] * 500 + [1e-9, 0.0, 1.0])
    assert told == [(500, "violated")]


def test_a_supremum_is_refuted_by_one_value_above_it():
    row = row_of("silence", 30.0)
    assert changes(bank_of(row), row, [1.0, 30.0, 29.0, 30.5]) == [(3, "violated")]


def test_a_new_certificate_keeps_the_monitor():
    row = row_of()
    bank = bank_of(row)
    changes(bank, row, np.full(6, 0.1))
    alarm, peak = bank.log_alarm.copy(), bank.peak.copy()
    bank.restart_certificate(0)
    assert (bank.units[0], bank.total[0], bank.spread[0]) == (0, 0.0, 0.0)
    assert not bank.log_pass.any()
    assert not bank.log_over.any()
    np.testing.assert_array_equal(bank.log_alarm, alarm)
    np.testing.assert_array_equal(bank.peak, peak)


def test_evidence_of_one_row_is_the_mean_of_its_bets():
    row = row_of()
    bank = bank_of(row_of("nonfinite_rate", 0.0), row)
    for value in (0.3, 0.2, 0.0):
        fold(bank, row, value, index=1)
    for name in ("alarm", "passing", "back", "over"):
        wealth = getattr(bank, name)[1].mean()
        assert np.exp(bank.evidence(name, 1)) == pytest.approx(wealth)
    assert bank.evidence("alarm", 0) == -np.inf


def test_wealth_is_cut_at_both_ends_after_every_unit():
    row = row_of()
    bank = bank_of(row, recover=False)
    changes(bank, row, np.zeros(50))
    bank.over[0], bank.passing[0] = FLOOR, CEILING
    fold(bank, row, 0.0)
    assert (bank.over[0] == FLOOR).all()
    assert (bank.passing[0] == CEILING).all()
    fold(bank, row, 1.0)
    assert (bank.over[0] > FLOOR).all()
    assert np.abs([bank.log_over[0], bank.log_pass[0]]).max() <= LOG_CEILING


def test_values_beyond_every_bound_stay_readable():
    row = row_of("kl_k3", 0.001)
    bank = bank_of(row)
    changes(bank, row, [1e20] * 300 + [0.0] * 10)
    assert bank.violated[0]
    assert np.isfinite(bank.log_alarm).all()
    assert float(log_mean(bank.log_over)[0]) <= 700.0


def test_a_row_without_a_reverse_test_recovers_by_a_thousand_quiet_units():
    """An ongoing fault goes on alarming and keeps it violated; silence closes it."""
    row = row_of("kl_k3", 0.01)
    bank = bank_of(row)
    ill, well = np.full(3000, 0.2), np.zeros(1200)
    told = changes(bank, row, np.concatenate([ill, well, ill[:300]]))
    assert [what for _, what in told] == ["violated", "recovered", "violated"]
    assert 3000 + 900 < told[1][0] < 3000 + 1000


def test_a_counterexample_recovers_by_a_thousand_clean_units():
    row = row_of("nonfinite_rate", 0.0, family=Family.OBSERVABILITY)
    told = changes(bank_of(row), row, np.concatenate([[0.5], np.zeros(500), [0.5], np.zeros(1100)]))
    assert [what for _, what in told] == ["violated", "recovered"]
    assert told[1][0] == 501 + QUIET_UNITS
