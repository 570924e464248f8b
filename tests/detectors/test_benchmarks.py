"""The statistical promises, measured small: false alarms within budget, delays as published, a peer beside."""

import json
import sys

import numpy as np
import pytest
from benchmark_scripts import script

from paritas.detectors.statistics import UNIT_VALUES


def test_streams_at_every_limit_alarm_no_more_often_than_the_budget():
    measured = script("false_alarms").shared_budget(np.random.default_rng(1), 400, 150)
    assert measured <= script("false_alarms").BUDGET


def test_a_stream_beyond_its_limits_does_alarm():
    """The same bank and budget find a fault, so that the silence above means something."""
    module = script("false_alarms")

    def doubled(rng, rows, streams, real=module.boundary_values):
        return np.minimum(2.5 * real(rng, rows, streams), 1.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "boundary_values", doubled)
        assert module.shared_budget(np.random.default_rng(1), 40, 150) > 0.9


def test_the_values_of_the_boundary_have_the_limits_as_their_means():
    module = script("false_alarms")
    rows = module.rows_of(module.contract())[: len(module.contract().clauses)]
    rng = np.random.default_rng(2)
    means = np.mean([module.boundary_values(rng, rows, 4000) for _ in range(200)], axis=(0, 2))
    for row, mean in zip(rows, means, strict=True):
        assert mean == pytest.approx(row.tau, rel=0.06), row.clause.id


def test_the_classic_detector_stays_below_its_bound():
    measured = script("false_alarms").classic(np.random.default_rng(3), 120, 2000, 1e4)
    assert 0.0 < measured <= 2000 / 1e4


@pytest.mark.parametrize("pool", ["x1.5", "x3"])
@pytest.mark.parametrize("threshold", ["1e4", "1e5"])
def test_delays_are_those_of_the_note(threshold, pool):
    told = script("delay").measure_one(f"Shiryaev-Roberts A={threshold}", pool, 5, streams=60, change=500)
    assert told["missed"] == 0.0
    assert told["early"] <= 0.05
    assert told["median"] == pytest.approx(told["expected"], rel=0.2)


def test_the_pools_have_the_moments_of_the_note():
    module, rng = script("delay"), np.random.default_rng(1)
    for pool, (mean, p99) in module.POOLS.items():
        values = module.lognormal(rng, pool, 200_000)
        assert values.mean() == pytest.approx(mean, rel=0.01)
        assert np.quantile(values, 0.99) == pytest.approx(p99, rel=0.02)


def test_every_peer_is_measured_in_the_same_run():
    told = script("delay").measure(1, streams=2)
    assert {line["detector"] for line in told} == set(script("delay").EXPECTED)
    by_name = {(line["detector"], line["pool"]): line["median"] for line in told}
    assert by_name["ADWIN, min(x/.05, 1)", "x3"] > by_name["Shiryaev-Roberts A=1e5", "x3"]
    assert by_name["PageHinkley, default", "x3"] is None


def test_speed_is_measured_beside_river_on_the_same_machine():
    told = script("evidence_speed").measure(1, tokens=20_000, peer_tokens=500, lengths=(512,))
    (line,) = told["ours"]
    assert line["tokens_per_sequence"] == 512
    assert line["lists_compared"] < line["with_lists"] < line["tests"]
    assert min(line.values()) > 0 < min(told["river"].values())


def test_the_state_of_a_clause_and_slice_is_small():
    """The tests' own state; that of the diagnosis is bounded a slice, not a clause."""
    module = script("evidence_speed")
    _, evaluator = module.judge(module.stream(np.random.default_rng(1), 64, 20_000, lists=True))
    size = module.state_bytes(evaluator)
    assert size["rows"] == 10 * len(module.STATISTICS)
    assert size["tests"] <= 2048


def test_speed_leaves_out_only_what_needs_labels_of_the_task():
    judged = set(script("evidence_speed").STATISTICS)
    assert judged <= {*UNIT_VALUES, "pairing_rate"}
    assert {*UNIT_VALUES, "pairing_rate"} - judged == {
        "dpo_margin_drift",
        "ppo_clip_rate",
        "reward_gain",
        "reward_loss",
    }


def test_a_long_stream_prints_its_memory(capsys):
    module = script("evidence_speed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TOKENS", 20_000)
        module.run_long(0, 60_000)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 3
    assert all("MiB resident" in line for line in lines)


SMALL = {
    "false_alarms": {"streams": 20, "units": 8, "classic_streams": 5, "classic_units": 10},
    "delay": {"streams": 1},
    "evidence_speed": {"tokens": 5_000, "peer_tokens": 200, "lengths": (512,)},
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_a_benchmark_prints_lines_or_json(name, options, capsys, monkeypatch):
    module = script(name)
    told = module.measure(0, **SMALL[name])
    monkeypatch.setattr(module, "measure", lambda seed, **_: told)
    monkeypatch.setattr(module, "LONG_TOKENS", 5_000, raising=False)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *options])
    module.main()
    out = capsys.readouterr().out
    if options:
        assert json.loads(out) == json.loads(json.dumps(told))
    else:
        assert len(out.splitlines()) >= 2


def test_every_goal_of_speed_is_printed_as_met_or_missed(capsys):
    """The goals are the design's; what is measured decides, and a slow machine says MISS."""
    module, river = script("evidence_speed"), {"with_lists_mean": 1.5e5, "with_lists_detector": 2.5e4}
    told = {
        "ours": [{"tokens_per_sequence": 1024, "with_lists": 9.9e6, "tests": 1.2e7}],
        "river": river,
        "state_bytes": {"rows": 270, "all": 1100.0},
    }
    module.show_goals(told, [(10_000_000, 100 << 20), (100_000_000, 104 << 20)])
    lines = capsys.readouterr().out.splitlines()
    assert [line[:4] for line in lines] == ["PASS", "MISS", "PASS", "PASS", "PASS", "PASS", "load"]
    remembered = "with all that the diagnosis remembers"
    assert lines[1] == f"MISS  M tokens/s at 1024 tokens, {remembered}: 9.9 (goal 10.0)"
    module.show_goals(told | {"state_bytes": {"rows": 1, "all": 2049.0}}, [(1, 100), (2, 106)])
    assert [line[:4] for line in capsys.readouterr().out.splitlines()[4:6]] == ["MISS", "MISS"]
