"""`paritas contract` as a user runs it."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
from contract_cases import FOLDER, HEAD

from paritas.commands.contract import register
from paritas.contracts.load import load_contract, load_text, preset_names
from paritas.errors import ContractError, UsageError

RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"
FULL, DERIVED, MINIMAL = (str(FOLDER / f"{name}.good.yaml") for name in ("full", "derived", "minimal"))


def run(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    arguments = parser.parse_args(["contract", *argv])
    code: int = arguments.run(arguments)
    return code


@pytest.mark.parametrize("preset", preset_names())
def test_a_first_contract_lints_clean(
    preset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "contract.yaml"
    assert run("init", "--preset", preset, "--name", "my-model", "-o", str(file)) == 0
    assert capsys.readouterr().out == f"{file} written; check it with: paritas contract lint {file}\n"
    assert run("lint", "--strict", str(file)) == 0
    assert capsys.readouterr().out.endswith("no warnings\n")
    assert load_contract(file).preset == preset


def test_every_line_the_first_contract_offers_can_be_taken(capsys: pytest.CaptureFixture[str]) -> None:
    run("init")
    text = capsys.readouterr().out
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("  # kernels:"))
    taken = lines[:start] + [line.replace("  # ", "  ", 1) for line in lines[start:]]
    loaded = load_text("\n".join(taken), "taken.yaml")
    assert loaded.clause("token-tv").at_most == 0.03
    assert [gate.stage for gate in loaded.promotion.gates] == ["offline_ci", "shadow"]


def test_init_never_overwrites(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        run("init", "-o", str(file))
    assert (
        caught.value.render() == f"[usage] {file}: exists already\n  hint: choose another name, or remove it"
    )
    assert file.read_text(encoding="utf-8") == "mine"
    with pytest.raises(UsageError, match="cannot be written: No such file or directory"):
        run("init", "-o", str(tmp_path / "no" / "c.yaml"))
    with pytest.raises(UsageError) as caught:
        run("init", "--preset", "bf16")
    assert caught.value.hint == "did you mean 'dense-bf16' or 'moe-bf16' or 'moe-bf16-replay'?"
    with pytest.raises(UsageError) as caught:
        run("init", "--name", "My Model")
    assert caught.value.render() == (
        "[usage] 'My Model' is no name of a contract\n  hint: lower case letters, digits, '-', '_' and '.', at most 63"
    )


def test_lint_prints_warnings_and_only_strict_makes_them_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("lint", MINIMAL) == 0
    digest = load_contract(MINIMAL).digest[:8]
    assert capsys.readouterr().out == (
        f"{MINIMAL}:1:1: [nobody-told] no escalation: nobody is told of a violation\n"
        "  hint: add spec.escalation, or start from a preset\n"
        f"{MINIMAL}: a 1.0.0 ({digest}): 1 clause, 1 slice, 1 warning\n"
    )
    assert run("lint", "--strict", MINIMAL) == 1
    assert run("lint", "--strict", "fp16", "int4") == 0


def test_lint_as_json_is_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    run("lint", "--json", FULL, "fp32")
    first, second = json.loads(capsys.readouterr().out)
    assert first["name"] == "qwen3-8b-rollout"
    assert {w["code"] for w in first["warnings"]} == {"budget-insufficient", "nobody-told", "never-passes"}
    assert second["warnings"] == []


def test_a_bad_contract_is_a_contract_error(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(HEAD, encoding="utf-8")
    with pytest.raises(ContractError, match=r"bad\.yaml:1:1: missing field 'spec'"):
        run("lint", str(file))


def test_explain_prints_one_page_or_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "tv") == 0
    assert capsys.readouterr().out.startswith("tv (numerical, in probability, 0 to 1)\n")
    assert run("explain") == 0
    assert "ratio_tail" in capsys.readouterr().out


def test_budget_prints_both_directions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("budget", DERIVED) == 0
    text = capsys.readouterr().out
    assert "token TV, mean" in text
    assert "F2'" in text
    assert "Forecast: what a clause alone guarantees" in text
    assert run("budget", "--json", DERIVED) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["declared"] == {"reward_drift": 0.02, "gradient_bias": 0.05}
    assert {"clause", "limit", "level", "declared", "forecast", "is_sufficient"} == set(
        report["forecasts"][0]
    )


def test_budget_without_a_budget_says_how_to_declare_one() -> None:
    with pytest.raises(UsageError) as caught:
        run("budget", MINIMAL)
    assert caught.value.render() == (
        f"[usage] {MINIMAL}: declares no budget\n  hint: add spec.budget, such as {{sequence_tv: 0.1, max_tokens: 1024}}"
    )


def test_tables_need_no_rich() -> None:
    code = (
        "import sys; sys.modules['rich.console'] = None\n"
        "from argparse import Namespace\n"
        "from paritas.commands.contract_verbs import run_budget\n"
        f"run_budget(Namespace(file={DERIVED!r}, json=False))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1].split() == ["declared", "quantity", "at", "most", "unit", "equation"]


def test_diff_exits_by_whether_the_contract_may_loosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("diff", "fp16", "dense-bf16") == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "changed, but the version went from 1.0.0 to 1.0.0",
        "may loosen the contract",
    ]
    assert run("diff", "fp32", "fp32") == 0
    assert capsys.readouterr().out == "does not loosen the contract\n"
    assert run("diff", "--json", "fp16", "dense-bf16") == 1
    assert json.loads(capsys.readouterr().out)["may_loosen"] is True


def test_schema_prints_the_schema_or_a_resolved_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema") == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Paritas kernel contract"
    assert run("schema", "moe-bf16-replay") == 0
    resolved = capsys.readouterr().out
    assert load_text(resolved, "r.json").clause("token-tv").at_most == 0.04


CARRYING = """spec:
  clauses:
    numerical:
      - {{id: token-tv, statistic: tv, at_most: {limit}}}
  tests:
    - name: bfloat16 is not float32
      given: {{serve: bf16.serve.jsonl.gz, train: bf16.train.jsonl.gz}}
      expect: [{{clause: token-tv, slice: all, state: violated, at_most: {count} sequences}}]
