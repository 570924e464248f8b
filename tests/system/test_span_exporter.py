"""The Kafka span exporter: the real OpenTelemetry SDK, the real broker, and what a host must never notice."""

import os
import threading
from collections import Counter
from dataclasses import replace

import pytest

pytest.importorskip("kafka", reason="kafka-python is not installed (pip install 'paritas[kafka]')")
pytest.importorskip(
    "opentelemetry.sdk", reason="opentelemetry-sdk is not installed (pip install 'paritas[otel]')"
)

from free_ports import free_ports
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExportResult
from system.flink_cluster import until
from system.kafka_topics import CLOCK, fresh_topic, origins, read_topic

from paritas.agent.eventlog.kafka_settings import KafkaSettings
from paritas.agent.otel_exporter import KafkaSpanExporter
from paritas.wire import RECORD_LIMIT_BYTES

PATIENT_S = 60.0  # of a shutdown that must deliver: the product's own few seconds are for hosts that end


@pytest.fixture
def settings(serving_broker, request):
    """A new topic of two partitions."""
    return fresh_topic(serving_broker, request)


def nowhere():
    """A cluster that is down."""
    return KafkaSettings((f"127.0.0.1:{free_ports(1)[0]}",), connect_timeout_s=0.2)


def traced(exporter, processor=BatchSpanProcessor):
    provider = TracerProvider(resource=Resource({"service.name": "host"}), shutdown_on_exit=False)
    provider.add_span_processor(processor(exporter))
    return provider, provider.get_tracer("test")


def spans_of(records):
    """Name and trace id of every span, by record key; a record is about one trace."""
    found = Counter()
    for record in records:
        for source in ExportTraceServiceRequest.FromString(record.value).resource_spans:
            for span in (span for scope in source.scope_spans for span in scope.spans):
                assert span.trace_id.hex().encode() == record.key
                found[span.name] += 1
    return found


def assert_balanced(counters):
    assert counters.accepted == counters.delivered + sum(counters.dropped.values()) + counters.queued


def test_spans_arrive_one_trace_a_record(settings):
    exporter = KafkaSpanExporter(settings, shutdown_timeout_s=PATIENT_S)
    provider, tracer = traced(exporter)
    for number in range(20):
        with tracer.start_as_current_span(f"root-{number}"), tracer.start_as_current_span("child"):
            pass
    provider.shutdown()
    records, skipped = read_topic(settings)
    assert spans_of(records) == {"child": 20, **{f"root-{n}": 1 for n in range(20)}}
    assert (len(records), skipped) == (20, {})
    assert {dict(record.headers)["paritas-schema"] for record in records} == {b"1"}
    assert set(origins(records).values()) == {1}
    counters = exporter.counters()
    assert (counters.accepted, counters.delivered, counters.dropped) == (40, 40, {})


def test_a_value_keeps_resource_scope_and_attributes(settings):
    provider, tracer = traced(KafkaSpanExporter(settings, shutdown_timeout_s=PATIENT_S))
    with tracer.start_as_current_span("one", attributes={"gen_ai.request.model": "m", "n": 3}) as span:
        parent = span.get_span_context()
    provider.shutdown()
    [record] = read_topic(settings)[0]
    [source] = ExportTraceServiceRequest.FromString(record.value).resource_spans
    [scope] = source.scope_spans
    [told] = scope.spans
    assert {a.key: a.value.string_value or a.value.int_value for a in told.attributes} == {
        "gen_ai.request.model": "m",
        "n": 3,
    }
    assert source.resource.attributes[0].value.string_value == "host"
    assert (scope.scope.name, told.span_id) == ("test", parent.span_id.to_bytes(8, "big"))


def test_a_large_trace_becomes_several_records(settings):
    exporter = KafkaSpanExporter(settings, shutdown_timeout_s=PATIENT_S)
    provider, tracer = traced(exporter)
    with tracer.start_as_current_span("root"):
        for _ in range(20):
            with tracer.start_as_current_span("large", attributes={"text": "x" * 100_000}):
                pass
    provider.shutdown()
    records = read_topic(settings)[0]
    assert spans_of(records) == {"root": 1, "large": 20}
    assert len({record.key for record in records}) == 1
    assert all(len(record.value) <= RECORD_LIMIT_BYTES for record in records)


def test_a_span_no_broker_takes_is_counted(settings):
    exporter = KafkaSpanExporter(settings, shutdown_timeout_s=PATIENT_S)
    provider, tracer = traced(exporter)
    with tracer.start_as_current_span("huge", attributes={"text": "x" * 1_100_000}):
        pass
    with tracer.start_as_current_span("small"):
        pass
    provider.shutdown()
    assert spans_of(read_topic(settings)[0]) == {"small": 1}
    counters = exporter.counters()
    assert (counters.accepted, counters.delivered, counters.dropped) == (2, 1, {"too_large": 1})


