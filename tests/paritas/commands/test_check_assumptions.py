"""`paritas check` shows what its certificates rest on."""

import json
from pathlib import Path

from command_runs import run
from objective_recordings import record, reward_of

EXAMPLE = Path(__file__).parents[3] / "examples/contracts/rlhf-reward.yaml"


def judged(folder, *arguments, stretch=1.0):
    """Judge forty rewarded sequences; `stretch` takes rewards out of their range."""

    def labels(i, ids):
        return {"group_id": f"g-{i}", "reward": stretch * reward_of(ids)}

    serve, train = record(folder, sequences=40, labels=labels)
    return run("check", EXAMPLE, "--serve", serve, "--train", train, *arguments)


def test_the_ledger_is_printed_once_a_certificate(tmp_path):
    said = judged(tmp_path).stdout
    assert said.count("reward-loss in all rests on") == 1
    assert "  independent units: declared (the unit is the prompt group)\n" in said
    assert "  equal tokens: measured (40 sequences equal token by token, 0 not)\n" in said
    assert "fails" not in said


def test_a_failed_premise_is_told_in_text_and_json(tmp_path):
    assert "  reward range: measured, fails (40 rewards between -" in judged(tmp_path, stretch=9.0).stdout
    told = json.loads(judged(tmp_path, "--json", stretch=9.0).stdout)
    entries = {e["assumption"]: e for e in told["assumptions"][0]["entries"]}
    assert told["assumptions"][0]["clause"] in ("reward-loss", "reward-gain")
    assert entries["reward_range"]["standing"] == "measured"
    assert entries["reward_range"]["holds"] is False
