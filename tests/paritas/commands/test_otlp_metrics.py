"""OTLP metrics files: exponential histograms of latencies, and one clear error for anything else."""

import json

import numpy as np
import pytest

from paritas.commands.otlp_metrics import MetricsReader
from paritas.errors import UsageError

TTFT = "gen_ai.server.time_to_first_token"
HINT = "give what the Collector's file exporter writes: one OTLP/JSON metrics request a line"


def point(counts, *, start=1, end=2, **more):
    """Return one data point; integers are text where 64 bits wide, as OTLP/JSON has them."""
    return {
        "startTimeUnixNano": str(start),
        "timeUnixNano": str(end),
        "count": str(sum(counts)),
        "scale": 0,
        "positive": {"offset": -1, "bucketCounts": [str(n) for n in counts]},
        **more,
    }


def line(*points, name=TTFT, unit="s", temporality=1, kind="exponentialHistogram"):
    metric = {"name": name, "unit": unit, kind: {"dataPoints": list(points)}}
    if kind != "gauge":
        metric[kind]["aggregationTemporality"] = temporality
    resource = {"attributes": [{"key": "replica", "value": {"stringValue": "r1"}}]}
    return json.dumps({"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": [metric]}]}]})


def read(tmp_path, *lines):
    path = tmp_path / "metrics.json"
    path.write_text("\n".join(lines) + "\n")
    reader = MetricsReader(path)
    return list(reader.points()), dict(reader.passed)


def test_a_delta_point_is_what_it_says(tmp_path):
    told = point([3, 1], zeroCount="2", zeroThreshold=0.001, min=0.0005, max=1.5)
    told["attributes"] = [
        {"key": "streaming", "value": {"boolValue": True}},
        {"key": "n", "value": {"intValue": "7"}},
    ]
    (one,), passed = read(tmp_path, line(told))
    assert (one.statistic, one.event_ns, one.unit_s) == ("time_to_first_token", 2, 1.0)
    assert one.attributes == {"replica": "r1", "streaming": "true", "n": "7"}
    h = one.histogram
    assert (h.scale, h.offset, h.counts.tolist(), h.zero_count) == (0, -1, [3, 1], 2)
    assert (h.zero_threshold, h.low, h.high) == (0.001, 0.0005, 1.5)
    assert passed == {}


def test_milliseconds_keep_their_unit(tmp_path):
    (one,), _ = read(tmp_path, line(point([3]), unit="ms"))
    assert one.unit_s == 1e-3


def test_cumulative_points_become_differences_and_a_restart_starts_afresh(tmp_path):
    lines = [
        line(point([3, 1], end=2), temporality=2),
        line(point([5, 1], end=3), temporality=2),
        line(point([1, 0], start=4, end=5), temporality=2),
        line(point([1, 4], start=4, end=6), temporality=2),
    ]
    points, passed = read(tmp_path, *lines)
    assert [(p.event_ns, p.histogram.counts.tolist()) for p in points] == [(3, [2, 0]), (6, [0, 4])]
    assert all(np.isnan(p.histogram.high) for p in points)
    assert passed == {"starts_a_series": 2}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (line(point([1]), name="http.server.duration"), "another_metric"),
        (line({"count": "1"}, kind="histogram"), "not_exponential"),
        (line(point([1]), unit="{token}"), "unknown_unit"),
        (line(point([1], negative={"offset": 0, "bucketCounts": ["1"]})), "negative_values"),
        (line(point([1], scale=99)), "broken"),
        (line(point([2**64 - 1])), "broken"),
    ],
)
def test_what_tells_no_durations_is_passed_over_and_counted(tmp_path, text, why):
    assert read(tmp_path, text) == ([], {why: 1})


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "7", '{"resourceMetrics": 3}', '{"resourceMetrics": [{"scopeMetrics": "x"}]}', "[" * 5000],
)
def test_a_line_that_is_no_request_is_one_clear_error(tmp_path, text):
    with pytest.raises(UsageError) as caught:
        read(tmp_path, line(point([1])), text)
    assert str(caught.value) == f"{tmp_path}/metrics.json:2: no OTLP metrics request"
    assert caught.value.hint == HINT


def test_a_file_that_is_not_there_is_one_clear_error(tmp_path):
    with pytest.raises(UsageError) as caught:
        list(MetricsReader(tmp_path / "none.json").points())
    assert str(caught.value) == f"{tmp_path}/none.json: No such file or directory"