"""


def carried(tmp_path: Path, limit: float, count: int) -> str:
    for file in RECORDINGS.glob("*.gz"):
        (tmp_path / file.name).symlink_to(file)
    contract = tmp_path / "c.yaml"
    contract.write_text(HEAD + CARRYING.format(limit=limit, count=count), encoding="utf-8")
    return str(contract)


def test_a_carried_test_judges_a_real_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("test", carried(tmp_path, 1e-4, 12)) == 0
    assert capsys.readouterr().out == "ok    bfloat16 is not float32\n"


def test_a_carried_test_fails_when_the_contract_is_too_loose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("test", carried(tmp_path, 0.04, 12)) == 1
    head, miss = capsys.readouterr().out.splitlines()
    assert head == "FAIL  bfloat16 is not float32"
    assert miss.startswith("      token-tv in all: expected violated within 12 sequences, got undecided")


def test_a_carried_test_fails_when_the_violation_comes_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("test", "--json", carried(tmp_path, 0.005, 1)) == 1
    (result,) = json.loads(capsys.readouterr().out)
    assert result["passed"] is False
    assert "reached after" in result["misses"][0]


def test_a_contract_without_tests_says_so() -> None:
    with pytest.raises(UsageError) as caught:
        run("test", MINIMAL)
    assert caught.value.render() == f"[usage] {MINIMAL}: carries no tests\n  hint: add spec.tests"


def test_a_missing_recording_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"stale-replica\.jsonl"):
        run("test", FULL)


def test_the_parser_alone_imports_nothing_heavy() -> None:
    code = "import sys, paritas.commands.contract\nassert not {'numpy', 'yaml'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
