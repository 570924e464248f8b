"""Requests → records: what passes unread, what is split, what is refused."""

from contextlib import suppress

import numpy as np
import pytest
from agent_scenes import recorded, requests_of
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from paritas.agent.otlp import own_trace_id, split
from paritas.errors import PermanentError
from paritas.records import KernelIdentity, Role, TokenTrace
from paritas.wire import encode

IDS = [bytes([n]) * 16 for n in range(1, 6)]


def spans(value):
    """Every span with all that gives it its meaning, in a form that can be compared."""
    found = []
    for source in TracesData.FromString(value).resource_spans:
        around = (source.resource.SerializeToString(deterministic=True), source.schema_url)
        for scope in source.scope_spans:
            named = (scope.scope.SerializeToString(deterministic=True), scope.schema_url)
            found += [(around, named, span.SerializeToString(deterministic=True)) for span in scope.spans]
    return sorted(found)


def trace_ids(value):
    return {
        span.trace_id.hex().encode()
        for source in TracesData.FromString(value).resource_spans
        for scope in source.scope_spans
        for span in scope.spans
    }


@pytest.mark.parametrize("body", recorded())
def test_what_vllm_sent_keeps_every_span_its_scope_and_its_resource(body):
    found = split(body)
    assert (found.too_large, found.bad_ids) == (0, 0)
    assert sorted(span for record in found.records for span in spans(record.value)) == spans(body)
    assert all(trace_ids(record.value) == {record.key} for record in found.records)


def ours(length=50):
    columns = (
        np.zeros(length, np.float32),
        np.arange(length, dtype=np.uint64),
        np.zeros(length, np.uint8),
    )
    trace = TokenTrace("run", "s", KernelIdentity(Role.TRAIN), *columns)
    [record] = encode([trace], resource={"service.name": "trainer"})
    return record


def test_our_own_spans_pass_without_being_decoded():
    record = ours()
    assert own_trace_id(record.value).hex().encode() == record.key
    spoilt = record.value[:-5] + b"\xff" * 5  # decoding it would fail
    [passed] = split(spoilt).records
    assert (passed.key, passed.value) == (record.key, spoilt)


def test_a_foreign_request_about_one_trace_passes_byte_for_byte_but_is_looked_at():
    body = requests_of(IDS[0], spans=3)
    [record] = split(body).records
    assert record.value is body
    with pytest.raises(PermanentError, match=r"^the body is not an ExportTraceServiceRequest$"):
        split(body[:-5] + b"\xff" * 5)


def test_several_traces_give_a_record_each_in_order_of_appearance():
    body = requests_of(*IDS, spans=4)
    records = split(body).records
    assert [record.key for record in records] == [one.hex().encode() for one in IDS]
    assert sorted(span for record in records for span in spans(record.value)) == spans(body)


def test_our_spans_of_two_traces_in_one_request_are_split():
    two = requests_of(IDS[0], IDS[1], scope="paritas")
    assert own_trace_id(two) is None
    assert len(split(two).records) == 2


def test_a_trace_above_the_record_limit_is_cut_between_spans():
    body = requests_of(IDS[0], spans=200)
    found = split(body, limit_bytes=2000)
    assert len(found.records) > 2
    assert all(len(record.value) <= 2000 for record in found.records)
    assert sorted(span for record in found.records for span in spans(record.value)) == spans(body)


def test_a_span_above_the_record_limit_is_counted_and_the_others_pass():
    message = ExportTraceServiceRequest.FromString(requests_of(IDS[0], IDS[1]))
    large = message.resource_spans[0].scope_spans[0].spans.add(trace_id=IDS[2], span_id=b"12345678")
    large.attributes.add(key="x").value.bytes_value = bytes(3000)
    found = split(message.SerializeToString(), limit_bytes=2000)
    assert found.too_large == 1
    assert len(found.records) == 2


def test_a_trace_id_of_another_length_is_never_passed_on():
    found = split(requests_of(IDS[0], b"short", b""))
    assert found.bad_ids == 2
    assert [record.key for record in found.records] == [IDS[0].hex().encode()]


def test_nothing_gives_nothing():
    assert split(b"").records == ()


@given(st.binary(max_size=200))
def test_no_bytes_break_it(body):
    try:
        split(body)
    except PermanentError:
        assert own_trace_id(body) is None


@given(st.data())
def test_the_walk_and_the_decoder_agree_on_what_they_both_take(data):
    """Whatever the walk passes that is a request at all is about the trace that the walk says."""
    content = bytearray(requests_of(*IDS[:2], scope="paritas") if data.draw(st.booleans()) else ours(3).value)
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    found = own_trace_id(bytes(content))
    if found is None:
        return
    with suppress(DecodeError):
        assert trace_ids(bytes(content)) == {found.hex().encode()}
