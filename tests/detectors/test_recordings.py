"""Recordings of real engines: what is healthy passes, every fault is found where it is and named.

The recordings are not part of the repository; without them every test here is skipped and says so.
"""

import gzip
import json
from functools import cache

import pytest
from dump_lines import shared_data

from paritas.commands.offline import judge_recording
from paritas.contracts.load import load_named
from paritas.records import State

SLICES = ("chat", "code", "explain", "long", "math", "multilingual")
REPLICAS = 4


@pytest.fixture(scope="module")
def recordings():
    return shared_data() / "smollm2"


@cache
def judged(serve, train):
    return judge_recording(load_named("dense-bf16"), serve, train)


def judge(recordings, name, train=None):
    return judged(recordings / f"{name}.serve.jsonl.gz", recordings / f"{train or name}.train.jsonl.gz")


def violated(judgement, clause=None):
    """Return the slices in which something, or one clause, is violated."""
    found = (v for v in judgement.verdicts if v.state is State.VIOLATED)
    return {v.slice for v in found if clause in (None, v.clause)}


def lines(path):
    with gzip.open(path, "rt") as text:
        return [json.loads(line) for line in text]


def rewritten(path, rows):
    with gzip.open(path, "wt", compresslevel=1) as text:
        text.writelines(json.dumps(row) + "\n" for row in rows)
    return path


@pytest.mark.parametrize("name", ["fp32", "fp16", "bf16", "bf16_eager"])
def test_healthy_kernels_are_not_violated(recordings, name):
    judgement = judge(recordings, name)
    assert violated(judgement) == set()
    assert judgement.diagnosis == ()
    assert judgement.pairs["paired"] == sum(judgement.pairs.values()) > 0


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("bf16_topp09_processed", "support_mismatch"),
        ("bf16_t06_processed", "temperature_mismatch"),
        ("bf16_t06_raw", "wrong_law"),
        ("bf16_topp09_raw", "wrong_law"),
        ("int8", "precision_noise"),
        ("fp8_e4m3", "precision_noise"),
        ("int4_rtn", "precision_noise"),
    ],
)
def test_a_fault_is_found_and_named(recordings, name, cause):
    judgement = judge(recordings, name)
    assert "all" in violated(judgement)
    assert judgement.diagnosis[0].cause == cause
    assert judgement.diagnosis[0].confidence >= 0.6


@pytest.mark.parametrize("name", ["bf16_t06_raw", "bf16_topp09_raw"])
def test_a_log_that_is_not_the_sampling_law_is_found_by_its_top1_alone(recordings, name):
    assert violated(judge(recordings, name), "law") >= {"all"}
    assert violated(judge(recordings, name), "token-tv") == set()


@pytest.mark.parametrize("name", ["bf16_t06_raw", "bf16_topp09_raw"])
def test_metadata_that_lies_hides_nothing(recordings, name, tmp_path):
    serve = lines(recordings / f"{name}.serve.jsonl.gz")
    lies = [{**row, "temperature": 1.0, "top_p": 1.0} for row in serve]
    path = rewritten(tmp_path / f"{name}.serve.jsonl.gz", lies)
    judgement = judge_recording(load_named("dense-bf16"), path, recordings / f"{name}.train.jsonl.gz")
    assert "all" in violated(judgement, "law")
    assert judgement.diagnosis[0].cause == "wrong_law"


@pytest.mark.parametrize("steps", [1, 4, 8])
def test_a_trainer_that_is_ahead_is_a_stale_sampler(recordings, steps):
    judgement = judge(recordings, "bf16", f"bf16_weights_plus{steps}")
    assert "all" in violated(judgement, "mean-ratio")
    assert judgement.diagnosis[0].cause == "stale_weights"


def test_what_cannot_be_told_is_not_given_a_wrong_name(recordings):
    judgement = judge(recordings, "bf16", "bf16_rope_scaled_1_02")
    assert {f.cause for f in judgement.diagnosis} <= {"unknown", "position_drift", "isolated_slice"}


# ---- faults in a part: train lines of a stale trainer among those of the right one


@cache
def columns(path):
    """Return the lines without their top-k lists, which these faults do not need."""
    return [{k: v for k, v in row.items() if k != "top_logprobs"} for row in lines(path)]


def mixed(recordings, folder, steps, stale):
    """Judge bf16 with replicas; `stale` tells which sequences the stale trainer scored."""
    serve = [
        {**row, "replica": f"r{i % REPLICAS}"}
        for i, row in enumerate(columns(recordings / "bf16.serve.jsonl.gz"))
    ]
    right, wrong = (
        columns(recordings / f"{name}.train.jsonl.gz") for name in ("bf16", f"bf16_weights_plus{steps}")
    )
    train = [w if stale(i, s) else r for i, (s, r, w) in enumerate(zip(serve, right, wrong, strict=True))]
    paths = (
        rewritten(folder / "bf16.serve.jsonl.gz", serve),
        rewritten(folder / "bf16.train.jsonl.gz", train),
    )
    return judge_recording(load_named("dense-bf16"), *paths)


@pytest.mark.parametrize(("steps", "replica"), [(4, 0), (4, 1), (4, 2), (4, 3), (1, 0)])
def test_one_stale_replica_of_four_is_found_and_no_other(recordings, tmp_path, steps, replica):
    judgement = mixed(recordings, tmp_path, steps, lambda i, _: i % REPLICAS == replica)
    hit = {name for name in violated(judgement) if name.startswith("replica=")}
    assert hit == {f"replica=r{replica}"}
    causes = [f.cause for f in judgement.diagnosis if f.slice == f"replica=r{replica}"]
    assert causes[0] == "stale_weights"


@pytest.mark.parametrize("prompt", SLICES)
def test_a_fault_in_one_kind_of_prompt_is_found_there_and_nowhere_else(recordings, tmp_path, prompt):
    judgement = mixed(recordings, tmp_path, 4, lambda _, row: row["slice"] == prompt)
    hit = {name for name in violated(judgement) if name.startswith("slice=")}
    assert hit == {f"slice={prompt}"}


def test_no_fault_in_the_mixture_is_no_violation(recordings, tmp_path):
    assert violated(mixed(recordings, tmp_path, 4, lambda *_: False)) == set()
