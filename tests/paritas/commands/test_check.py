"""`paritas check` as a user runs it: verdicts, causes, exit codes, and every mistake's text."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_runs import DATA, recording, run, run_json

HEALTHY = ("--serve", recording("healthy.serve"), "--train", recording("healthy.train"))
STALE = ("--serve", recording("healthy.serve"), "--train", recording("stale.train"))
TOP_P = ("--serve", recording("top_p.serve"), "--train", recording("top_p.train"))


def violated(judged):
    return {(v["clause"], v["slice"]) for v in judged["verdicts"] if v["state"] == "violated"}


def test_a_healthy_pair_is_undecided_and_never_violated():
    code, judged = run_json("check", "dense-bf16", *HEALTHY)
    assert code == 3
    assert violated(judged) == set()
    assert judged["diagnosis"] == []
    assert judged["accounting"]["pairs"]["paired"] == 48


def test_the_stale_replica_is_found_in_its_slice_and_nowhere_among_its_siblings():
    code, judged = run_json("check", "dense-bf16", *STALE)
    assert code == 1
    slices = {name for _, name in violated(judged)}
    assert "replica=r2" in slices
    assert not slices & {"replica=r0", "replica=r1", "replica=r3"}
    causes = {f["slice"]: f["cause"] for f in reversed(judged["diagnosis"])}
    assert causes["replica=r2"] == "stale_weights"
    assert ("isolated_slice", "replica=r2") in {(f["cause"], f["slice"]) for f in judged["diagnosis"]}


def test_top_p_on_one_side_is_named_first():
    code, judged = run_json("check", "dense-bf16", *TOP_P)
    assert code == 1
    assert judged["diagnosis"][0]["cause"] == "support_mismatch"
    assert judged["diagnosis"][0]["slice"] == "all"


def test_json_has_every_field_that_is_promised():
    _, judged = run_json("check", "dense-bf16", *STALE)
    verdict = judged["verdicts"][0]
    promised = {
        "clause",
        "slice",
        "state",
        "estimate",
        "lower",
        "upper",
        "log10_e",
        "units",
        "tokens",
        "reason",
    }
    assert promised <= set(verdict)
    assert {"cause", "slice", "confidence", "facts"} <= set(judged["diagnosis"][0])
    assert judged["accounting"]["kernels"]["inference"]["status"]["valid"] > 0
    assert judged["rosetta"]["nemo_rl:train/token_mult_prob_error"] > 1.0


def test_tables_show_the_violation_and_the_cause():
    done = run("check", "dense-bf16", *STALE)
    assert done.returncode == 1
    assert "replica=r2" in done.stdout
    assert "stale_weights" in done.stdout
    assert "48 paired" in done.stdout


def test_a_contract_file_works_like_a_preset(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "apiVersion: paritas.dev/v1\nkind: KernelContract\nmetadata: {name: mine, version: 1.0.0, owner: me}\n"
        "spec:\n  policy: p\n  slices: [{name: all}]\n"
        "  clauses:\n    observability:\n      - {id: finite, statistic: nonfinite_rate, at_most: 0}\n"
    )
    code, judged = run_json("check", str(path), *HEALTHY)
    assert code == 0, judged
    assert [v["state"] for v in judged["verdicts"]] == ["conforming"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "[usage] no input\n  hint: give --serve FILE --train FILE, or --dump PATH\n"),
        (("--serve", "a"), "[usage] no input\n  hint: give --serve FILE --train FILE, or --dump PATH\n"),
        (
            ("--serve", "a", "--dump", "b"),
            "[usage] --dump holds both kernels: give it without --serve and --train\n",
        ),
    ],
)
def test_wrong_inputs_are_usage_errors(arguments, text):
    done = run("check", "dense-bf16", *arguments)
    assert (done.returncode, done.stderr, done.stdout) == (64, text, "")


def test_an_unknown_preset_suggests_the_nearest():
    done = run("check", "dense-bf61", *HEALTHY)
    assert done.returncode == 64
    assert done.stderr.startswith("[usage] ")
    assert "dense-bf16" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_file_is_one_clear_error(tmp_path):
    done = run("check", "dense-bf16", "--serve", tmp_path / "no.jsonl", "--train", recording("healthy.train"))
    assert done.returncode == 64
    assert done.stderr.startswith(f"[usage] {tmp_path}/no.jsonl: ")
    assert done.stdout == ""


def lines(name):
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def write(path, objects):
    path.write_text("".join(json.dumps(o) + "\n" for o in objects))
    return path


def test_every_kind_of_damage_is_counted_and_nothing_crashes(tmp_path):
    serve, train = lines("healthy.serve"), lines("healthy.train")
    serve[0]["logprobs"][0] = float("nan")
    serve[1]["logprobs"][2] = -9999.0
    serve[2]["logprobs"][1] = None
    train[3]["token_ids"] = train[3]["token_ids"][:-1]
    train[4]["sample_id"] = "somebody-else"
    train[5]["token_ids"][0] += 1
    write(tmp_path / "s.jsonl", serve)
    write(tmp_path / "t.jsonl", train)
    with (tmp_path / "t.jsonl").open("ab") as file:
        file.write(b"\x00\xff garbage\n{not json}\n")
    code, judged = run_json(
        "check", "dense-bf16", "--serve", tmp_path / "s.jsonl", "--train", tmp_path / "t.jsonl"
    )
    assert code == 1
    status = judged["accounting"]["kernels"]["inference"]["status"]
    assert (status["nonfinite"], status["sentinel"], status["missing"]) == (1, 1, 1)
    pairs = judged["accounting"]["pairs"]
    assert pairs["token_mismatch"] == 1
    assert pairs["unmatched"] == 3  # the damaged line's partner, and both sides of the renamed one
    assert sum(judged["accounting"]["problems"].values()) == 3
    assert ("finite", "all") in violated(judged)
    assert "broken_values" in {f["cause"] for f in judged["diagnosis"]}
    total = judged["accounting"]["kernels"]["inference"]["tokens"]
    assert sum(status.values()) == total


def test_a_truncated_gzip_gives_what_was_whole(tmp_path):
    cut = (DATA / "healthy.train.jsonl.gz").read_bytes()[:-4000]
    (tmp_path / "t.jsonl.gz").write_bytes(cut)
    code, judged = run_json("check", "dense-bf16", *HEALTHY[:2], "--train", tmp_path / "t.jsonl.gz")
    assert judged["accounting"]["problems"] == {"truncated_gzip": 1}
    assert 0 < judged["accounting"]["pairs"]["paired"] < 48
    assert code in (1, 3)
    assert "conforming" not in {v["state"] for v in judged["verdicts"] if v["family"] == "numerical"}


def test_an_empty_file_is_no_data_and_never_a_pass(tmp_path):
    (tmp_path / "t.jsonl").write_text("")
    code, judged = run_json("check", "dense-bf16", *HEALTHY[:2], "--train", tmp_path / "t.jsonl")
    assert code in (1, 3)
    assert judged["accounting"]["problems"] == {"empty_file": 1}
    assert judged["accounting"]["pairs"]["unmatched"] == 48
    tv = [v for v in judged["verdicts"] if v["clause"] == "token-tv" and v["slice"] == "all"]
    assert [(v["state"], v["estimate"]) for v in tv] == [("no_data", None)]


def test_swapped_files_do_not_pass(tmp_path):
    """Serve and train swapped: the recorded metadata is gone, the verdict is not a pass."""
    done = run(
        "check", "dense-bf16", "--serve", recording("healthy.train"), "--train", recording("healthy.serve")
    )
    assert done.returncode in (1, 3, 64)
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_does_not_change_the_exit_code():
    """Piped into something like `head -1`, a healthy recording must not end as `violated`."""
    command = [str(Path(sys.executable).with_name("paritas")), "check", "dense-bf16", *HEALTHY]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=90, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (3, "")
