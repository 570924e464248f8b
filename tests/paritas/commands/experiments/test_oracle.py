"""Oracles: exact log-likelihood ratios, as silent as told, and never later than a peer that knows less."""

import numpy as np
import pytest

from paritas.commands.experiments.fault_streams import CHANGE, LogNormal, Rate, faults
from paritas.commands.experiments.oracle import (
    AT_LIMIT,
    BEST_BET,
    BOTH_LAWS,
    best_bet,
    oracle_delays,
    oracles,
)
from paritas.commands.experiments.peers import peers

FAULTS = faults()


@pytest.mark.parametrize("law", [LogNormal(0.0085, 0.026), LogNormal(0.0251, 0.075)])
def test_the_density_of_a_log_normal_is_that_of_its_draws(law):
    values = law(np.random.default_rng(0), (1, 400_000))
    assert values.mean() == pytest.approx(law.mean, rel=0.01)
    assert np.quantile(values, 0.99) == pytest.approx(law.p99, rel=0.02)
    logs = np.linspace(-12.0, 2.0, 20_001)
    assert np.trapezoid(np.exp(law.log_density(np.exp(logs))), logs) == pytest.approx(1.0, abs=1e-6)


def test_the_probabilities_of_a_rate_sum_to_one():
    assert np.exp(Rate(0.01).log_density(np.array([0.0, 1.0]))).tolist() == pytest.approx([0.99, 0.01])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_under_the_law_it_must_be_silent_on_wealth_is_fair_and_after_the_change_it_grows(fault):
    """A likelihood ratio has mean one before the change; so has the bet, exactly at the limit."""
    rng, one = np.random.default_rng(1), (1, 400_000)
    for before, name in ((fault.healthy, BOTH_LAWS), (fault.at_limit, AT_LIMIT)):
        values = before(rng, one)
        ratio = np.exp(fault.faulty.log_density(values) - before.log_density(values))
        assert ratio.mean() == pytest.approx(1.0, abs=5.0 * ratio.std() / np.sqrt(ratio.size)), name
    values = fault.faulty(rng, one)
    assert np.log1p(best_bet(fault) * (values - fault.limit)).mean() > 0.0
    assert 0.0 < best_bet(fault) < 1.0 / fault.limit


@pytest.mark.parametrize("fault", FAULTS[:2], ids=lambda fault: fault.name)
def test_less_told_is_later_and_no_peer_on_the_same_law_is_sooner(fault):
    rng = np.random.default_rng(2)
    null, target = (600, 400), 0.05
    changed = fault.changed(rng, 100, 300)
    told = oracle_delays(fault, changed, null, target=target, rng=rng)
    assert list(told) == [BOTH_LAWS, AT_LIMIT, BEST_BET]
    assert told[BOTH_LAWS] <= told[AT_LIMIT] <= 1.2 * told[BEST_BET]
    healthy = fault.healthy(rng, null)
    for peer in peers(fault.limit):
        if peer.name.startswith(("CUSUM", "z-window", "PageHinkley")):
            place = peer.alarms(changed)(peer.tune(healthy, target).setting)
            late = np.where(place < len(changed), place - CHANGE + 1.0, np.inf)[place >= CHANGE]
            assert np.median(late) >= 0.9 * told[BOTH_LAWS], peer.name


def test_an_oracle_keeps_the_target_where_it_must_be_silent():
    oracle = oracles(FAULTS[0])[1]
    null = oracle.silent_on(np.random.default_rng(3), (400, 200))
    tuning = oracle.detector.tune(null, 0.05)
    assert (
        (oracle.detector.alarms(null)(tuning.setting) < len(null)).mean()
        == tuning.share(tuning.setting)
        <= 0.05
    )
