"""Filters, silences and acknowledgements as messages and back."""

import pytest
from escalation_examples import INT64, TEXT, escalation
from hypothesis import given
from hypothesis import strategies as st

from paritas.contracts.model import Operator, Requirement
from paritas.controller.convert import escalation_to
from paritas.controller.filters import Filter
from paritas.controller.model import Acknowledgement, Incident, IncidentRow, Subject, Suppression
from paritas.controller.refusals import RefusalError
from paritas.controller.silences import OPERATORS, Silence
from paritas.controller.wire import (
    acknowledgement_of,
    acknowledgement_to,
    filter_of,
    filter_to,
    incident_of,
    incident_to,
    matchers_of,
    matchers_to,
    silence_of,
    silence_to,
    suppression_of,
    suppression_to,
)
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Severity

SETS = st.frozensets(TEXT, max_size=3)
MATCHERS = st.lists(
    st.builds(
        Requirement, field=TEXT, op=st.sampled_from(OPERATORS), values=st.lists(TEXT, max_size=2).map(tuple)
    ),
    max_size=3,
).map(tuple)
UINT64 = st.integers(0, 2**64 - 1)


@given(st.builds(Filter, SETS, SETS, SETS, SETS, st.sampled_from(Severity)))
def test_a_filter_comes_back(only):
    assert filter_of(filter_to(only)) == only


@given(st.builds(Silence, TEXT, MATCHERS, INT64, INT64, TEXT, TEXT, INT64, TEXT))
def test_a_silence_comes_back(silence):
    assert silence_of(silence_to(silence)) == silence


@given(st.builds(Acknowledgement, TEXT, UINT64, TEXT, TEXT, INT64))
def test_an_acknowledgement_comes_back(ack):
    assert acknowledgement_of(acknowledgement_to(ack)) == ack


@given(st.builds(Suppression, TEXT, TEXT, TEXT, INT64))
def test_a_suppression_comes_back(suppression):
    assert suppression_of(suppression_to(suppression)) == suppression


def test_no_severity_is_every_severity_and_an_unknown_one_is_refused():
    assert filter_of(pb.Filter()) == Filter()
    with pytest.raises(RefusalError) as caught:
        filter_of(pb.Filter(min_severity=9), place="start.filter")
    assert str(caught.value) == "start.filter.min_severity: unknown value 9"


def test_matchers_have_the_operators_of_silences():
    with pytest.raises(RefusalError) as caught:
        matchers_to((Requirement("clause", Operator.GT, (1.0,)),))
    assert str(caught.value) == "matchers[0].op: Gt is not an operator of silences"
    with pytest.raises(RefusalError) as caught:
        matchers_of([pb.Matcher(field="clause")])
    assert str(caught.value) == "matchers[0].op: must be set"


@pytest.mark.parametrize("suppression", [None, Suppression("s1", "ana", "swap", 7)])
@pytest.mark.parametrize("ack", [None, Acknowledgement("incident-1", 1, "bo", "", 3)])
def test_an_incident_shows_its_acknowledgement_and_its_silence(ack, suppression):
    event = escalation()
    row = IncidentRow(
        subject=Subject(severity=Severity.CRITICAL),
        open=True,
        opened_seq=1,
        opened_ns=5,
        payload=escalation_to(event).SerializeToString(),
        acknowledgement=acknowledgement_to(ack).SerializeToString() if ack else b"",
    )
    message = incident_to(row, suppression)
    assert incident_of(message) == Incident(event, True, Severity.CRITICAL, 5, ack, suppression)
    assert [action.suppressed for action in message.current.actions] == [suppression is not None]
