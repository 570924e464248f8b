"""Programs nobody here wrote read our topic: the unmodified OpenTelemetry Collector and Jaeger 2.

Broker, collector, Jaeger and recordings are real.  The tests with a sink count what a backend
receives; those with Jaeger ask its query API, as its page does.
"""

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from system.otel_parts import (
    OTEL,
    answer_of,
    collector,
    error_lines,
    jaeger,
    metric,
    span_sink,
    spans_of,
    wait_until,
)
from system.parts import why_not
from system.recorded_records import (
    AGENT,
    PAIRS,
    PARTITIONS,
    SERVICES,
    filled_topic,
    recorded_traces,
    records_of,
)

from paritas.clock import SystemClock
from paritas.records import Role
from paritas.wire import decode, names

pytestmark = [
    pytest.mark.thorough,  # both programs take minutes to build
    pytest.mark.usefixtures("programs"),
    pytest.mark.timeout(1200),  # the first test may have to build the programs
]

KEEP_COLUMNS = "yaml:service::pipelines::traces::processors: []"
NOT_OTLP = b'{"resourceSpans": []}'


@pytest.fixture(scope="module")
def programs():
    """The collector and Jaeger, built; without them nothing here can run."""
    for part in ("collector", "jaeger"):
        if reason := why_not(part):
            pytest.skip(reason)


@pytest.fixture(scope="module")
def traces():
    """Every shipped recording, at times of now: Jaeger's page searches the recent past."""
    base_ns = SystemClock().now_ns()
    return [trace for run_id in PAIRS for trace in recorded_traces(run_id, base_ns=base_ns)]


@pytest.fixture(scope="module")
def records(traces):
    return records_of(traces)


@pytest.fixture(scope="module")
def topic(kafka_broker, records):
    """A topic that holds the records, each under its trace id."""
    kafka_broker.start()
    return filled_topic(kafka_broker.bootstrap, "otlp_spans.backends", records)


def settings(broker, topic, group, **more):
    return {"KAFKA_BROKERS": broker.bootstrap, "KAFKA_TOPIC": topic, "KAFKA_GROUP": group, **more}


def sent_ids(records):
    return {span.span_id for record in records for span in spans_of(record.value)}


def keys(span):
    return {attribute.key for attribute in span.attributes}


def agents_named(bodies):
    """Agents that the collector read from the records' headers."""
    sources = [r for body in bodies for r in ExportTraceServiceRequest.FromString(body).resource_spans]
    found = [a for source in sources for a in source.resource.attributes if a.key.startswith("kafka.header.")]
    return {(a.key, a.value.string_value) for a in found}


def test_collector_reads_every_span_and_drops_the_columns(serving_broker, topic, records, tmp_path):
    with span_sink() as sink:
        environment = settings(serving_broker, topic, "every-span", BACKEND_URL=sink.url)
        with collector(OTEL / "collector.yaml", tmp_path / "log", environment=environment) as part:
            wait_until(lambda: sink.span_ids() == sent_ids(records), "every span at the backend", alive=part)
            # It counts a span when the backend has answered, so a moment after the sink has it.
            accepted = lambda: metric(part, "otelcol_receiver_accepted_spans")  # noqa: E731
            wait_until(lambda: accepted() >= len(records), "every span counted", alive=part)
            told = accepted(), metric(part, "otelcol_receiver_refused_spans")
        errors = error_lines(part)
    assert (*told, errors) == (len(records), 0, [])
    assert len(sink.spans()) == len(records)
    assert not any(names.TOKENS in keys(span) for span in sink.spans())
    assert all({names.SEQUENCE_ID, names.LOGPROB_MEAN_NATS} <= keys(span) for span in sink.spans())
    assert agents_named(sink.requests()) == {(f"kafka.header.{names.HEADER_AGENT}", AGENT)}


def test_columns_come_through_the_collector_bit_for_bit(serving_broker, topic, traces, tmp_path):
    with span_sink() as sink:
        environment = settings(serving_broker, topic, "columns", BACKEND_URL=sink.url)
        config, log = OTEL / "collector.yaml", tmp_path / "log"
        with collector(config, log, environment=environment, overlays=[KEEP_COLUMNS]) as part:
            wait_until(lambda: len(sink.span_ids()) == len(traces), "every span at the backend", alive=part)
    arrived = [trace for body in sink.requests() for trace in decode(body).traces]
    assert {columns(trace) for trace in arrived} == {columns(trace) for trace in traces}


def columns(trace):
    """Identity and numbers of a trace, as values that compare bit for bit."""
    rows = (trace.logprob, trace.token, trace.status)
    return (trace.run_id, trace.sequence_id, trace.kernel.role, *(row.tobytes() for row in rows))


