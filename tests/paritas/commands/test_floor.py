"""`paritas floor measure` of two recordings, and `paritas floor verify`, as a user runs them."""

import json
import os

import numpy as np
import pytest
from command_runs import run, run_json
from floor_desk import CONTRACT, batched, laid_desk, measuring

from paritas.clock import ManualClock
from paritas.commands.floor_measure import Asked, measure
from paritas.contracts.catalogue import CATALOGUE
from paritas.contracts.load import load_text
from paritas.detectors.repair_limits import upper_limit
from paritas.records import Role

SAME = "  hint: a floor is one kernel against itself: the same tokens, only batched otherwise\n"


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with a contract, a key pair, two recordings and the floor they make."""
    return laid_desk(tmp_path_factory.mktemp("floor"))


def test_verify_shows_what_was_signed(desk):
    done = run("floor", "verify", desk / "engine.json", "--key", desk / "p.pem")
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "inference kernel: dtype bfloat16, engine vllm, engine_version 0.32.0; extra.batch 1 and 8\n"
        in done.stdout
    )
    assert "  ratio_tail (above 1.05): at most " in done.stdout
    assert done.stdout.endswith("signature: good\n")


def test_the_payload_says_where_it_comes_from(desk):
    code, told = run_json("floor", "verify", desk / "engine.json", "--key", desk / "p.pem")
    assert code == 0
    assert (told["name"], told["role"], told["model"], told["seed"], told["alpha"]) == (
        "engine",
        "inference",
        "small",
        0,
        0.05,
    )
    assert told["varied"] == {"extra.batch": ["1", "8"]}
    assert [v["statistic"] for v in told["values"]] == [
        "tv",
        "gradient_bias",
        "ratio_tail",
    ]  # k3 is unbounded
    assert {v["units"] for v in told["values"]} == {48}
    assert all(len(digest) == 32 for digest in (*told["recordings"], told["digest"]))


def test_its_numbers_are_those_of_the_definition(desk):
    contract, clock = load_text(CONTRACT, "mine.yaml"), ManualClock(1_700_000_000 * 10**9)
    asked = Asked("engine", Role.INFERENCE, desk / "one.jsonl", desk / "other.jsonl", seed=5, alpha=0.09)
    found = measure(contract, asked, clock=clock)
    assert (found.measured_at, found.seed) == ("2023-11-14T22:13:20+00:00", 5)
    one, other = (
        [json.loads(t) for t in (desk / n).read_text().splitlines()] for n in ("one.jsonl", "other.jsonl")
    )
    as_logged = [np.array([r["logprobs"] for r in rows], dtype=object) for rows in (one, other)]
    ells = [np.float64(np.float32(p)) - np.float64(np.float32(q)) for q, p in zip(*as_logged, strict=True)]
    tv = np.array([np.mean(-np.expm1(np.minimum(ell, 0))) for ell in ells])
    assert found.values[0].estimate == pytest.approx(tv.mean())
    assert found.values[0].upper == pytest.approx(upper_limit(tv, 0.03))
    assert found.values[0].tokens == sum(map(len, ells))
    assert all(CATALOGUE[v.statistic].certifiable for v in found.values)


def test_two_kernels_make_no_floor(desk):
    batched(desk / "fp16.jsonl", 8, 0.02, dtype="float16")
    done = run(*measuring(desk, "wrong", other="fp16.jsonl"))
    assert (done.returncode, done.stderr) == (
        64,
        f"[usage] {desk}/one.jsonl and {desk}/fp16.jsonl are of two kernels: dtype bfloat16 and float16\n{SAME}",
    )
    assert not (desk / "wrong.json").exists()


def test_a_recording_that_names_two_kernels_makes_no_floor(desk):
    mixed = (desk / "other.jsonl").read_text() + (desk / "one.jsonl").read_text().replace(
        '"batch": "1"', '"batch": "2"'
    )
    (desk / "mixed.jsonl").write_text(mixed)
    done = run(*measuring(desk, "wrong", other="mixed.jsonl"))
    assert (done.returncode, done.stderr) == (64, f"[usage] {desk}/mixed.jsonl: names 2 kernels\n{SAME}")


def test_a_recording_whose_digest_could_not_be_taken_makes_no_floor(desk):
    pipe = desk / "pipe.jsonl"
    os.mkfifo(pipe)
    done = run(*measuring(desk, "wrong", other="pipe.jsonl"))
    assert (done.returncode, done.stderr) == (
        64,
        f"[usage] {pipe}: is no regular file, and has to be read twice\n  hint: write it to a file first\n",
    )


def test_other_tokens_make_no_floor(desk):
    rows = [json.loads(line) for line in (desk / "other.jsonl").read_text().splitlines()]
    for row in rows:
        row["token_ids"] = [t + 1 for t in row["token_ids"]]
    (desk / "tokens.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run(*measuring(desk, "wrong", other="tokens.jsonl"))
    assert done.returncode == 64
    assert done.stderr == (
        f"[usage] {desk}/one.jsonl and {desk}/tokens.jsonl: nothing pairs (48 token_mismatch)\n{SAME}"
    )


def test_a_contract_whose_clauses_cannot_have_a_floor(desk, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        CONTRACT[: CONTRACT.index("    numerical")]
        + "    observability: [{id: f, statistic: nonfinite_rate, at_most: 0}]\n"
    )
    done = run("floor", "measure", path, *measuring(desk, "wrong")[3:])
    assert (done.returncode, done.stderr) == (
        64,
        (
            "[usage] mine: no clause can have a floor\n"
            "  hint: a floor needs a numerical or statistical clause with a bounded mean, such as tv\n"
        ),
    )


def test_an_alpha_that_is_no_probability(desk):
    done = run(*measuring(desk, "wrong"), "--alpha", "2")
    assert done.returncode == 64
    assert done.stderr.startswith("[usage] argument --alpha: '2' is not between 0 and 1\n")
