"""`paritas experiment` as a user runs it: tables, files, figures, and every mistake's text."""

import csv
import json
import subprocess
import sys

import pytest
from command_runs import run, run_json

from paritas.cli import main
from paritas.commands.experiments.registry import EXPERIMENTS, find
from paritas.commands.experiments.result import Claim, Figure, Panel, Result, Table, curve
from paritas.commands.experiments.writing import NO_FIGURES, csv_text, write
from paritas.errors import UsageError

QUICK = ("experiment", "bias-vs-clip", "--quick")


def result(**more):
    table = Table("t", "says", ("name", "x"), (("a", 1.5), ("b", None)))
    return Result("example", 7, (table,), **more)


def test_list_names_every_experiment():
    done = run("experiment", "--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(EXPERIMENTS)


@pytest.mark.slow
def test_tables_files_and_claims(tmp_path):
    done = run(*QUICK, "--seed", "5", "--out", tmp_path / "new")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("bias-vs-clip  seed 5\n")
    assert "held  c = 0 is the uncorrected estimator" in done.stdout
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert {"ranges.csv", "recording.csv", "caps.csv", "result.json"} <= names
    rows = list(csv.reader((tmp_path / "new/ranges.csv").read_text().splitlines()))
    assert len(rows) == 14
    assert rows[0][:2] == ["clip range c", "worst-case bias"]
    assert json.loads((tmp_path / "new/result.json").read_text())["seed"] == 5


@pytest.mark.slow
def test_json_is_one_object_and_the_same_for_the_same_seed():
    code, told = run_json(*QUICK)
    assert code == 0
    assert set(told) == {"experiment", "seed", "claims", "tables", "cases"}
    assert len(told["tables"]["ranges"]) == 13
    assert run_json(*QUICK)[1] == told


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["experiment"], "[usage] no experiment named\n  hint: paritas experiment --list names them\n"),
        (
            ["experiment", "falsificaton"],
            "[usage] no such experiment: 'falsificaton'\n  hint: did you mean 'falsification'?\n",
        ),
        (
            ["experiment", "x"],
            "[usage] no such experiment: 'x'\n  hint: one of bias-vs-clip, bound-tightness, delay, false-alarms, falsification, precision-ladder, recorded-delay\n",
        ),
        (["experiment", "delay", "--seed", "-1"], "[usage] --seed must be 0 or more, got -1\n"),
        (
            ["experiment", "delay", "--seed", "1.5"],
            "[usage] argument --seed: invalid int value: '1.5'\n  hint: paritas experiment --help shows what it takes\n",
        ),
        (
            ["experiment", "delay", "--recordings", "/no/such"],
            "[usage] /no/such: no such folder\n  hint: --recordings takes a folder with NAME.serve.jsonl.gz files\n",
        ),
    ],
)
def test_every_mistake_has_its_text(arguments, text, capsys):
    assert main(arguments) == 64
    assert capsys.readouterr().err == text


def test_a_folder_that_cannot_be_made_is_told_before_anything_runs(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main([*QUICK, "--out", str(tmp_path / "file")]) == 64
    assert capsys.readouterr().err == (
        f"[usage] {tmp_path}/file: cannot be written: File exists\n"
        "  hint: --out takes a folder that is there or can be made, and is writable\n"
    )


def test_a_name_that_is_taken_by_a_folder_is_told(tmp_path):
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(UsageError, match=r"cannot be written: Is a directory"):
        write(result(), tmp_path)


def test_without_matplotlib_there_are_tables_and_one_line(tmp_path):
    code = f"import sys; sys.modules['matplotlib'] = None; from paritas.cli import main; sys.exit(main({[*QUICK, '--out', str(tmp_path)]!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(NO_FIGURES) == 1
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".json"}


def test_figures_are_small_images(tmp_path):
    pytest.importorskip("matplotlib")
    panel = Panel("p", "x", "y", (curve("a", [1.0, 2.0], [3.0, 4.0]), curve("", [1.0], [2.0], "points")))
    named = Panel("n", "x", "", (curve("b", [0.1], [0.0], "dashed"),), (True, False), ("first",))
    files, missing = write(result(figures=(Figure("f", (panel, named)),)), tmp_path)
    assert missing == ""
    image = (tmp_path / "f.png").read_bytes()
    assert image.startswith(b"\x89PNG")
    assert len(image) < 100_000
    assert {path.name for path in files} == {"t.csv", "result.json", "f.png"}


def test_a_broken_promise_is_exit_code_one_and_a_missed_goal_is_not():
    broken, missed = Claim("c", "m", holds=False), Claim("c", "m", holds=False, is_promise=False)
    assert result(claims=(broken,)).exit_code == 1
    assert result(claims=(missed,)).exit_code == 0
    assert result().exit_code == 0


def test_an_unknown_number_is_an_empty_cell():
    assert csv_text(result().table("t")) == "name,x\na,1.5\nb,\n"


def test_every_experiment_has_its_module():
    for name in EXPERIMENTS:
        assert find(name).says
