"""OTLP metrics files → timing points: what the Collector's file exporter writes, one JSON request a line.

Read are exponential histograms under the names of `METRICS`.  A cumulative one becomes the difference to the
point before of its series; the first of a series, and the first after a restart, only say where it starts.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
from google.protobuf.json_format import ParseDict, ParseError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    ExponentialHistogramDataPoint,
    Metric,
)

from paritas.errors import UsageError
from paritas.histograms import ExponentialHistogram
from paritas.records.timing import TimingPoint

__all__ = ["METRICS", "MetricsReader"]

LINE_LIMIT_BYTES = 64 << 20
UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
# OpenTelemetry's semantic conventions for generative AI, and what engines expose to a Prometheus receiver.
METRICS: Mapping[str, str] = MappingProxyType(
    {
        "gen_ai.server.time_to_first_token": "time_to_first_token",
        "vllm:time_to_first_token_seconds": "time_to_first_token",
        "sglang:time_to_first_token_seconds": "time_to_first_token",
        "gen_ai.server.time_per_output_token": "inter_token_latency",
        "vllm:request_time_per_output_token_seconds": "inter_token_latency",
        "sglang:request_time_per_output_token_seconds": "inter_token_latency",
    }
)
HINT = "give what the Collector's file exporter writes: one OTLP/JSON metrics request a line"

Labels = Mapping[str, str]


@dataclass(slots=True)
class MetricsReader:
    """Reads a file and says what it passed over.

    Attributes
    ----------
    passed : Counter
        Data points that told no durations, by reason: ``another_metric``, ``not_exponential``,
        ``unknown_unit``, ``negative_values``, ``broken``, ``starts_a_series``.
    """

    path: Path
    passed: Counter[str] = field(default_factory=Counter)
    _last: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[int, ExponentialHistogram]] = field(
        default_factory=dict
    )

    def points(self) -> Iterator[TimingPoint]:
        """Yield the timing points in the order of the file.

        Raises
        ------
        UsageError
            If the file cannot be read, or a line is no metrics request.
        """
        try:
            with self.path.open("rb") as file:
                number = 0
                while line := file.readline(LINE_LIMIT_BYTES + 1):
                    number += 1
                    if line.strip():
                        yield from self._request(_parse(line, f"{self.path}:{number}"))
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror}", hint=HINT) from error

    def _request(self, request: ExportMetricsServiceRequest) -> Iterator[TimingPoint]:
        for resource in request.resource_metrics:
            outer = _labels(resource.resource.attributes)
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    yield from self._metric(metric, outer)

    def _metric(self, metric: Metric, outer: Labels) -> Iterator[TimingPoint]:
        kind = metric.WhichOneof("data")
        if why := _passed(metric, kind):
            self.passed[why] += len(getattr(metric, kind).data_points) if kind else 1
            return
        told = metric.exponential_histogram
        is_cumulative = told.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
        for point in told.data_points:
            labels = {**outer, **_labels(point.attributes)}
            histogram = self._histogram(point)
            if histogram is not None and is_cumulative:
                series = metric.name, tuple(sorted(labels.items()))
                histogram = self._new_since(series, point.start_time_unix_nano, histogram)
            if histogram is not None and histogram.total:
                unit_s = UNITS_S[metric.unit or "s"]
                yield TimingPoint(METRICS[metric.name], point.time_unix_nano, histogram, unit_s, labels)

    def _histogram(self, point: ExponentialHistogramDataPoint) -> ExponentialHistogram | None:
        """The values of a point; None, and a count, of one that has no sense as durations."""
        if any(point.negative.bucket_counts):
            self.passed["negative_values"] += 1
            return None
        try:
            return ExponentialHistogram(
                point.scale,
                point.zero_count,
                point.positive.offset,
                np.array(point.positive.bucket_counts, np.int64),
                point.zero_threshold,
                point.min if point.HasField("min") else float("nan"),
                point.max if point.HasField("max") else float("nan"),
            )
        except (ValueError, OverflowError):
            self.passed["broken"] += 1
            return None

    def _new_since(
        self, series: tuple[str, tuple[tuple[str, str], ...]], start_ns: int, now: ExponentialHistogram
    ) -> ExponentialHistogram | None:
        """What a cumulative series counted since its last point; None at its start."""
        before = self._last.get(series)
        self._last[series] = start_ns, now
        is_same = before is not None and before[0] == start_ns
        new = now.since(before[1]) if is_same and before is not None else None
        self.passed["starts_a_series"] += new is None
        return new


def _passed(metric: Metric, kind: str | None) -> str:
    """Why a metric tells no durations; empty if it does."""
    if metric.name not in METRICS:
        return "another_metric"
    if kind != "exponential_histogram":
        return "not_exponential"
    return "" if (metric.unit or "s") in UNITS_S else "unknown_unit"


def _parse(line: bytes, place: str) -> ExportMetricsServiceRequest:
    try:
        found = json.loads(line) if len(line) <= LINE_LIMIT_BYTES else None
        fields = found if isinstance(found, dict) else {}
        told = ParseDict(fields, ExportMetricsServiceRequest(), ignore_unknown_fields=True)
    except (ValueError, TypeError, RecursionError, ParseError, AttributeError) as error:
        raise UsageError(f"{place}: no OTLP metrics request", hint=HINT) from error
    if not isinstance(found, dict):
        raise UsageError(f"{place}: no OTLP metrics request", hint=HINT)
    return told


def _labels(attributes: object) -> dict[str, str]:
    """Attributes as text; what is a list or a map is left out."""
    told = {}
    for attribute in attributes:  # type: ignore[attr-defined]  # a repeated field has no exported type
        kind = attribute.value.WhichOneof("value")
        if kind in ("string_value", "int_value", "bool_value", "double_value"):
            value = getattr(attribute.value, kind)
            told[attribute.key] = str(value).lower() if isinstance(value, bool) else str(value)
    return told
