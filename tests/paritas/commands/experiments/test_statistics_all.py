"""`make bench-statistics`: every table, then every claim with its number."""

import importlib.util
import json
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
    monkeypatch.setattr(script(), "measure", lambda _: iter(told))
    monkeypatch.setattr(sys, "argv", ["statistics_all.py", *options])
    return script().main()


def test_it_measures_what_it_names(told):
    ((result, cpu_s),) = told
    assert (result.name, result.seed) == ("precision-ladder", 1)
    assert cpu_s > 0.0
    assert script().EXPERIMENTS == ("false-alarms", "delay", "precision-ladder")


def test_text_ends_with_every_claim(told, monkeypatch, capsys):
    assert run_main(monkeypatch, told) == 0
    lines = capsys.readouterr().out.splitlines()
    summary = lines[lines.index("summary") + 1 :]
    assert len(summary) == len(told[0][0].claims)
    assert summary[0] == "held    no half of a healthy recording alarms: 0 of 4"


def test_json_is_a_list_of_results(told, monkeypatch, capsys):
    assert run_main(monkeypatch, told, "--json") == 0
    assert [one["experiment"] for one in json.loads(capsys.readouterr().out)] == ["precision-ladder"]


def test_a_broken_promise_is_loud_and_exits_with_one(monkeypatch, capsys):
    broken = Result(
        "x", 0, (), (), (Claim("a promise", "3 of 2", holds=False), Claim("a goal", "0.9", False, False))
    )
    assert run_main(monkeypatch, [(broken, 1.0)]) == 1
    assert capsys.readouterr().out.endswith("BROKEN  a promise: 3 of 2\nmissed  a goal: 0.9\n")


def test_recordings_come_from_the_first_folder_that_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("PARITAS_RECORDINGS", str(tmp_path / "gone"))
    monkeypatch.setenv("PARITAS_SHARED_DATA", str(tmp_path))
    assert script().recordings(None) == tmp_path
    assert script().recordings(tmp_path.parent) == tmp_path.parent
