"""The agent under faults: accepted = delivered + dropped + queued, and what was sent arrives once.

``PARITAS_FAULT_ROUNDS`` sets the number of rounds, ``PARITAS_FAULT_SEED`` the first seed.
"""

import os
import sys

import pytest
from system.agent_faults import Campaign, EmbeddedPlace, KafkaCampaign, KafkaPlace

ROUNDS = int(os.environ.get("PARITAS_FAULT_ROUNDS", "7"))
SEED = int(os.environ.get("PARITAS_FAULT_SEED", "1"))
ROUNDS_A_CAMPAIGN = 7  # each fault may happen to what another left behind


def seeds():
    return range(SEED, SEED + max(1, round(ROUNDS / ROUNDS_A_CAMPAIGN)))


def run(campaign, seed, capsys):
    """Go through the rounds of one campaign, and say what happened."""
    try:
        for _ in range(ROUNDS_A_CAMPAIGN):
            campaign.round()
        told, found = campaign.finish()
    finally:
        campaign.agent.end()
    with capsys.disabled():
        sys.stdout.write(
            f"\nseed {seed}: {dict(campaign.faults)}; {told.accepted:.0f} accepted = {told.delivered:.0f} "
            f"delivered + {told.dropped} dropped; {len(campaign.load.acknowledged)} acknowledged, "
            f"{found.repeated} sent twice\n"
        )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", seeds())
def test_an_embedded_log_gets_exactly_what_was_sent(tmp_path, seed, capsys):
    run(Campaign(tmp_path, EmbeddedPlace(tmp_path / "log"), seed), seed, capsys)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", seeds())
def test_kafka_gets_exactly_what_was_sent(tmp_path, seed, capsys, serving_broker):
    run(KafkaCampaign(tmp_path, KafkaPlace(serving_broker, f"faults-{seed}"), seed), seed, capsys)
