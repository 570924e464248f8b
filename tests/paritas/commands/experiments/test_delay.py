"""Delay: peers are river's own, tuned to the target, and the comparison counts as it says."""

import numpy as np
import pytest
from river import drift

from paritas.commands.experiments.delay import TARGET, WAYS, ours, run
from paritas.commands.experiments.fault_streams import faults
from paritas.commands.experiments.peers import Adwin, Scored, peers
from paritas.commands.experiments.result import Setting

FAULT = faults()[0]


def null(streams=40, units=300, seed=0):
    return FAULT.allowed["at the limit"](np.random.default_rng(seed), (units, streams))


def path(name):
    return next(peer for peer in peers(FAULT.limit) if peer.name.startswith(name))


@pytest.mark.parametrize("name", ["ADWIN", "PageHinkley", "CUSUM", "z-window 50"])
def test_a_peer_is_tuned_to_the_target(name):
    values = null()
    tuning = path(name).tune(values, TARGET)
    share = (path(name).alarms(values)(tuning.setting) < len(values)).mean()
    assert share == tuning.share(tuning.setting) <= TARGET


def test_page_hinkley_alarms_where_rivers_does():
    values, threshold = null(6), 0.05
    peer = path("PageHinkley")
    for column, place in zip(values.T, peer.alarms(values)(np.nextafter(threshold, 1.0)), strict=True):
        detector = drift.PageHinkley(delta=0.05 * FAULT.limit, threshold=threshold, mode="up")
        first = len(column)
        for i, value in enumerate(column.tolist()):
            detector.update(value)
            if detector.drift_detected:
                first = i
                break
        assert place == first


def test_kswin_is_rivers_p_value():
    values = null(1, 130)
    score = path("KSWIN").score(values)[:, 0]
    detector = drift.KSWIN(alpha=1e-300, seed=0)
    for value in values[:, 0].tolist():
        detector.update(value)
    assert score[-1] == pytest.approx(-np.log10(detector.p_value))
    assert np.isneginf(score[:99]).all()


def test_a_stricter_adwin_alarms_later_or_never():
    values = np.concatenate([null(5), 4.0 * null(5, seed=1)])
    first = Adwin("adwin", 0.05).alarms(values)
    assert (first(1.0) <= first(20.0)).all()


def test_ours_is_a_row_of_the_bank_at_the_declared_level():
    values = np.concatenate([null(5, 200), 3.0 * null(5, 200, seed=1)])
    detector = ours(FAULT.limit, 400)
    assert isinstance(detector, Scored)
    place = detector.alarms(values)(1.0 / TARGET)
    assert ((place >= 200) & (place < 260)).all()


@pytest.fixture(scope="module")
def quick():
    return run(Setting(seed=1, is_quick=True))


@pytest.mark.slow
def test_the_quick_table_has_every_detector_both_ways(quick):
    table, ratios, floors = quick.tables
    assert [row[:2] for row in floors.rows] == [row[:2] for row in ratios.rows]
    assert table.columns == (
        "fault",
        "tuned on",
        "detector",
        "false alarms",
        "early",
        "median",
        "90 %",
        "found",
    )
    assert len(table.rows) == 2 * (2 + 1 + 3 + 3 + 3)
    assert [row[1] for row in ratios.rows] == list(WAYS)
    others = [row for row in table.rows if not str(row[2]).startswith("ours, declared")]
    assert all(row[3] <= TARGET for row in others)


@pytest.mark.slow
def test_the_goal_is_within_reach_where_the_oracle_is_not_later(quick):
    """What is tuned on every allowed stream must be silent at the limit, as the second oracle is."""
    for row in quick.table("floors").rows:
        _, way, goal, both, at_limit, bet, _, best, within = row
        assert goal == pytest.approx(0.5 * best)
        assert within == (goal >= (both if way == "its law" else at_limit))
        assert both <= at_limit
        assert both <= bet
    for claim, row in zip(quick.claims, quick.table("floors").rows, strict=True):
        least = row[3] if row[1] == "its law" else row[4]
        assert claim.goal == f"<= 0.5; oracle {least / row[7]:.2f}"


@pytest.mark.slow
def test_a_missed_goal_is_told_and_is_no_broken_promise(quick):
    assert quick.exit_code == 0
    assert all(not claim.is_promise for claim in quick.claims)
    ratios = quick.table("ratios").column("ratio")
    for claim, ratio in zip(quick.claims, ratios, strict=True):
        assert f"{ratio:.2f}" in claim.measured
        assert claim.holds == (ratio <= 0.5)
