"""Encoding and decoding are inverse, bit for bit, whatever the columns hold."""

import math
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from wire_strategies import facts, full_trace, plain_trace, traces

from paritas.records import TokenStatus, TopK
from paritas.wire import RECORD_LIMIT_BYTES, decode, encode
from paritas.wire.block import bytes_per_token

encode_module = import_module("paritas.wire.encode")  # `paritas.wire.encode` is also the function
RESOURCE = {"service.name": "trainer"}


def decode_all(records):
    return [trace for record in records for trace in decode(record.value).traces]


@given(traces())
@settings(deadline=None, max_examples=150)
def test_a_trace_survives_bit_for_bit(trace):
    records = encode([trace], resource=RESOURCE)
    assert [facts(back) for back in decode_all(records)] == [facts(trace)]
    assert [record.key for record in records] == [trace.trace_id.encode()]


@given(st.lists(traces(max_tokens=3), max_size=4))
@settings(deadline=None, max_examples=40)
def test_order_and_number_are_kept(batch):
    assert [facts(back) for back in decode_all(encode(batch, resource={}))] == [
        facts(trace) for trace in batch
    ]


@given(traces(max_tokens=12), st.integers(1, 5), st.booleans())
@settings(deadline=None, max_examples=40)
def test_a_long_sequence_is_cut_into_segments_that_join_to_the_same_columns(trace, tokens_at_once, final):
    trace = replace(trace, final=final)
    shared = encode_module._request(trace, RESOURCE).ByteSize()
    limit = shared + encode_module.SEGMENT_ROOM_BYTES + tokens_at_once * bytes_per_token(trace)
    records = encode([trace], resource=RESOURCE, limit_bytes=limit)
    parts = decode_all(records)
    assert all(len(record.value) <= limit for record in records)
    assert len(parts) == max(1, math.ceil(len(trace) / tokens_at_once))
    assert joined(parts) == facts(trace)
    assert [part.final for part in parts] == [False] * (len(parts) - 1) + [final]
    positions = np.cumsum([trace.start, *map(len, parts[:-1])]).tolist()
    assert [part.start for part in parts] == positions


def joined(parts):
    def column(name):
        return None if getattr(parts[0], name) is None else np.concatenate([getattr(p, name) for p in parts])

    top = parts[0].top and TopK(
        *(np.concatenate([getattr(p.top, c) for p in parts]) for c in ("token", "logprob"))
    )
    columns = {name: column(name) for name in ("logprob", "token", "status", "itl_s", "rank")}
    return facts(replace(parts[0], **columns, top=top, final=parts[-1].final))


def test_a_hundred_thousand_tokens_stay_below_the_limit_in_few_records():
    trace = plain_trace(100_000)
    records = encode([trace], resource=RESOURCE)
    assert len(records) == 3
    assert max(len(record.value) for record in records) <= RECORD_LIMIT_BYTES
    assert joined(decode_all(records)) == facts(trace)


def test_segments_share_the_trace_and_differ_in_span():
    records = encode([plain_trace(100_000)], resource=RESOURCE)
    spans = [
        ExportTraceServiceRequest.FromString(r.value).resource_spans[0].scope_spans[0].spans[0]
        for r in records
    ]
    assert len({span.trace_id for span in spans}) == 1
    assert len({span.span_id for span in spans}) == len(spans)
    assert {len(span.span_id) for span in spans} == {8}


def test_nan_and_minus_9999_keep_bits_and_status():
    logprob = np.array([0x7FC12345, 0xFFC00001, 0], np.uint32).view(np.float32).copy()
    logprob[2] = -9999
    status = np.array([TokenStatus.NONFINITE, TokenStatus.NONFINITE, TokenStatus.SENTINEL], np.uint8)
    [back] = decode_all(encode([plain_trace(3, logprob=logprob, status=status)], resource={}))
    assert back.logprob.view(np.uint32).tolist() == logprob.view(np.uint32).tolist()
    assert back.status.tolist() == status.tolist()


def test_other_dtypes_byte_orders_and_strides_are_written_as_declared():
    odd = plain_trace(
        2,
        logprob=np.array([-1.5, 9, -2.5, 9], ">f8")[::2],
        token=np.array([1, 2**40], ">i8"),
        status=np.array([0, 1], ">u4"),
    )
    [back] = decode_all(encode([odd], resource={}))
    assert back.logprob.tolist() == [-1.5, -2.5]
    assert back.token.tolist() == [1, 2**40]
    assert (back.logprob.dtype, back.token.dtype, back.status.dtype) == (np.float32, np.uint64, np.uint8)


def test_numpy_scalars_are_written_as_what_they_are():
    sampling = replace(full_trace().sampling, temperature=np.float64(0.7), min_p=np.float32(0.5))
    [back] = decode_all(encode([replace(full_trace(), sampling=sampling)], resource={}))
    assert (back.sampling.temperature, back.sampling.min_p) == (0.7, 0.5)


def test_decoded_columns_cannot_be_changed():
    [back] = decode_all(encode([full_trace()], resource={}))
    with pytest.raises(ValueError, match="read-only"):
        back.logprob[0] = 0


def test_an_empty_sequence_is_a_record_too():
    [back] = decode_all(encode([plain_trace(0)], resource={}))
    assert (len(back), back.final) == (0, True)


def test_the_same_segment_gives_the_same_bytes_twice():
    assert encode([full_trace()], resource=RESOURCE) == encode([full_trace()], resource=RESOURCE)
