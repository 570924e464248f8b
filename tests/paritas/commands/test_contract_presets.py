"""`paritas contract presets`: the list, one page, and JSON."""

import argparse
import json

import pytest

from paritas.commands.contract import register
from paritas.contracts.load import preset_names
from paritas.errors import UsageError


def run(*argv):
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    arguments = parser.parse_args(["contract", "presets", *argv])
    return arguments.run(arguments)


def test_the_list_names_every_preset_once(capsys):
    assert run() == 0
    said = capsys.readouterr().out
    first = [line.split()[0] for line in said.splitlines() if line and not line.startswith(" ")]
    assert first == [*preset_names(), "Use"]
    assert max(map(len, said.splitlines())) <= 100


def test_a_page_tells_every_limit_and_keeps_addresses_whole(capsys):
    assert run("nemo-rl-fp8-rollout") == 0
    said = capsys.readouterr().out
    assert said.startswith("nemo-rl-fp8-rollout 1.0.0  (starts from fp8-rollout; ")
    assert "peer-kl            kl_k3 at_most 0.004, stages full\n" in said
    assert "https://github.com/NVIDIA-NeMo/RL/tree/7ea279ab/tests/test_suites" in said


def test_json_holds_the_same(capsys):
    assert run("--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told] == list(preset_names())
    assert run("slime-ci", "--json") == 0
    (slime,) = json.loads(capsys.readouterr().out)
    assert slime["preset"] == "dense-bf16"
    assert {c["id"]: c["limit"] for c in slime["clauses"]}["peer-logprob-diff"] == (
        "logprob_abs_diff at_most 0.1, stages full"
    )


def test_an_unknown_name_gets_the_closest():
    with pytest.raises(UsageError) as caught:
        run("nemo-rl-bf61")
    assert caught.value.render() == (
        "[usage] unknown preset 'nemo-rl-bf61'\n  hint: did you mean 'nemo-rl-bf16'?"
    )
