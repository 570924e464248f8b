"""The refit gate in `paritas check`: weights are tested before they count, as in `paritas up`."""

import gzip
import json
from dataclasses import replace

import pytest
from command_runs import recording, run, run_json

from paritas.commands.offline import judge, judge_recording, recorded
from paritas.contracts.load import load_text
from paritas.detectors.pipeline import Detector
from paritas.records import State

CONTRACT = """apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: gated, version: 1.0.0}
spec:
  preset: dense-bf16
  refit: {tokens: TOKENS}
"""


def contract(tokens=400):
    return load_text(CONTRACT.replace("TOKENS", str(tokens)), "gated.yaml")


def versioned(path, name, version):
    """Write a shipped recording as of a weights version."""
    with gzip.open(recording(name), "rt") as file, path.open("w") as out:
        for line in file:
            told = json.loads(line)
            told |= (
                {"weights_version": version, "sample_id": f"{version}-{told['sample_id']}"} if version else {}
            )
            out.write(json.dumps(told) + "\n")
    return path


@pytest.fixture
def files(tmp_path):
    """Both files of a recording with the healthy weights 6, and the weights 7 that replica r2 never loaded."""
    for side in ("serve", "train"):
        healthy = versioned(tmp_path / "a", f"healthy.{side}", "6").read_text()
        stale = versioned(
            tmp_path / "b", "healthy.serve" if side == "serve" else "stale.train", "7"
        ).read_text()
        (tmp_path / f"{side}.jsonl").write_text(healthy + stale)
    return tmp_path / "serve.jsonl", tmp_path / "train.jsonl"


def test_a_rejected_version_violates_and_counts_nowhere(files, tmp_path):
    found = judge_recording(contract(), *files)
    told = {(one.weights_version, one.replica): one.state.value for one in found.refit.versions}
    assert told["7", "r2"] == "rejected"
    assert told["6", "r2"] == told["6", "r1"] == told["7", "r1"] == "accepted"
    assert found.exit_code == 1
    assert [(v.slice, v.state) for v in found.refit.rejections] == [("replica=r2", State.VIOLATED)]
    assert found.refit.diagnosis
    assert found.refit.sequences["rejected"] > 0
    ungated = judge_recording(replace(contract(), refit=None), *files)
    assert ungated.refit is None
    assert ungated.exit_code == 1
    assert State.VIOLATED not in {v.state for v in found.verdicts}
    assert found.pairs["paired"] == found.refit.sequences["accepted"] < ungated.pairs["paired"] == 96


def test_the_gate_of_a_recording_says_what_the_live_one_says(files):
    traces = list(recorded(*files))
    live = Detector(contract(), recover=False)
    for trace in traces:
        list(live.process([trace], 0))
    list(live.flush(0))
    assert judge(contract(), traces).refit.versions == live.refit.verdicts()
    assert judge(contract(), traces).refit.sequences == live.refit.sequences


def test_weights_that_are_still_held_leave_everything_undecided(files):
    found = judge_recording(contract(tokens=10**6), *files)
    assert {one.state.value for one in found.refit.versions} == {"held", "rejected"}
    only = judge_recording(contract(tokens=10**6), *_healthy(files))
    assert {one.state.value for one in only.refit.versions} == {"held"}
    assert (only.exit_code, only.refit.rejections) == (3, ())


def _healthy(files):
    for path in files:
        path.write_text("".join(f"{line}\n" for line in path.read_text().splitlines()[:48]))
    return files


def test_sequences_without_a_version_are_not_the_gates(tmp_path):
    files = [versioned(tmp_path / side, f"healthy.{side}", "") for side in ("serve", "train")]
    found, plain = (
        judge_recording(contract(), *files),
        judge_recording(replace(contract(), refit=None), *files),
    )
    assert (found.refit.versions, found.refit.sequences) == ((), {})
    assert repr(found.verdicts) == repr(plain.verdicts)
    assert found.exit_code == plain.exit_code


def test_check_shows_it_and_writes_it_as_json(files, tmp_path):
    (tmp_path / "gated.yaml").write_text(CONTRACT.replace("TOKENS", "400"))
    words = ("check", tmp_path / "gated.yaml", "--serve", files[0], "--train", files[1])
    code, told = run_json(*words)
    assert code == told["exit_code"] == 1
    (rejected,) = (one for one in told["refit"]["versions"] if one["state"] == "rejected")
    assert (rejected["weights_version"], rejected["replica"], rejected["reason"]) == ("7", "r2", "refuted")
    assert told["refit"]["rejections"][0]["clause"] == rejected["clause"]
    shown = run(*words).stdout
    assert "refit gate  sequences: " in shown
    line = (
        f"  weights 7 on r2: rejected after {rejected['sequences']} sequences ({rejected['tokens']} tokens): "
    )
    assert f"{line}{rejected['clause']} refuted\n" in shown
    assert "  weights 6 on r1: accepted after " in shown


def test_without_a_gate_there_is_nothing_to_say():
    _, told = run_json(
        "check", "dense-bf16", "--serve", recording("healthy.serve"), "--train", recording("healthy.train")
    )
    assert told["refit"] is None
