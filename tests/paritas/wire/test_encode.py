"""What a reader of the span sees, and what is refused with which words."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from wire_strategies import full_trace, plain_trace

from paritas.errors import RecordError
from paritas.records import Timings, TopK
from paritas.wire import encode, names, segments_of, span_id_of


def request_of(trace, resource=None):
    [record] = encode([trace], resource=resource or {})
    return ExportTraceServiceRequest.FromString(record.value)


def span_of(trace):
    return request_of(trace).resource_spans[0].scope_spans[0].spans[0]


def attributes_of(trace):
    span = span_of(trace)
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


def test_span_name_ids_and_scope():
    trace = full_trace()
    request = request_of(trace)
    span = span_of(trace)
    assert request.resource_spans[0].scope_spans[0].scope.name == "paritas"
    assert span.name == "kernel.score"
    assert span.trace_id.hex() == trace.trace_id
    text = "5:run-15:seq-19:inference2:121:3"
    assert span.span_id == hashlib.blake2b(text.encode(), digest_size=8).digest()


def test_span_ids_do_not_confuse_neighbouring_fields():
    ids = {
        span_id_of(plain_trace(run_id=run, sequence_id=sequence, weights_version=version, start=start))
        for run, sequence, version, start in [
            ("a", "b1", "", 1),
            ("a", "b", "1", 1),
            ("ab", "1", "", 1),
            ("a", "b", "", 11),
        ]
    }
    assert len(ids) == 4


def test_a_person_reads_counts_mean_and_minimum_over_valid_tokens_only():
    told = attributes_of(
        replace(full_trace(), logprob=np.array([-0.5, -1, -2, np.nan, -9999, np.inf, 1], np.float32))
    )
    assert told["paritas.token_count.total"] == 7
    assert {told[f"paritas.token_count.{s}"] for s in ("valid", "sentinel", "nonfinite", "positive")} == {1}
    assert told["paritas.logprob.mean_nats"] == told["paritas.logprob.min_nats"] == -0.5


def test_mean_and_minimum_are_left_out_rather_than_wrong():
    nothing_valid = attributes_of(plain_trace(2, status=np.array([3, 4], np.uint8)))
    marked_valid_but_nan = attributes_of(plain_trace(2, logprob=np.array([-1, np.nan], np.float32)))
    for told in (nothing_valid, marked_valid_but_nan):
        assert names.LOGPROB_MEAN_NATS not in told
        assert names.LOGPROB_MIN_NATS not in told


def test_what_was_not_reported_is_left_out():
    told = attributes_of(plain_trace())
    assert set(told) == {
        "paritas.run.id", "paritas.sequence.id", "paritas.role", "paritas.logprob.semantics",
        "paritas.kernel.digest", "paritas.kernel.engine", "paritas.kernel.dtype",
        "paritas.segment.start", "paritas.segment.final", "paritas.token_count.total", "paritas.token_count.valid",
        "paritas.logprob.mean_nats", "paritas.logprob.min_nats", "paritas.tokens",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("timings", "duration_s"),
    [
        (Timings(), 1e-9),
        (Timings(0.5, 2.0, 1.0, 3.0), 5.0),
        (Timings(queue_s=1.5, prefill_s=1.0, decode_s=3.0), 5.5),
        (Timings(ttft_s=float("nan"), decode_s=-1.0), 1e-9),
        (Timings(decode_s=1e300), 31_557_600.0),
    ],
)
def test_a_span_lasts_as_long_as_was_reported(timings, duration_s):
    span = span_of(plain_trace(timings=timings))
    assert span.start_time_unix_nano == plain_trace().event_ns
    assert span.end_time_unix_nano - span.start_time_unix_nano == duration_s * 1e9


def test_resource_attributes_and_headers_travel():
    request = request_of(plain_trace(), {"service.name": "trainer", "host.name": "h"})
    assert [(a.key, a.value.string_value) for a in request.resource_spans[0].resource.attributes] == [
        ("service.name", "trainer"),
        ("host.name", "h"),
    ]
    assert encode([plain_trace()], resource={})[0].headers == (("paritas-schema", b"1"),)


def test_any_otlp_reader_parses_the_value():
    [record] = encode([full_trace()], resource={})
    assert TracesData.FromString(record.value).SerializeToString() == record.value


def refused(trace):
    with pytest.raises(RecordError) as caught:
        encode([trace], resource={})
    return caught.value.reason, caught.value.render().split("\n  hint: ")


def test_attributes_that_alone_fill_a_record_are_refused():
    assert refused(plain_trace(attributes={"prompt": "x" * 600_000})) == (
        "too_large",
        [
            "[record] sequence 'seq-1': attributes and one token exceed the record limit",
            "shorten the attributes, or report a smaller top-k",
        ],
    )


def test_a_top_k_wider_than_a_record_is_refused():
    wide = TopK(np.zeros((1, 50_000), np.uint64), np.zeros((1, 50_000), np.float32))
    assert refused(plain_trace(1, top=wide))[0] == "too_large"


ROWS_HINT = "every per-token column of a trace has one row a token"


def test_optional_columns_must_align():
    assert refused(plain_trace(4, itl_s=np.zeros(3, np.float32))) == (
        "misaligned",
        ["[record] sequence 'seq-1': itl_s has shape (3,), expected 4 rows", ROWS_HINT],
    )
    assert refused(plain_trace(4, rank=np.zeros((4, 1), np.uint32)))[1] == [
        "[record] sequence 'seq-1': rank has shape (4, 1), expected 4 rows",
        ROWS_HINT,
    ]
    crooked = TopK(np.zeros((4, 2), np.uint64), np.zeros((4, 3), np.float32))
    assert refused(plain_trace(4, top=crooked)) == (
        "misaligned",
        ["[record] sequence 'seq-1': top has shapes (4, 2) and (4, 3), expected 4 rows", ROWS_HINT],
    )


def test_an_unknown_status_is_refused_at_the_source():
    assert refused(plain_trace(1, status=np.array([7], np.uint8))) == (
        "bad_status",
        [
            "[record] sequence 'seq-1': token status 7 is not known",
            "use paritas.records.TokenStatus, 0 to 6",
        ],
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"sequence_id": "\ud800"},
        {"attributes": {"a": "\udfff"}},
        {"attributes": {"a": [1]}},
        {"start": -1},
        {"start": 2**32},
        {"event_ns": -1},
        {"run_id": 7},
    ],
)
def test_what_otlp_cannot_hold_is_one_reason(changes):
    reason, [_, hint] = refused(plain_trace(**changes))
    assert reason == "unencodable"
    assert hint == "text must be valid Unicode, integers must fit 64 bits, start must fit 32"


def test_segments_of_yields_a_trace_that_fits_untouched():
    trace = plain_trace(5)
    assert list(segments_of(trace, limit_bytes=1024 + 5 * 13)) == [trace]
    assert [len(part) for part in segments_of(trace, limit_bytes=1024 + 5 * 13 - 1)] == [4, 1]
