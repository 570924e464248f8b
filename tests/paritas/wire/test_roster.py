"""Rosters come out of the log as they went in, are bounded, and what is broken is counted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from paritas.wire import RECORD_LIMIT_BYTES, Expected, Roster, decode, encode_roster, names
from paritas.wire.reasons import DecodeProblem
from paritas.wire.roster import MOST_AGENTS, SIDECAR, fitting

TEXT = st.text("abcz0-.", min_size=1, max_size=12)
AGENTS = st.builds(Expected, TEXT, st.integers(0, 2**63 - 1), st.sampled_from(SIDECAR))
SMALL = Roster("roster:a", 7, 2, (Expected("pod-7", 3, "absent"), Expected("pod-8")))


@settings(max_examples=40, deadline=None)
@given(st.builds(Roster, TEXT, st.integers(0, 2**62), st.integers(0, 9), st.lists(AGENTS).map(tuple)))
def test_a_roster_comes_out_as_it_went_in(roster):
    decoded = decode(encode_roster(roster, now_ns=5).value)
    assert decoded.rosters == (roster,)
    assert (decoded.traces, decoded.foreign_spans, decoded.problems, decoded.gpus) == ((), 0, {}, ())


def test_rosters_of_one_name_share_a_key_and_differ_in_their_span():
    one, two = (encode_roster(Roster("roster:a", 7, n, ()), now_ns=5) for n in (1, 2))
    assert one.key == two.key
    assert one.value != two.value
    assert encode_roster(Roster("roster:b", 7, 1, ()), now_ns=5).key != one.key


def changed(name, value):
    request = ExportTraceServiceRequest.FromString(encode_roster(SMALL, now_ns=5).value)
    span = request.resource_spans[0].scope_spans[0].spans[0]
    (attribute,) = (a for a in span.attributes if a.key == name)
    if value is None:
        span.attributes.remove(attribute)
    elif isinstance(value, str):
        attribute.value.string_value = value
    else:
        attribute.value.int_value = value
    return request.SerializeToString()


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        (names.ROSTER_AGENTS, None, DecodeProblem.MISSING_ATTRIBUTE),
        (names.ROSTER_EPOCH, None, DecodeProblem.MISSING_ATTRIBUTE),
        (names.ROSTER_NUMBER, None, DecodeProblem.MISSING_ATTRIBUTE),
        (names.ROSTER_NUMBER, "two", DecodeProblem.BAD_ATTRIBUTE),
        (names.ROSTER_AGENTS, 3, DecodeProblem.BAD_ATTRIBUTE),
        (names.ROSTER_AGENTS, "pod-7", DecodeProblem.BAD_ATTRIBUTE),
        (names.ROSTER_AGENTS, "pod-7 -3 absent", DecodeProblem.BAD_ATTRIBUTE),
        (names.ROSTER_AGENTS, "pod-7 ٣ absent", DecodeProblem.BAD_ATTRIBUTE),
        (names.ROSTER_AGENTS, "pod-7 3 maybe", DecodeProblem.BAD_ATTRIBUTE),
        (names.ROSTER_AGENTS, f"pod-7 {'3' * 20} absent", DecodeProblem.BAD_ATTRIBUTE),
        (names.ROSTER_AGENTS, " 3 absent", DecodeProblem.BAD_ATTRIBUTE),
        (names.ROSTER_AGENTS, "pod-7 3 absent\n", DecodeProblem.BAD_ATTRIBUTE),
        (names.ROSTER_AGENTS, "\n".join(["a 1 absent"] * (MOST_AGENTS + 1)), DecodeProblem.BAD_ATTRIBUTE),
    ],
)
def test_what_is_broken_is_counted_by_reason(name, value, problem):
    decoded = decode(changed(name, value))
    assert (decoded.rosters, decoded.problems) == ((), {problem: 1})


def test_a_roster_is_bounded_in_agents_and_those_expected_for_longest_stay():
    agents = [Expected(f"pod-{i}", i) for i in range(MOST_AGENTS + 7)]
    kept, left_out = fitting(reversed(agents))
    assert (len(kept), left_out) == (MOST_AGENTS, 7)
    assert (kept[0].agent, kept[-1].agent) == ("pod-1", f"pod-{MOST_AGENTS}")
    assert Expected("pod-0", 0) not in kept  # it is not expected yet


def test_a_roster_of_long_names_fits_a_record():
    kept, left_out = fitting(Expected(f"{i:0253}", 2**63 - 1, "unknown") for i in range(MOST_AGENTS))
    assert len(kept) + left_out == MOST_AGENTS
    assert left_out > 0
    assert len(encode_roster(Roster("r", 1, 1, kept), now_ns=1).value) < RECORD_LIMIT_BYTES