@pytest.mark.parametrize("processor", [BatchSpanProcessor, SimpleSpanProcessor])
def test_a_host_does_not_notice_that_the_cluster_is_down(processor):
    exporter = KafkaSpanExporter(nowhere(), limit_bytes=2_000, shutdown_timeout_s=0.1)
    provider, tracer = traced(exporter, processor)
    for _ in range(50):
        with tracer.start_as_current_span("span"):
            pass
    assert not exporter.force_flush(timeout_millis=1) or processor is BatchSpanProcessor
    provider.shutdown()
    counters = exporter.counters()
    assert (counters.accepted, counters.delivered, counters.queued) == (50, 0, 0)
    assert set(counters.dropped) <= {"queue_full", "shutdown"}
    assert_balanced(counters)


def test_a_full_queue_answers_failure():
    exporter = KafkaSpanExporter(nowhere(), limit_bytes=1_000, shutdown_timeout_s=0)
    _, tracer = traced(exporter)
    spans = [tracer.start_span(f"span-{n}") for n in range(10)]
    for span in spans:
        span.end()
    assert exporter.export(spans) is SpanExportResult.FAILURE
    assert exporter.counters().dropped["queue_full"] > 0
    exporter.shutdown()
    exporter.shutdown()
    assert exporter.export(spans) is SpanExportResult.FAILURE
    assert_balanced(exporter.counters())


def test_a_span_that_cannot_be_encoded_is_counted_not_raised(settings):
    exporter = KafkaSpanExporter(settings, shutdown_timeout_s=PATIENT_S)
    _, tracer = traced(exporter)
    good, bad = tracer.start_span("good"), tracer.start_span("bad")
    good.end()
    bad._end_time = "noon"
    assert exporter.export([bad, good]) is SpanExportResult.FAILURE
    assert exporter.force_flush()
    counters = exporter.counters()
    assert (counters.delivered, counters.dropped) == (1, {"not_encoded": 1})
    exporter.shutdown()


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.thorough), "kill"])
def test_every_span_is_accounted_for_when_the_broker_goes_away(how, settings, serving_broker):
    impatient = replace(settings, connect_timeout_s=1, request_timeout_s=1, delivery_timeout_s=2)
    exporter = KafkaSpanExporter(impatient, shutdown_timeout_s=PATIENT_S)
    provider, tracer = traced(exporter, SimpleSpanProcessor)
    for number in range(300):
        with tracer.start_as_current_span(f"span-{number}", attributes={"text": "x" * 5_000}):
            pass
        if number == 150:
            getattr(serving_broker, how)()
        assert_balanced(exporter.counters())
    until(lambda: exporter.counters().faults, timeout_s=PATIENT_S, what=lambda: str(exporter.counters()))
    serving_broker.start()
    provider.shutdown()
    counters = exporter.counters()
    assert (counters.accepted, counters.delivered, counters.dropped) == (300, 300, {})
    records = read_topic(settings)[0]
    unique = dict(zip(origins_in_order(records), records, strict=True))
    assert spans_of(unique.values()) == {f"span-{n}": 1 for n in range(300)}


def origins_in_order(records):
    return [next(iter(origins([record]))) for record in records]


def test_a_forked_worker_exports_on_its_own(settings):
    """Both processes export before and after; numbers of one are never those of the other."""
    exporter = KafkaSpanExporter(settings, shutdown_timeout_s=PATIENT_S)
    _, tracer = traced(exporter)
    export(exporter, tracer, "before")
    child = os.fork()
    if child == 0:
        done = export(exporter, tracer, "child") and exporter.force_flush(60_000)
        os._exit(0 if done else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    export(exporter, tracer, "parent")
    exporter.shutdown()
    records = read_topic(settings)[0]
    assert spans_of(records) == {"before": 1, "child": 1, "parent": 1}
    assert set(origins(records).values()) == {1}


def export(exporter, tracer, name):
    span = tracer.start_span(name)
    span.end()
    return exporter.export([span]) is SpanExportResult.SUCCESS


def test_shutdown_keeps_its_deadline():
    """A cluster that takes the connection and says nothing, as a frozen broker does."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = KafkaSettings((f"127.0.0.1:{silent.getsockname()[1]}",))
        exporter = KafkaSpanExporter(settings, shutdown_timeout_s=0.2)
        _, tracer = traced(exporter)
        export(exporter, tracer, "span")
        begun_ns = CLOCK.monotonic_ns()
        exporter.shutdown()
        took_s = (CLOCK.monotonic_ns() - begun_ns) / 1e9
    assert took_s < 8  # far less than the 10 s and more that connecting waits
    assert exporter.counters().dropped == {"shutdown": 1}


def test_it_is_not_traced_itself(settings):
    """An instrumented Kafka client must see that it is called from an exporter."""
    from opentelemetry import context

    from paritas.agent.otel_exporter import _suppress_instrumentation

    seen = []

    def look():
        _suppress_instrumentation()
        seen.append(context.get_value(context._SUPPRESS_INSTRUMENTATION_KEY))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [True]
    assert context.get_value(context._SUPPRESS_INSTRUMENTATION_KEY) is None
