"""Decoding: records in, traces out, and every record and span accounted for."""

import pickle

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pair_factory import both

from paritas.detectors.decode import Decoder
from paritas.wire import encode


def records():
    """Return the values of a few records of ours, one trace each."""
    traces = [t for i in range(3) for t in both(f"s{i}", weights_version="1")]
    return traces, [r.value for t in traces for r in encode([t], resource={})]


def foreign():
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(name="http.request", span_id=b"12345678")
    return request.SerializeToString()


def test_what_was_sent_comes_out_in_order():
    traces, values = records()
    decoder = Decoder()
    got = list(decoder.process(values))
    assert [(t.sequence_id, t.kernel.role) for t in got] == [(t.sequence_id, t.kernel.role) for t in traces]
    for one, other in zip(got, traces, strict=True):
        np.testing.assert_array_equal(one.logprob, other.logprob)
        np.testing.assert_array_equal(one.token, other.token)
        np.testing.assert_array_equal(one.status, other.status)
    assert (decoder.received, decoder.foreign_spans, dict(decoder.refused)) == (6, 0, {})


def test_other_peoples_spans_are_passed_over_and_counted():
    decoder = Decoder()
    assert list(decoder.process([foreign(), foreign()])) == []
    assert (decoder.received, decoder.foreign_spans, dict(decoder.refused)) == (2, 2, {})


def test_what_cannot_be_read_is_counted_by_reason_and_stops_nothing():
    traces, values = records()
    decoder = Decoder()
    got = list(decoder.process([b"\xff\xff\xff", *values, b"\x0a\xff"]))
    assert len(got) == len(traces)
    assert decoder.received == len(values) + 2
    assert sum(decoder.refused.values()) == 2
    assert all(isinstance(reason, str) for reason in decoder.refused)


def test_counters_survive_a_restart():
    decoder = Decoder()
    list(decoder.process([b"\xff\xff\xff", foreign()]))
    restored = pickle.loads(pickle.dumps(decoder))
    assert restored == decoder