def test_a_backend_that_is_down_for_a_while_gets_every_span(serving_broker, topic, records, tmp_path):
    with span_sink() as sink:
        sink.refusing.set()
        environment = settings(serving_broker, topic, "backend-down", BACKEND_URL=sink.url)
        with collector(OTEL / "collector.yaml", tmp_path / "log", environment=environment) as part:
            wait_until(lambda: sink.refused >= 3, "refusals", alive=part)
            assert sink.span_ids() == set()
            sink.refusing.clear()
            wait_until(lambda: sink.span_ids() == sent_ids(records), "every span at the backend", alive=part)


def test_a_killed_collector_reads_again_what_no_backend_took(serving_broker, topic, records, tmp_path):
    with span_sink() as sink:
        sink.refusing.set()
        environment = settings(serving_broker, topic, "killed", BACKEND_URL=sink.url)
        with collector(OTEL / "collector.yaml", tmp_path / "first", environment=environment) as part:
            wait_until(lambda: sink.refused >= 12, "refusals beyond a commit of offsets", alive=part)
            part.process.kill()
        sink.refusing.clear()
        with collector(OTEL / "collector.yaml", tmp_path / "second", environment=environment) as part:
            wait_until(lambda: sink.span_ids() == sent_ids(records), "every span at the backend", alive=part)


def test_a_record_that_is_not_otlp_stops_no_partition(serving_broker, records, tmp_path):
    topic = filled_topic(serving_broker.bootstrap, "otlp_spans.poisoned", records, before=[NOT_OTLP])
    with span_sink() as sink:
        environment = settings(serving_broker, topic, "poisoned", BACKEND_URL=sink.url)
        with collector(OTEL / "collector.yaml", tmp_path / "log", environment=environment) as part:
            wait_until(lambda: sink.span_ids() == sent_ids(records), "every span at the backend", alive=part)
        assert len([line for line in error_lines(part) if "unmarshal" in line]) >= PARTITIONS


def test_jaeger_shows_a_sequence_as_one_trace_of_both_kernels(serving_broker, topic, traces, tmp_path):
    with jaeger(OTEL / "jaeger.yaml", tmp_path / "jaeger") as backend:
        environment = settings(serving_broker, topic, "to-jaeger", BACKEND_URL=backend.url("OTLP_HTTP_PORT"))
        with collector(OTEL / "collector.yaml", tmp_path / "collector", environment=environment) as part:
            wait_until(lambda: holds(backend, traces), "every trace in Jaeger", alive=part)
        check_trace(trace_of(backend, traces[0].trace_id), traces[0])


def test_jaeger_reads_the_topic_itself(serving_broker, topic, traces, tmp_path):
    environment = settings(serving_broker, topic, "jaeger-itself")
    with jaeger(OTEL / "jaeger-ingester.yaml", tmp_path / "jaeger", environment=environment) as backend:
        wait_until(lambda: holds(backend, traces), "every trace in Jaeger", alive=backend)
        check_trace(trace_of(backend, traces[0].trace_id), traces[0])


def holds(backend, traces):
    """Whether each kernel's search gives every sequence, with both spans in each trace."""
    wanted = {trace.trace_id for trace in traces}
    return all(searched(backend, service) == wanted for service in SERVICES.values())


def searched(backend, service):
    """Identities of the two-span traces a search for the service gives."""
    found = answer_of(backend, f"/api/traces?service={service}&limit=1500")["data"] or []
    return {trace["traceID"] for trace in found if len(trace["spans"]) == 2}


def trace_of(backend, trace_id):
    [trace] = answer_of(backend, f"/api/traces/{trace_id}")["data"]
    return trace


def check_trace(trace, sent):
    """Both kernels' spans, each under its process, with small attributes and without the columns."""
    processes = {name: process["serviceName"] for name, process in trace["processes"].items()}
    spans = {processes[span["processID"]]: span for span in trace["spans"]}
    assert spans.keys() == set(SERVICES.values())
    assert not any(span["warnings"] for span in spans.values())
    for role, service in SERVICES.items():
        tags = {tag["key"]: tag["value"] for tag in spans[service]["tags"]}
        assert (spans[service]["operationName"], tags[names.ROLE]) == (names.SPAN_NAME, role.value)
        assert (tags[names.RUN_ID], tags[names.SEQUENCE_ID]) == (sent.run_id, sent.sequence_id)
        assert names.TOKENS not in tags
        assert tags[names.LOGPROB_MEAN_NATS] < 0.0
    serving = {tag["key"]: tag["value"] for tag in spans[SERVICES[Role.INFERENCE]]["tags"]}
    assert serving[names.TOTAL_COUNT] == len(sent)
    assert serving[names.LOGPROB_MEAN_NATS] == pytest.approx(float(sent.logprob.astype(float).mean()))
