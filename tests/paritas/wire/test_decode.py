"""Whatever is in the topic: ours is decoded or counted by reason, the rest is passed over."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from wire_strategies import facts, full_trace, plain_trace, traces

from paritas.errors import RecordError
from paritas.proto.v1.token_block_pb2 import TokenBlock
from paritas.wire import Decoded, DecodeProblem, decode, encode, names


def request_of(*batch):
    """One request with one span a trace."""
    request = ExportTraceServiceRequest()
    for record in encode(batch, resource={"service.name": "t"}):
        request.MergeFromString(record.value)
    return request


def spans_of(request):
    return [span for r in request.resource_spans for s in r.scope_spans for span in s.spans]


def attribute(span, name):
    return next(a for a in span.attributes if a.key == name)


def total(decoded):
    return len(decoded.traces) + decoded.foreign_spans + sum(decoded.problems.values())


def test_requests_joined_end_to_end_decode_as_one():
    value = b"".join(r.value for r in encode([full_trace(), plain_trace()], resource={}))
    assert [facts(t) for t in decode(value).traces] == [facts(full_trace()), facts(plain_trace())]


def test_foreign_spans_are_counted_and_passed_over():
    request = request_of(full_trace())
    for name in ("llm_request", "kernel.score", ""):
        span = request.resource_spans.add().scope_spans.add().spans.add(name=name, trace_id=b"1" * 16)
        span.attributes.add(key="gen_ai.request.temperature").value.double_value = 1.0
    decoded = decode(request.SerializeToString())
    assert (len(decoded.traces), decoded.foreign_spans, decoded.problems) == (1, 3, {})


def change_block(**fields):
    def change(span):
        value = attribute(span, names.TOKENS).value
        block = TokenBlock.FromString(value.bytes_value)
        for name, content in fields.items():
            setattr(block, name, content)
        value.bytes_value = block.SerializeToString()

    return change


def remove(name):
    def change(span):
        span.attributes.remove(attribute(span, name))

    return change


def set_attribute(name, **content):
    def change(span):
        [(kind, value)] = content.items()
        setattr(attribute(span, name).value, kind, value)

    return change


def set_trace_id(span):
    span.trace_id = bytes(16)


def start_at(time_ns):
    """A fixed64 holds what no detector can compare, and no escalation can tell."""

    def change(span):
        span.start_time_unix_nano = time_ns

    return change


BROKEN = [
    (DecodeProblem.NO_TOKENS, remove("paritas.tokens")),
    (DecodeProblem.NO_TOKENS, set_attribute("paritas.tokens", string_value="truncated…")),
    (DecodeProblem.BAD_BLOCK, set_attribute("paritas.tokens", bytes_value=b"\xff\xff")),
    (DecodeProblem.UNKNOWN_SCHEMA, set_attribute("paritas.tokens", bytes_value=b"")),
    (DecodeProblem.UNKNOWN_SCHEMA, change_block(schema=2)),
    (DecodeProblem.BAD_LENGTH, change_block(n=6)),
    (DecodeProblem.BAD_LENGTH, change_block(n=2**32 - 1)),
    (DecodeProblem.BAD_LENGTH, change_block(logprob_f32le=b"123")),
    (DecodeProblem.BAD_LENGTH, change_block(token_u64le=b"")),
    (DecodeProblem.BAD_LENGTH, change_block(itl_f32le=b"")),
    (DecodeProblem.BAD_LENGTH, change_block(topk_k=3)),
    (DecodeProblem.BAD_LENGTH, change_block(topk_logprob_f32le=bytes(4 * 7))),
    (DecodeProblem.BAD_STATUS, change_block(status_u8=bytes([0, 1, 2, 3, 4, 5, 7]))),
    (DecodeProblem.MISSING_ATTRIBUTE, remove("paritas.run.id")),
    (DecodeProblem.MISSING_ATTRIBUTE, remove("paritas.sequence.id")),
    (DecodeProblem.MISSING_ATTRIBUTE, remove("paritas.role")),
    (DecodeProblem.BAD_ATTRIBUTE, set_attribute("paritas.role", string_value="judge")),
    (DecodeProblem.BAD_ATTRIBUTE, set_attribute("paritas.logprob.semantics", string_value="greedy")),
    (DecodeProblem.BAD_ATTRIBUTE, set_attribute("paritas.kernel.tp", string_value="2")),
    (DecodeProblem.BAD_ATTRIBUTE, set_attribute("paritas.kernel.tp", bool_value=True)),
    (DecodeProblem.BAD_ATTRIBUTE, set_attribute("gen_ai.request.temperature", string_value="hot")),
    (DecodeProblem.BAD_ATTRIBUTE, set_attribute("gen_ai.request.top_k", double_value=1.5)),
    (DecodeProblem.BAD_ATTRIBUTE, set_attribute("gen_ai.request.top_k", double_value=float("inf"))),
    (DecodeProblem.BAD_ATTRIBUTE, set_attribute("paritas.attribute.replica", int_value=3)),
    (DecodeProblem.BAD_ATTRIBUTE, start_at(2**62 + 1)),
    (DecodeProblem.BAD_ATTRIBUTE, start_at(2**64 - 1)),
    (DecodeProblem.TRACE_ID_MISMATCH, set_trace_id),
    (DecodeProblem.TRACE_ID_MISMATCH, set_attribute("paritas.sequence.id", string_value="other")),
]


@pytest.mark.parametrize(("problem", "breaks"), BROKEN, ids=[f"{i}-{p}" for i, (p, _) in enumerate(BROKEN)])
def test_a_broken_span_is_counted_by_reason_and_its_neighbours_live(problem, breaks):
    request = request_of(plain_trace(), full_trace(), plain_trace())
    breaks(spans_of(request)[1])
    decoded = decode(request.SerializeToString())
    assert decoded.problems == {problem: 1}
    assert [facts(t) for t in decoded.traces] == [facts(plain_trace())] * 2


def test_whole_doubles_written_as_integers_are_read():
    request = request_of(full_trace())
    attribute(spans_of(request)[0], "gen_ai.request.temperature").value.int_value = 1
    assert decode(request.SerializeToString()).traces[0].sampling.temperature == 1.0


def test_attributes_of_a_later_version_do_not_hurt():
    request = request_of(plain_trace())
    spans_of(request)[0].attributes.add(key="paritas.kernel.future").value.array_value.values.add()
    assert facts(decode(request.SerializeToString()).traces[0]) == facts(plain_trace())


def test_a_value_that_is_no_request_has_one_clear_error():
    with pytest.raises(RecordError) as caught:
        decode(b"\xff\xff\xff")
    assert caught.value.reason == "not_otlp"
    assert caught.value.render() == (
        "[record] a value of 3 bytes is not an OTLP trace request\n"
        "  hint: this topic may hold only records with encoding otlp_proto"
    )


def decode_or_refuse(value):
    """Return what was decoded, or the one reason a whole value may be refused for."""
    try:
        return decode(value)
    except RecordError as error:
        return error.reason


@given(st.binary(max_size=300))
@settings(deadline=None, max_examples=150)
def test_random_bytes_are_decoded_or_refused(value):
    assert decode_or_refuse(value) == "not_otlp" or isinstance(decode_or_refuse(value), Decoded)


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_mutated_records_are_decoded_counted_or_refused(data):
    value = bytearray(request_of(full_trace(), plain_trace()).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    decoded = decode_or_refuse(bytes(value))
    if decoded != "not_otlp":
        parsed = ExportTraceServiceRequest.FromString(bytes(value))
        assert total(decoded) == len(spans_of(parsed))


@given(traces(max_tokens=3), st.binary(max_size=60))
@settings(deadline=None, max_examples=80)
def test_any_bytes_as_token_block_leave_one_span_accounted_for(trace, block):
    request = request_of(trace)
    attribute(spans_of(request)[0], names.TOKENS).value.bytes_value = block
    assert total(decode(request.SerializeToString())) == 1
