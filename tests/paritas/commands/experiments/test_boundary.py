"""Streams at the limit: means are exact, whichever way a sequence is drawn."""

import numpy as np
import pytest

from paritas.commands.experiments.boundary import KINDS, NOT_SIMULATED, TOKENS, outcomes_of, streams
from paritas.commands.experiments.false_alarms import LEVELS
from paritas.commands.experiments.fault_streams import faults
from paritas.commands.experiments.result import Setting
from paritas.commands.experiments.simulation import Run, simulate
from paritas.commands.experiments.unit_choice import unit_table
from paritas.contracts.catalogue import CATALOGUE, Test
from paritas.contracts.model import Slice
from paritas.detectors.rows import make_row


@pytest.fixture(scope="module")
def told():
    return outcomes_of()


def test_every_possible_sequence_is_there_once(told):
    assert told.probability.sum() == pytest.approx(1.0)
    assert len(told.probability) == len(KINDS) * (TOKENS + 1) * (TOKENS + 2) // 2


def test_every_statistic_of_the_catalogue_is_put_at_its_limit_or_cannot_alarm_falsely(told):
    simulated = {stream.clause.statistic for stream in streams(told)}
    assert simulated | set(NOT_SIMULATED) == set(CATALOGUE)
    assert not simulated & set(NOT_SIMULATED)
    for name, why in NOT_SIMULATED.items():
        assert CATALOGUE[name].test in (Test.SUPREMUM, Test.STATE)
        assert why


def test_every_limit_is_the_mean_of_what_the_clause_sees(told):
    for stream in streams(told):
        row = make_row(stream.clause, Slice("all"), "all", 0.05)
        assert row.tau > 0.0
        if stream.values is not None and stream.clause.id != "calibration_gap":
            mean = told.mean(row.scale.down(stream.values))
            assert mean == pytest.approx(row.tau, rel=2e-3)
            assert mean <= row.tau + 1e-12


def test_values_with_a_law_of_their_own_have_the_limit_as_their_mean(told):
    rng = np.random.default_rng(0)
    for stream in streams(told):
        if stream.values is None:
            row = make_row(stream.clause, Slice("all"), "all", 0.05)
            assert row.scale.down(stream.drawn(rng, 400_000)).mean() == pytest.approx(row.tau, rel=0.05)


def test_drawn_sequences_have_the_enumerated_law(told):
    rng, tv = np.random.default_rng(1), streams(told)[0].values
    alone = tv[told.draw(rng, 200_000)]
    grouped = tv[told.draw_alike(rng, 50_000, 4)]
    assert alone.mean() == pytest.approx(told.mean(tv), rel=0.02)
    assert grouped.mean() == pytest.approx(told.mean(tv), rel=0.02)
    assert np.corrcoef(grouped[0], grouped[1])[0, 1] > 0.3


def test_streams_beyond_their_limits_do_alarm(told):
    """The same simulation finds a fault, so that its silence at the limit means something."""
    halved = [
        type(s)(s.clause, None if s.values is None else np.minimum(2.5 * s.values, 1.0))
        for s in streams(told)
        if s.clause.id in ("tv", "ratio_tail", "kl_k3")
    ]
    assert simulate(told, halved, Run(60, 300), 1).any_alarm() > 0.9


@pytest.mark.slow
def test_streams_at_their_limits_alarm_no_more_often_than_declared(told):
    peaks = simulate(told, streams(told), Run(400, 100), 2)
    for level in LEVELS:
        assert (peaks.alarms(level) <= level).all()
    assert peaks.any_alarm() <= 0.05


def test_replicas_share_the_budget_with_all_traffic(told):
    some = streams(told)[:2]
    peaks = simulate(told, some, Run(5, 12, replicas=4), 2)
    assert len(peaks.rows) == 2 * 5
    assert sum(row.alpha for row in peaks.rows) <= 0.05
    assert peaks.alarm.shape == (10, 5)


@pytest.mark.slow
def test_dependent_units_break_the_promise_and_groups_keep_it(told):
    table = unit_table(told, Setting(seed=1))
    shares = dict(zip(table.column("unit"), table.column("any alarm"), strict=True))
    assert shares["groups of 8, each sequence a unit"] > 0.05 > shares["groups of 8, the group a unit"]


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_allowed_streams_never_exceed_the_limit_on_average(fault):
    rng = np.random.default_rng(5)
    for name, draw in fault.allowed.items():
        values = draw(rng, (600, 3000))
        error = values.std(axis=1) / np.sqrt(3000)  # of the mean of each unit over its streams
        assert (values.mean(axis=1) <= fault.limit + 5.0 * error + 1e-9).all(), name
        assert values.mean() <= fault.limit + 4.0 * values.std() / np.sqrt(values.size), name


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_a_fault_exceeds_the_limit_and_health_does_not(fault):
    rng = np.random.default_rng(6)
    assert fault.healthy(rng, (500, 400)).mean() < fault.limit < fault.faulty(rng, (500, 400)).mean()
