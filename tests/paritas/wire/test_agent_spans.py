"""What agents say of themselves comes out of the log as it went in; what is broken is counted."""

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from paritas.agent.claim import Lost
from paritas.agent.own_spans import gap_record, health_record
from paritas.agent.reasons import DropReason
from paritas.wire import AgentHealth, Gap, decode
from paritas.wire.reasons import DecodeProblem


def gap(**changes):
    """A request about one gap, with attributes changed, or left out where the change is None."""
    record = gap_record("pod-7", "pod-7/memory", Lost(range(3, 9), DropReason.OVERFLOW), now_ns=5)
    request = ExportTraceServiceRequest.FromString(record.value)
    span = request.resource_spans[0].scope_spans[0].spans[0]
    for attribute in list(span.attributes):
        name = attribute.key.rpartition(".")[2]
        if name in changes:
            span.attributes.remove(attribute)
            if changes[name] is not None:
                kind = "int_value" if isinstance(changes[name], int) else "string_value"
                setattr(span.attributes.add(key=attribute.key).value, kind, changes[name])
    return request


def test_a_gap_comes_out_as_it_went_in():
    decoded = decode(gap().SerializeToString())
    assert decoded.gaps == (Gap("pod-7/memory", 3, 8, "overflow"),)
    assert (decoded.traces, decoded.foreign_spans, decoded.problems, decoded.health) == ((), 0, {}, ())


def test_health_comes_out_as_it_went_in():
    counts = {"accepted": 3, "health": "not ready: target_refuses"}
    decoded = decode(health_record("pod-7", counts, now_ns=5).value)
    assert decoded.health == (AgentHealth("pod-7", "not ready: target_refuses"),)
    assert (decoded.traces, decoded.foreign_spans, decoded.gaps) == ((), 0, ())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"first_seq": None}, DecodeProblem.MISSING_ATTRIBUTE),
        ({"last_seq": None}, DecodeProblem.MISSING_ATTRIBUTE),
        ({"stream": None}, DecodeProblem.MISSING_ATTRIBUTE),
        ({"reason": None}, DecodeProblem.MISSING_ATTRIBUTE),
        ({"last_seq": 2}, DecodeProblem.BAD_ATTRIBUTE),
        ({"first_seq": "three"}, DecodeProblem.BAD_ATTRIBUTE),
    ],
    ids=repr,
)
def test_what_is_broken_is_counted_by_reason(changes, problem):
    decoded = decode(gap(**changes).SerializeToString())
    assert (decoded.gaps, decoded.foreign_spans, decoded.problems) == ((), 0, {problem: 1})


def test_a_span_of_another_program_with_the_same_name_is_foreign():
    request = gap()
    request.resource_spans[0].scope_spans[0].scope.name = "someone"
    decoded = decode(request.SerializeToString())
    assert (decoded.gaps, decoded.foreign_spans) == ((), 1)
