"""The registry, the constants and what really goes over the wire are the same names."""

import re
import subprocess
import sys
from importlib import resources

import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from wire_strategies import full_trace

from paritas.agent.claim import Lost
from paritas.agent.own_spans import gap_record, health_record
from paritas.agent.reasons import DropReason
from paritas.commands.live_reading import Reading, RefitReading, instrument_name, otlp_metrics
from paritas.detectors.rosetta import METRICS
from paritas.proto.v1.token_block_pb2 import TokenBlock
from paritas.records import GpuReading, GpuSample, StepTime
from paritas.wire import Expected, Origin, Roster, encode, encode_reading, encode_roster, names, stamp

REGISTRY = yaml.safe_load(resources.files("paritas").joinpath("attributes.yaml").read_text())
ATTRIBUTES = {row["name"]: row for row in REGISTRY["attributes"]}
FAMILIES = {name.removesuffix("*") for name in ATTRIBUTES if name.endswith(".*")}
OTLP_TYPES = {"string": "string_value", "int": "int_value", "double": "double_value"} | {
    "boolean": "bool_value",
    "bytes": "bytes_value",
}


def test_constants_equal_the_registry():
    assert {name for name in ATTRIBUTES if not name.endswith("*")} == names.ATTRIBUTES
    assert {names.KERNEL_EXTRA_PREFIX, names.ATTRIBUTE_PREFIX} == FAMILIES
    assert REGISTRY["schema"] == names.SCHEMA
    assert (REGISTRY["span"]["name"], REGISTRY["span"]["scope"]) == (names.SPAN_NAME, names.SCOPE_NAME)


def test_a_full_trace_emits_every_name_with_the_declared_type():
    [record] = encode([full_trace()], resource={})
    span = ExportTraceServiceRequest.FromString(record.value).resource_spans[0].scope_spans[0].spans[0]
    emitted = {family(a.key): a.value.WhichOneof("value") for a in span.attributes}
    assert emitted == {name: OTLP_TYPES[row["type"]] for name, row in ATTRIBUTES.items()}


def family(name):
    return next((prefix + "*" for prefix in FAMILIES if name.startswith(prefix)), name)


def test_what_an_agent_says_of_itself_has_the_declared_names_and_types():
    lost = Lost(range(3, 9), DropReason.OVERFLOW)
    counts = {"accepted": 9, "delivered": 1, "queued": 2, "dropped.overflow": 6, "health": "ready"}
    records = [gap_record("a", "a", lost, now_ns=1), health_record("a", counts, now_ns=1)]
    emitted = {}
    for record in records:
        span = ExportTraceServiceRequest.FromString(record.value).resource_spans[0].scope_spans[0].spans[0]
        for a in span.attributes:
            name = re.sub(r"dropped\..*", "dropped.*", a.key)
            emitted[span.name, name] = a.value.WhichOneof("value")
    assert emitted == {(r["side"], r["name"]): OTLP_TYPES[r["type"]] for r in REGISTRY["agent_attributes"]}
    assert {r["name"] for r in REGISTRY["agent_spans"]} == {names.GAP_SPAN, names.HEALTH_SPAN}


def test_readings_have_the_declared_names_and_types():
    gpu = GpuReading(
        "GPU-1", "H100", "570.1", "9.0", mig=False, ecc=True, sm_clock_mhz=1, memory_clock_mhz=2,
        temperature_c=3, power_w=4.0, memory_used_bytes=5, memory_total_bytes=6, utilization=0.5, throttled=7,
        ecc_uncorrected=0,
    )  # fmt: skip
    readings = [StepTime("run", 1, 0.5, 0.25, "7", {"replica": "r"}), GpuSample("run", 1, gpu, {"node": "n"})]
    emitted = {}
    for reading in readings:
        value = encode_reading(reading, resource={}).value
        span = ExportTraceServiceRequest.FromString(value).resource_spans[0].scope_spans[0].spans[0]
        emitted |= {(span.name, family(a.key)): a.value.WhichOneof("value") for a in span.attributes}
    assert emitted == {(r["side"], r["name"]): OTLP_TYPES[r["type"]] for r in REGISTRY["reading_attributes"]}
    assert {r["name"] for r in REGISTRY["reading_spans"]} == {names.STEP_SPAN, names.GPU_SPAN}


