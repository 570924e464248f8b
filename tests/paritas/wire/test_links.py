"""The link to the engine's own trace travels with a trace."""

from dataclasses import replace

import pytest
from emitter_scenes import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from paritas.agent.otlp import own_trace_id
from paritas.wire import decode, encode
from paritas.wire.links import traceparent_in

GIVEN = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


def span_of(value):
    return ExportTraceServiceRequest.FromString(value).resource_spans[0].scope_spans[0].spans[0]


def test_a_trace_context_becomes_a_link_and_comes_back():
    (record,) = encode([replace(trace(1), traceparent=GIVEN)], resource={})
    (link,) = span_of(record.value).links
    assert (link.trace_id.hex(), link.span_id.hex()) == ("a" * 32, "b" * 16)
    assert decode(record.value).traces[0].traceparent == GIVEN
    assert own_trace_id(record.value).hex() == trace(1).trace_id


@pytest.mark.parametrize("text", ["", "x", GIVEN.upper(), GIVEN + "-more"])
def test_what_is_no_trace_context_is_no_link(text):
    (record,) = encode([replace(trace(1), traceparent=text)], resource={})
    assert not span_of(record.value).links
    assert decode(record.value).traces[0].traceparent == ""


def test_a_broken_link_is_passed_over():
    assert traceparent_in([Span.Link(trace_id=b"short", span_id=b"b" * 8)]) == ""
