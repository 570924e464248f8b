"""`paritas repair` as a user runs it, and the line that `check` shows of it."""

import gzip
import json

import pytest
from command_runs import recording, run, run_json

CONTRACT = """apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: mine, version: 1.0.0}
spec:
  policy: p
  clauses:
    statistical:
      - {id: bias, statistic: gradient_bias, cap: 1.0, at_most: 0.05}
"""
HEALTHY = ("--serve", recording("healthy.serve"), "--train", recording("healthy.train"))
TOP_P = ("--serve", recording("top_p.serve"), "--train", recording("top_p.train"))


@pytest.fixture
def contract(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(CONTRACT)
    return path


def test_the_table_has_a_row_a_candidate_and_a_recommendation(contract):
    done = run("repair", contract, *HEALTHY, "--bias", "0.3")
    assert (done.returncode, done.stderr) == (0, "")
    rows = done.stdout.splitlines()
    assert rows[0].split() == [
        "repair",
        "tokens",
        "touched",
        "seqs",
        "touched",
        "seqs",
        "lost",
        "ess",
        "bias",
        "bias",
        "at",
        "most",
    ]
    assert rows[1].split()[:3] == ["none", "0", "(0.00%)"]
    assert [r.split()[0] for r in rows[1:17]] == (
        ["none"] + ["tis"] * 7 + ["mis"] * 3 + ["sequence_mask"] * 3 + ["clip"] * 2
    )
    assert "48 sequences, 4089 tokens; limits hold for all rows together" in done.stdout
    assert rows[-1].startswith(
        "recommended cap  the smallest cap that certifies a bias of at most 0.3 is 1 (at most "
    )


def test_the_budget_of_the_contract_is_the_default(contract):
    code, told = run_json("repair", contract, *HEALTHY)
    assert code == 3  # forty-eight sequences certify no bias of five percent
    assert told["recommended_cap"]["budget"] == 0.05
    assert (told["recommended_cap"]["cap"], told["recommended_cap"]["reason"]) == (None, "unresolved")
    assert told["recommended_cap"]["says"].startswith(
        "no cap certifies a bias of at most 0.05 yet: at 10 it is 0.0048"
    )
    assert len(told["repairs"]) == 16
    assert told["repairs"][0]["name"] == "none"
    assert told["repairs"][0]["bias"]["units"] == 48


def test_a_contract_without_a_bias_recommends_nothing():
    done = run("repair", "dense-bf16", *HEALTHY)
    assert done.returncode == 0
    assert done.stdout.endswith(
        "recommended cap  give --bias, or a gradient_bias in the contract, to fit one to\n"
    )
    assert run_json("repair", "dense-bf16", *HEALTHY)[1]["recommended_cap"] is None


def test_the_budget_comes_before_a_clause(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        CONTRACT.replace("  clauses:", "  budget: {gradient_bias: 0.4, estimator: {kind: tis}}\n  clauses:")
    )
    assert run_json("repair", path, *HEALTHY)[1]["recommended_cap"]["budget"] == 0.4


def test_rewards_show_which_answers_are_lost(contract, tmp_path):
    rewarded = tmp_path / "serve.jsonl"
    with gzip.open(recording("healthy.serve"), "rt") as file:
        rows = [json.loads(line) for line in file]
    rewarded.write_text("".join(json.dumps({**row, "reward": i % 2}) + "\n" for i, row in enumerate(rows)))
    done = run(
        "repair", contract, "--serve", rewarded, "--train", recording("healthy.train"), "--bias", "0.3"
    )
    assert done.stdout.splitlines()[0].endswith("correct touched  correct lost")
    mask = next(line for line in done.stdout.splitlines() if line.startswith("sequence_mask 1.25"))
    assert mask.split()[-4:-1] == ["2", "of", "24"] or "of 24" in mask


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "[usage] no input\n  hint: give --serve FILE --train FILE, or --dump PATH\n"),
        (
            ("--serve", "a", "--dump", "b"),
            "[usage] --dump holds both kernels: give it without --serve and --train\n",
        ),
        (
            ("--bias", "3"),
            "[usage] argument --bias: '3' is not above 0 and at most 2\n  hint: paritas repair --help shows what it takes\n",
        ),
    ],
)
def test_wrong_inputs_are_usage_errors(contract, arguments, text):
    done = run("repair", contract, *arguments)
    assert (done.returncode, done.stderr, done.stdout) == (64, text, "")


def test_nothing_that_pairs_is_one_clear_error(contract):
    done = run("repair", contract, "--serve", recording("healthy.serve"), "--train", recording("top_p.train"))
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == "[usage] nothing pairs\n  hint: paritas check says why, sequence by sequence\n"


def test_a_sample_has_no_price_and_no_cap(tmp_path):
    """What was kept is not what there is: a bias certified from plain means would be that of the kept ones."""
    path, serve = tmp_path / "mine.yaml", tmp_path / "serve.jsonl"
    path.write_text(CONTRACT.replace("  clauses:", "  compare: {sampling: {at_least: 0.5}}\n  clauses:"))
    with gzip.open(recording("top_p.serve"), "rt") as file:
        rows = [json.loads(line) | {"sampling_probability": 0.5} for line in file]
    serve.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = ("--serve", serve, "--train", recording("top_p.train"))
    done = run("repair", path, *files)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == (
        "[usage] some sequences were recorded with a sampling_probability below 1, and prices are of all sequences\n"
        "  hint: give a recording of every sequence\n"
    )
    code, judged = run_json("check", path, *files)
    assert (code, judged["recommended_cap"]) == (1, None)


def test_check_recommends_a_cap_where_a_bias_is_violated(contract):
    code, judged = run_json("check", contract, *TOP_P)
    assert code == 1
    assert judged["recommended_cap"]["says"].startswith("no cap certifies a bias of at most 0.05")
    shown = run("check", contract, *TOP_P)
    assert f"recommended cap  {judged['recommended_cap']['says']}\n" in shown.stdout
    code, judged = run_json("check", contract, *HEALTHY)
    assert judged["recommended_cap"] is None


def test_check_says_what_rounding_cannot_explain(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        CONTRACT.replace(
            "    statistical:\n",
            "    numerical: [{id: tv, statistic: tv, at_most: 1e-4}]\n    statistical:\n",
        ).replace(
            "  policy: p\n",
            "  policy: p\n  kernels: {train: {dtype: float32}, inference: {dtype: float32}}\n",
        )
    )
    code, judged = run_json("check", path, *TOP_P)
    assert code == 1
    (found,) = judged["implausible"]
    assert (found["clause"], found["number_format"], found["is_sure"]) == ("tv", "float32", True)
    assert f"not rounding  {found['says']}\n" in run("check", path, *TOP_P).stdout
    assert found["says"].endswith("float32 rounding in 24 layers gives at most 7.98e-06: a bug, not noise")
