"""`make bench-statistics`: every table, then every claim with its number."""

import importlib.util
import json
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from paritas.commands.experiments.result import Claim, Result, Setting

SCRIPT = Path(__file__).resolve().parents[4] / "benchmarks/statistics_all.py"


@cache
def script():
    """Return the benchmark as a module."""
    spec = importlib.util.spec_from_file_location("benchmark_statistics_all", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def told():
    return list(script().measure(Setting(seed=1, is_quick=True), names=("precision-ladder",)))


def run_main(monkeypatch, told, *options):
    monkeypatch.setattr(script(), "measure", lambda _, names: iter(told))
    monkeypatch.setattr(sys, "argv", ["statistics_all.py", *options])
    return script().main()


def test_it_measures_what_it_names(told):
    ((result, cpu_s),) = told
    assert (result.name, result.seed) == ("precision-ladder", 1)
    assert cpu_s > 0.0
    assert script().EXPERIMENTS == ("false-alarms", "delay", "recorded-delay", "precision-ladder")


def cells(line):
    """Cells of a line of the summary."""
    return re.split(r"\s{2,}", line.strip())


def test_text_ends_with_every_criterion(told, monkeypatch, capsys):
    assert run_main(monkeypatch, told) == 0
    lines = capsys.readouterr().out.splitlines()
    summary = lines[lines.index("summary") + 1 :]
    assert cells(summary[0]) == ["criterion", "figure", "goal", "result", "seed"]
    assert len(summary) == 1 + len(told[0][0].claims)
    assert cells(summary[1]) == ["no half of a healthy recording alarms", "0 of 4", "0", "held", "1"]


def test_json_is_a_list_of_results(told, monkeypatch, capsys):
    assert run_main(monkeypatch, told, "--json") == 0
    assert [one["experiment"] for one in json.loads(capsys.readouterr().out)] == ["precision-ladder"]


def test_a_broken_promise_is_loud_and_exits_with_one(monkeypatch, capsys):
    broken = Result(
        "x", 0, (), (), (Claim("a promise", "3 of 2", holds=False), Claim("a goal", "0.9", False, False))
    )
    assert run_main(monkeypatch, [(broken, 1.0)]) == 1
    promise, goal = capsys.readouterr().out.splitlines()[-2:]
    assert cells(promise) == ["a promise", "3 of 2", "BROKEN", "0"]
    assert cells(goal) == ["a goal", "0.9", "missed", "0"]


@pytest.mark.parametrize(("options", "names"), [([], None), (["--only", "delay"], ("delay",))])
def test_only_one_of_them_is_run_where_one_is_named(options, names, monkeypatch):
    asked = []
    monkeypatch.setattr(
        script(), "measure", lambda _, names: asked.append(names) or iter([(Result("x", 0, ()), 1.0)])
    )
    monkeypatch.setattr(sys, "argv", ["statistics_all.py", *options])
    script().main()
    assert asked == [names or script().EXPERIMENTS]


def test_recordings_come_from_the_first_folder_that_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("PARITAS_RECORDINGS", str(tmp_path / "gone"))
    monkeypatch.setenv("PARITAS_SHARED_DATA", str(tmp_path))
    assert script().recordings(None) == tmp_path
    assert script().recordings(tmp_path.parent) == tmp_path.parent