def test_a_roster_has_the_declared_names_and_types():
    record = encode_roster(Roster("roster:a", 1, 2, (Expected("pod-7", 3),)), now_ns=1)
    span = ExportTraceServiceRequest.FromString(record.value).resource_spans[0].scope_spans[0].spans[0]
    emitted = {(span.name, a.key): a.value.WhichOneof("value") for a in span.attributes}
    assert emitted == {(r["side"], r["name"]): OTLP_TYPES[r["type"]] for r in REGISTRY["roster_attributes"]}
    assert {r["name"] for r in REGISTRY["roster_spans"]} == {names.ROSTER_SPAN}


def test_headers_equal_the_registry():
    [record] = encode([full_trace()], resource={})
    sent = [name for name, _ in stamp(record, Origin("a", 1, 2)).headers]
    assert sent == [row["name"] for row in REGISTRY["headers"]]


def test_token_block_fields_equal_the_registry():
    assert [field.name for field in TokenBlock.DESCRIPTOR.fields] == [
        row["name"] for row in REGISTRY["token_block"]
    ]


def test_the_metrics_a_detection_loop_pushes_are_registered():
    reading = Reading(
        "c",
        {"paired": 1},
        {("train", "valid"): 2},
        dict.fromkeys(METRICS, 0.5),
        1,
        RefitReading(1, 0, {("accepted", "certified"): 1}, {"held": 1}),
    )
    request = otlp_metrics(reading, start_ns=1, now_ns=2)
    (scope,) = request.resource_metrics[0].scope_metrics
    pushed = {}
    for metric in scope.metrics:
        points = metric.sum.data_points or metric.gauge.data_points
        kind = "counter" if metric.HasField("sum") else "gauge"
        pushed[metric.name] = (kind, metric.unit, sorted({a.key for p in points for a in p.attributes}))
    own = {m["name"]: (m["instrument"], m["unit"], sorted(m["attributes"])) for m in REGISTRY["metrics"]}
    peers = {m["name"]: ("gauge", "1", []) for m in REGISTRY["rosetta_metrics"] if "*" not in m["name"]}
    assert pushed == own | peers


def test_every_peer_metric_is_registered_under_its_own_name():
    rows = [m for m in REGISTRY["rosetta_metrics"] if "*" not in m["name"]]
    assert [f"{m['peer']}:{m['metric']}" for m in rows] == list(METRICS)
    assert [m["name"] for m in rows] == [instrument_name(name) for name in METRICS]
    (family,) = (m for m in REGISTRY["rosetta_metrics"] if "*" in m["name"])
    shown = instrument_name("prime_rl:mismatch_kl/math/mean")
    assert shown.startswith(family["name"].removesuffix("*"))


def test_every_row_is_complete_and_unique():
    for section, keys in (
        ("attributes", {"name", "type", "unit", "side", "description"}),
        ("agent_attributes", {"name", "type", "unit", "side", "description"}),
        ("agent_spans", {"name", "description"}),
        ("reading_attributes", {"name", "type", "unit", "side", "description"}),
        ("reading_spans", {"name", "description"}),
        ("roster_attributes", {"name", "type", "unit", "side", "description"}),
        ("roster_spans", {"name", "description"}),
        ("headers", {"name", "type", "description"}),
        ("token_block", {"name", "type", "unit", "shape", "description"}),
        ("metrics", {"name", "instrument", "unit", "attributes", "description"}),
        ("rosetta_metrics", {"name", "peer", "metric", "description"}),
    ):
        rows = REGISTRY[section]
        assert all(set(row) == keys for row in rows)
        assert all(row["description"].endswith(".") for row in rows)
        assert len({(row.get("side"), row["name"]) for row in rows}) == len(rows)
    assert {row["side"] for row in ATTRIBUTES.values()} <= {"both", "inference", "train"}


def test_nothing_of_ours_is_put_under_gen_ai():
    conventions = {"gen_ai.request.temperature", "gen_ai.request.top_p", "gen_ai.request.top_k"}
    assert {name for name in ATTRIBUTES if not name.startswith("paritas.")} == conventions


def test_importing_the_wire_format_imports_nothing_heavy():
    heavy = {"grpc", "yaml", "river", "scipy", "torch", "kafka", "pandas", "crc32c", "opentelemetry.sdk"}
    code = "import sys, paritas.wire; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "paritas.wire" in loaded
    assert not heavy & loaded
