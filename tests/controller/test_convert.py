"""Records to messages and back, at random."""

from dataclasses import fields

import numpy as np
import pytest
from escalation_examples import ACTIONS, ESCALATIONS, FINDINGS, VERDICTS, escalation, plain, verdict
from hypothesis import given, settings

from paritas.controller.convert import (
    action_of,
    action_to,
    escalation_of,
    escalation_to,
    finding_of,
    finding_to,
    verdict_of,
    verdict_to,
)
from paritas.controller.refusals import RefusalError, Refused
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Action, Escalation, Finding, Phase, Severity, State, Verdict

PAIRS = (
    (Escalation, pb.Escalation),
    (Verdict, pb.Verdict),
    (Finding, pb.Finding),
)


@given(ESCALATIONS)
@settings(deadline=None, max_examples=60)
def test_an_escalation_comes_back(event):
    message = pb.Escalation.FromString(escalation_to(event).SerializeToString())
    assert plain(escalation_of(message)) == plain(event)


@given(ESCALATIONS)
@settings(deadline=None, max_examples=30)
def test_equal_records_have_equal_bytes(event):
    once, again = (escalation_to(event).SerializeToString(deterministic=True) for _ in range(2))
    assert once == again


@given(VERDICTS)
def test_a_verdict_comes_back(one):
    assert plain(verdict_of(verdict_to(one))) == plain(one)


@given(FINDINGS)
def test_a_finding_comes_back(one):
    assert plain(finding_of(finding_to(one))) == plain(one)


@given(ACTIONS)
def test_an_action_comes_back(one):
    assert plain(action_of(action_to(one))) == plain(one)


@pytest.mark.parametrize(("record", "message"), PAIRS)
def test_messages_have_the_fields_of_their_records(record, message):
    assert {f.name for f in fields(record)} == {f.name for f in message.DESCRIPTOR.fields}


@pytest.mark.parametrize("kind", [Phase, Severity, State])
def test_wire_enums_have_the_members_of_ours(kind):
    wire = getattr(pb, kind.__name__).DESCRIPTOR
    prefix = f"{kind.__name__.upper()}_"
    assert [v.name.removeprefix(prefix) for v in wire.values] == ["UNSPECIFIED", *(m.name for m in kind)]


def changed(**values):
    message = escalation_to(escalation())
    for name, value in values.items():
        *path, last = name.split("__")
        place = message
        for part in path:
            place = getattr(place, part)
        setattr(place, last, value)
    return message


MISTAKES = {
    "event.after: must be set": {"after": 0},
    "event.severity: unknown value 99": {"severity": 99},
    "event.verdict.state: unknown value 77": {"verdict__state": 77},
    "event.verdict.reason: unknown name 'because'": {"verdict__reason": "because"},
}


@pytest.mark.parametrize(("text", "changes"), MISTAKES.items(), ids=MISTAKES)
def test_unknown_names_are_refused_with_their_place(text, changes):
    with pytest.raises(RefusalError) as caught:
        escalation_of(changed(**changes))
    assert (str(caught.value), caught.value.reason) == (text, Refused.INVALID)


def test_a_fact_is_a_number_or_text():
    message = pb.Finding(facts={"a": pb.Value(flag=True)})
    with pytest.raises(RefusalError) as caught:
        finding_of(message, place="diagnosis[0]")
    assert str(caught.value) == "diagnosis[0].facts.a: must be a number or text"


def test_what_no_message_can_hold_is_refused_with_the_event():
    with pytest.raises(RefusalError) as caught:
        escalation_to(escalation(actions=(Action("notify"), Action("page", {"who": {1}}))))
    text = "event 'incident-1/1': actions[1].arguments.who: cannot carry a value of type 'set'"
    assert str(caught.value) == text
    with pytest.raises(RefusalError, match="event 'incident-1/1': cannot be sent: "):
        escalation_to(escalation(level=-1))
    with pytest.raises(RefusalError, match="event 'incident-1/1': cannot be sent: "):
        escalation_to(escalation(summary="\ud800"))


def test_numpy_numbers_are_numbers():
    one = verdict(estimate=np.float64(0.5), lower=np.float32(0.25), units=np.int64(3))
    assert verdict_of(verdict_to(one)) == verdict(estimate=0.5, lower=0.25, units=3)
