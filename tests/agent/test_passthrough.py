"""What vLLM sent comes out of the event log with the same meaning, by whichever way it came in."""

import gzip
import urllib.request
from collections import Counter

import grpc
from agent_scenes import AGENT, recorded
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from paritas.agent.agent import Agent
from paritas.agent.config import AgentConfig, EmbeddedTarget, HealthSettings, ReceiverSettings, SpoolSettings
from paritas.agent.eventlog import EmbeddedReader
from paritas.clock import SystemClock
from paritas.wire import WireRecord, decode
from paritas.wire.sender import Sender


def spans(values):
    """Every span with its scope and its resource, counted."""
    return Counter(
        (
            source.resource.SerializeToString(deterministic=True),
            source.schema_url,
            scope.scope.SerializeToString(deterministic=True),
            scope.schema_url,
            span.SerializeToString(deterministic=True),
        )
        for value in values
        for source in TracesData.FromString(value).resource_spans
        for scope in source.scope_spans
        for span in scope.spans
    )


def configured(path):
    receivers = ReceiverSettings(path / "s", (), "127.0.0.1:0", "127.0.0.1:0")
    return AgentConfig(
        AGENT,
        SpoolSettings(path / "spool"),
        EmbeddedTarget(path / "log", partitions=3),
        receivers,
        health=HealthSettings("", report_s=0.0),
    )


def test_every_span_of_vllm_comes_out_as_it_went_in(tmp_path):
    with Agent(configured(tmp_path), clock=SystemClock()) as agent:
        with Sender(tmp_path / "s") as sender:
            for body in recorded():
                sender.send(WireRecord(b"", body))
        for body in recorded():
            headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
            asked = urllib.request.Request(
                f"http://{agent.addresses.http}/v1/traces", gzip.compress(body), headers
            )
            with urllib.request.urlopen(asked, timeout=60) as answer:
                assert answer.status == 200
        with grpc.insecure_channel(agent.addresses.grpc, compression=grpc.Compression.Gzip) as channel:
            for body in recorded():
                TraceServiceStub(channel).Export(ExportTraceServiceRequest.FromString(body), timeout=60)
        agent.drain()
    with EmbeddedReader(tmp_path / "log") as log:
        stored = [stored for n in range(3) for stored in log.read(n, 0, limit=1000)]
    sent = spans(recorded())
    assert len(sent) > 5
    assert spans(one.record.value for one in stored) == Counter({span: 3 * n for span, n in sent.items()})
    assert all(decode(one.record.value).foreign_spans > 0 for one in stored)
    # One sequence stays in one partition: the key is the trace, and says so.
    keys = {one.record.key: one.position.partition for one in stored}
    assert all(keys[one.record.key] == one.position.partition for one in stored)
