"""Calibration: a share for each cause and score that never falls, fitted as its page says."""

import json
import sys
from functools import cache

import pytest
from benchmark_scripts import script
from cause_scenes import case

from paritas.detectors.diagnosis import Cause
from paritas.detectors.diagnosis.calibration import EDGES, RIGHT, confidence
from paritas.detectors.diagnosis.causes import MIN_CONFIDENCE
from paritas.detectors.diagnosis.faults import FAULTS
from paritas.detectors.diagnosis.scores import SCORES


def accuracy():
    return script("diagnosis_accuracy")


def test_every_scored_cause_has_a_table_that_rises():
    assert set(RIGHT) == set(SCORES)
    for numbers in RIGHT.values():
        assert len(numbers) == len(EDGES) + 1
        assert list(numbers) == sorted(numbers)
        assert 0.0 < numbers[0] < MIN_CONFIDENCE <= numbers[-1] < 1.0


@pytest.mark.parametrize(("score", "place"), [(0.0, 0), (0.2, 1), (0.5, 2), (0.79, 3), (0.9, 4), (1.0, 5)])
def test_a_score_falls_into_its_range(score, place):
    assert confidence(Cause.STALE, score) == RIGHT[Cause.STALE][place]


def test_pooled_shares_never_fall():
    right, seen = {0: 9, 1: 1, 5: 98}, {0: 10, 1: 10, 5: 100}
    filled = [{i: table.get(i, 0) for i in range(6)} for table in (right, seen)]
    told = accuracy().rising(*filled, [0.5] * 6)
    assert told == sorted(told)
    assert told[0] == told[1] == round((9 + 1 + 1 + 1) / (10 + 10 + 4), 3)
    assert told[5] == round(99 / 102, 3)


# ---- the benchmark itself, small


@cache
def measured():
    return accuracy().measure(209, count=60)


def test_most_names_are_right_where_there_is_an_alarm():
    told = measured()["drawn"]
    assert told["cases"] == 60
    assert told["alarmed"] >= 40
    assert told["top1"] >= 0.9
    assert told["wrong_name"] <= 0.1
    assert told["below"] == 0


def test_a_summary_counts_what_it_was_given():
    def row(truth, named, confidence=0.95, **more):
        known = {"alarm": True, "place": "", "fault": "f", "share": "all", "kernel": "bf16", "level": "mild"}
        return {**known, "truth": truth, "named": named, "confidence": confidence, "located": False, **more}

    rows = [
        row("shift", "shift"),
        row("shift", "unknown", 0.3),
        row("stale_weights", "shift", 0.7),
        row("shift", "shift", place="replica=r1", located=True),
        {**row("shift", ""), "alarm": False},
    ]
    told = accuracy().summary(rows)
    assert (told["cases"], told["alarmed"], told["located"]) == (5, 4, 1.0)
    assert (told["top1"], told["unknown"], told["wrong_name"]) == (0.5, 0.25, 0.25)
    assert told["confusion"] == {"shift": {"shift": 2, "unknown": 1}, "stale_weights": {"shift": 1}}
    assert [(line["from"], line["cases"], line["right"]) for line in told["reliability"]] == [
        (0.7, 1, 0.0),
        (0.95, 2, 1.0),
    ]
    assert told["calibration_error"] == pytest.approx((0.7 + 2 * 0.05) / 3)
    assert told["below"] == 0
    assert told["by_severity"] == {"mild": [0.5, 4]}
    assert told["misses"] == [
        ["f", "mild", "bf16", "all", "shift", 1],
        ["f", "mild", "bf16", "all", "unknown", 1],
    ]


def test_the_seeds_that_are_held_out_are_no_others():
    module = accuracy()
    developed = set(range(201, 210))
    assert module.HELD_OUT not in developed | set(module.TRAINING)
    assert developed.isdisjoint(module.TRAINING)


def test_how_bad_a_case_is_has_a_name():
    made = [case("warm_sampler", severity) for severity in FAULTS["warm_sampler"].severities]
    assert [accuracy().level(one) for one in made] == ["mild", "mild", "middle", "middle", "bad"]


def test_a_run_goes_on_from_the_rows_it_kept(tmp_path):
    kept = tmp_path / "rows.jsonl"
    whole = list(accuracy().measure_drawn(209, 6))
    assert list(accuracy().measure_drawn(209, 6, kept)) == whole
    lines = kept.read_text().splitlines()
    assert len(lines) == 6
    kept.write_text("".join(line + "\n" for line in lines[:4]))
    assert list(accuracy().measure_drawn(209, 6, kept)) == whole
    assert kept.read_text().splitlines() == lines


def test_the_figures_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    script("diagnosis_figures").draw(measured()["drawn"], tmp_path / "new")
    for name in ("confusion", "reliability"):
        assert (tmp_path / "new" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_the_benchmark_prints_lines_or_json(options, capsys, monkeypatch):
    told = measured()
    monkeypatch.setattr(accuracy(), "measure", lambda seed, **_: told)
    monkeypatch.setattr(sys, "argv", ["diagnosis_accuracy.py", *options])
    accuracy().main()
    out = capsys.readouterr().out
    if options:
        assert json.loads(out) == json.loads(json.dumps(told))
    else:
        assert "what is true: what was named" in out
