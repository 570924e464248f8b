"""The whole chain under faults: the verdicts are those of a run in which nothing happened."""

import os
import sys
from collections import Counter
from contextlib import contextmanager

import pytest

pytest.importorskip("kafka", reason="kafka-python is not installed (pip install 'paritas[kafka]')")

from system.detector_faults import ChainCampaign
from system.fault_places import KafkaPlace
from system.fault_rounds import OUTAGE_S, SEED, campaigns
from system.fault_volume import volume

from paritas.records import State

HOW = ("pause", "kill")[SEED % 2]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def small(tmp_path):
    """A volume that can be filled; None where none can be mounted, and then no disk is full."""
    if os.geteuid() != 0:
        yield None
        return
    with volume(tmp_path / "small", size="48m") as why_not:
        yield None if why_not else tmp_path / "small"


@contextmanager
def campaign_of(folder, place, seed, small=None):
    campaign = ChainCampaign(folder, place, seed, small)
    campaign.control.start()
    try:
        yield campaign
    finally:
        campaign.end()


def say(campaign, name, capsys):
    """Finish, and say what happened."""
    told, found, judged = campaign.finish()
    states = dict(Counter(str(verdict.state) for verdict in judged.verdicts))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{name}: {dict(campaign.faults)}; detector killed {sum(campaign.killer.kills.values())} times "
            f"{dict(campaign.killer.kills)}, without a broker {campaign.killer.waited_for_broker}; "
            f"{told.accepted:.0f} accepted = {told.delivered:.0f} delivered + {told.dropped} dropped, "
            f"{campaign.in_memory:.0f} more by way of memory alone; "
            f"{len(campaign.load.acknowledged)} acknowledged, {found.repeated} sent twice; "
            f"{judged.reasons}, {len(judged.escalations)} escalations, {states}, {len(campaign.edges)} on the edge\n"
        )
    return judged


@pytest.mark.parametrize(("seed", "rounds"), campaigns(share=0.5))
def test_a_chain_under_faults_says_what_an_undisturbed_one_says(
    tmp_path, seed, rounds, capsys, serving_broker, small
):
    place = KafkaPlace(serving_broker, f"chain-{seed}")
    with campaign_of(tmp_path, place, seed, small) as campaign:
        for _ in range(rounds):
            campaign.round()
        judged = say(campaign, f"seed {seed}, {rounds} rounds", capsys)
    assert State.VIOLATED in {v.state for v in judged.verdicts}
    assert judged.escalations


@pytest.mark.thorough
def test_a_broker_gone_for_long_costs_nothing(tmp_path, capsys, serving_broker):
    place = KafkaPlace(serving_broker, "long-outage")
    with campaign_of(tmp_path, place, SEED) as campaign:
        try:
            before, told = campaign.outage(HOW, OUTAGE_S)
        finally:
            serving_broker.resume() if HOW == "pause" else serving_broker.start()
        assert told.accepted > before.accepted
        assert told.queued > 0
        judged = say(campaign, f"broker away ({HOW}) for {OUTAGE_S:.0f} s", capsys)
    assert judged.escalations
