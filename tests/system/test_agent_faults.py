"""The agent under faults: accepted = delivered + dropped + queued, and what was sent arrives once."""

import sys

import pytest
from system.agent_faults import Campaign, KafkaCampaign
from system.fault_places import EmbeddedPlace, KafkaPlace
from system.fault_rounds import campaigns


def run(campaign, seed, rounds, capsys):
    """Go through the rounds of one campaign, and say what happened."""
    try:
        for _ in range(rounds):
            campaign.round()
        told, found = campaign.finish()
    finally:
        campaign.agent.end()
    with capsys.disabled():
        sys.stdout.write(
            f"\nseed {seed}, {rounds} rounds: {dict(campaign.faults)}; {told.accepted:.0f} accepted = {told.delivered:.0f} "
            f"delivered + {told.dropped} dropped; {len(campaign.load.acknowledged)} acknowledged, "
            f"{found.repeated} sent twice\n"
        )


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "rounds"), campaigns())
def test_an_embedded_log_gets_exactly_what_was_sent(tmp_path, seed, rounds, capsys):
    run(Campaign(tmp_path, EmbeddedPlace(tmp_path / "log"), seed), seed, rounds, capsys)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "rounds"), campaigns(share=0.5))  # the whole chain has the other half
def test_kafka_gets_exactly_what_was_sent(tmp_path, seed, rounds, capsys, serving_broker):
    run(KafkaCampaign(tmp_path, KafkaPlace(serving_broker, f"faults-{seed}"), seed), seed, rounds, capsys)
