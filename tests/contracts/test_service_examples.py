"""The example contracts of the service and of a sampled stream, from the file to the verdict."""

import json
from pathlib import Path

import numpy as np
import pytest
from objective_recordings import record

from paritas.commands.offline import judge, recorded
from paritas.contracts.lint import lint
from paritas.contracts.load import load_contract
from paritas.errors import UsageError
from paritas.histograms import ExponentialHistogram
from paritas.records import Reason, State

FOLDER = Path(__file__).parents[2] / "examples/contracts"
NS = 1_000_000_000


@pytest.mark.parametrize("name", ["service", "sampled"])
def test_an_example_is_sound_and_says_what_it_is_for(name):
    contract = load_contract(FOLDER / f"{name}.yaml")
    assert (contract.name, lint(contract)) == (name, ())
    assert (FOLDER / f"{name}.yaml").read_text().startswith("# ")


def served(folder, *, slow):
    """Record 400 sequences, ten a second, with a latency each."""
    rng = np.random.default_rng(3)

    def labels(i, _ids):
        latency = 1.5 if rng.random() < slow else 0.2
        return {"event_ns": i * NS // 10, "replica": f"r{i % 2}", "metrics": {"first_token_latency": latency}}

    return record(folder, labels=labels)


def service(folder, *, slow, metrics=None, attempt=None):
    contract = load_contract(FOLDER / "service.yaml")
    return judge(contract, recorded(*served(folder, slow=slow)), metrics=metrics, attempt=attempt)


def told(judgement):
    return {(v.clause, v.slice): (v.state, v.reason) for v in judgement.verdicts}


def test_a_slow_service_is_violated_in_windows_of_its_replicas_and_lengths(tmp_path):
    found = service(tmp_path, slow=0.6)
    said = told(found)
    for name in ("all", "replica=r0", "replica=r1", "length=0-127"):
        assert said["ttft", name] == (State.VIOLATED, Reason.REFUTED)
    assert next(v.units for v in found.verdicts if v.clause == "ttft") == 40
    assert said["itl", "all"][0] is State.NO_DATA
    assert str(found.level) == "offline_ci, attempt 1: a pass spends 0.00608 of alpha 0.01"


def test_a_fast_service_passes_at_its_first_attempt_and_not_at_a_late_one(tmp_path):
    first = told(service(tmp_path, slow=0.0))
    late = told(service(tmp_path, slow=0.0, attempt=1000))
    assert first["ttft", "all"][0] is State.UNDECIDED  # forty windows are too few for any attempt
    assert first["paired", "all"] == (State.CONFORMING, Reason.MATCHED) == late["paired", "all"]


def metrics_of(path, *, slow):
    """Write 200 points of ten requests as the Collector does."""
    with path.open("w") as file:
        for second in range(200):
            count = round(10 * slow)
            h = ExponentialHistogram.of(np.array([1.5] * count + [0.2] * (10 - count)), scale=5)
            buckets = {"offset": h.offset, "bucketCounts": [str(n) for n in h.counts.tolist()]}
            point = {"timeUnixNano": str(second * NS), "count": "10", "scale": 5, "positive": buckets}
            histogram = {"aggregationTemporality": 1, "dataPoints": [point]}
            metric = {
                "name": "gen_ai.server.time_to_first_token",
                "unit": "s",
                "exponentialHistogram": histogram,
            }
            line = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
            file.write(json.dumps(line) + "\n")
    return path


@pytest.mark.parametrize(("slow", "state"), [(0.0, State.CONFORMING), (0.5, State.VIOLATED)])
def test_histograms_are_judged_instead_of_single_timings(tmp_path, slow, state):
    found = service(tmp_path, slow=0.9, metrics=metrics_of(tmp_path / "metrics.json", slow=slow))
    assert told(found)["ttft", "all"][0] is state


def test_a_metrics_file_without_latencies_is_one_clear_error(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text('{"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "up", "gauge": {}}]}]}]}\n')
    with pytest.raises(UsageError) as caught:
        service(tmp_path, slow=0.0, metrics=path)
    assert str(caught.value) == f"{path}: no histogram of latencies (0 another_metric)"
    assert caught.value.hint.startswith("known are exponential histograms called gen_ai.server.time_to_first")


def tail_sampled(folder, *, broken):
    """Record what a tail-based sampler keeps of 4000 sequences, of which some are broken."""
    paths = record(folder, sequences=4000, tokens=4, noise=0.05)
    worse = record(folder / "worse", sequences=4000, tokens=4, noise=2.0)
    rng = np.random.default_rng(8)
    lines = [[path.read_text().splitlines() for path in pair] for pair in (paths, worse)]
    kept = ([], [])
    for i in range(4000):
        is_broken = rng.random() < broken
        probability = 1.0 if is_broken else 0.1
        if rng.random() < probability:
            for side in (0, 1):
                row = json.loads(lines[is_broken][side][i])
                kept[side].append(json.dumps({**row, "sampling_probability": probability}))
    for path, rows in zip(paths, kept, strict=True):
        path.write_text("\n".join(rows) + "\n")
    return paths


@pytest.mark.parametrize(("broken", "state"), [(0.02, State.CONFORMING), (0.6, State.VIOLATED)])
def test_a_tail_that_was_kept_weighs_what_it_is(tmp_path, broken, state):
    (tmp_path / "worse").mkdir()
    found = judge(load_contract(FOLDER / "sampled.yaml"), recorded(*tail_sampled(tmp_path, broken=broken)))
    assert told(found)["token-tv", "all"][0] is state
    assert found.sampling["unknown"] == 0 < found.sampling["weighed"]
