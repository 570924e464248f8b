"""`make bench-statistics`: every table, then every claim with its number."""

import json
import re
import sys

import pytest
from benchmark_scripts import FOLDER, script

from paritas.commands.experiments.result import Claim, Result, Setting


def statistics_all():
    return script("statistics_all")


@pytest.fixture(scope="module")
def told():
    return list(statistics_all().measure(Setting(seed=1, is_quick=True), names=("precision-ladder",)))


def run_main(monkeypatch, told, *options):
    monkeypatch.setattr(statistics_all(), "measure", lambda _, names: iter(told))
    monkeypatch.setattr(sys, "argv", ["statistics_all.py", *options])
    return statistics_all().main()


def test_it_measures_what_it_names(told):
    ((result, cpu_s),) = told
    assert (result.name, result.seed) == ("precision-ladder", 1)
    assert cpu_s > 0.0
    names = ("false-alarms", "null-streams", "delay", "recorded-delay", "precision-ladder")
    assert names == statistics_all().EXPERIMENTS


def test_the_benchmark_beside_it_is_one_of_them(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import null_streams

    monkeypatch.setattr(null_streams, "QUICK", 2)
    setting = Setting(seed=1, is_quick=True)
    ((result, cpu_s),) = statistics_all().measure(setting, names=("null-streams",))
    assert (result.name, result.seed) == ("null-streams", 1)
    assert set(result.table("null streams").column("row")) == set(null_streams.ROWS)
    assert cpu_s > 0.0


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
        statistics_all(), "measure", lambda _, names: asked.append(names) or iter([(Result("x", 0, ()), 1.0)])
    )
    monkeypatch.setattr(sys, "argv", ["statistics_all.py", *options])
    statistics_all().main()
    assert asked == [names or statistics_all().EXPERIMENTS]


def test_recordings_come_from_the_first_folder_that_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("PARITAS_RECORDINGS", str(tmp_path / "gone"))
    monkeypatch.setenv("PARITAS_SHARED_DATA", str(tmp_path))
    assert statistics_all().recordings(None) == tmp_path
    assert statistics_all().recordings(tmp_path.parent) == tmp_path.parent
