"""What is taken into the log, and what is refused with its place."""

import pytest
from escalation_examples import escalation

from paritas.controller.admission import admit
from paritas.controller.config import Limits
from paritas.controller.convert import escalation_of, escalation_to
from paritas.controller.model import EventKind, Subject
from paritas.controller.refusals import RefusalError, Refused
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Phase, Severity

SMALL = Limits(batch_events=2, event_bytes=2000)


def admitted(*events, limits=SMALL):
    return admit([escalation_to(event) for event in events], limits=limits)


def test_a_draft_says_what_the_log_looks_at():
    [draft] = admitted(escalation(3, severity=Severity.CRITICAL))
    assert (draft.kind, draft.event_id, draft.transition, draft.open) == (
        EventKind.ESCALATION,
        "incident-1/3",
        3,
        True,
    )
    assert draft.subject == Subject(
        incident_id="incident-1",
        contract="qwen3-8b-rollout",
        contract_version="1.2.0",
        policy="qwen3-8b",
        clause="token-tv",
        slice="all",
        weights_version="17",
        severity=Severity.CRITICAL,
    )
    assert escalation_of(pb.Escalation.FromString(draft.payload)) == escalation(3, severity=Severity.CRITICAL)


OPEN = {
    Phase.INACTIVE: False,
    Phase.PENDING: True,
    Phase.FIRING: True,
    Phase.RECOVERING: True,
    Phase.RESOLVED: False,
    Phase.SUPERSEDED: False,
    Phase.NO_DATA: True,
    Phase.ERROR: True,
}


@pytest.mark.parametrize(("phase", "is_open"), OPEN.items())
def test_the_phase_says_whether_an_incident_is_open(phase, is_open):
    [draft] = admitted(escalation(after=phase))
    assert draft.open is is_open


MISTAKES = {
    "events[1].event_id: must not be empty": {"event_id": ""},
    "events[1].incident_id: must not be empty": {"incident_id": "", "event_id": "e"},
    "events[1].contract: must not be empty": {"contract": ""},
    "events[1].clause: must not be empty": {"clause": ""},
    "events[1].slice: must not be empty": {"slice": ""},
    "events[1].transition: must be at least 1, got 0": {"transition": 0},
    "events[1].issued_ns: must be a Unix time in ns, got 0": {"issued_ns": 0},
    "events[1].valid_until_ns: must not be before issued_ns": {"valid_until_ns": 1},
}


@pytest.mark.parametrize(("text", "changes"), MISTAKES.items(), ids=MISTAKES)
def test_mistakes_are_refused_with_their_place(text, changes):
    with pytest.raises(RefusalError) as caught:
        admitted(escalation(1), escalation(2, **changes))
    assert (str(caught.value), caught.value.reason) == (text, Refused.INVALID)


def test_an_unset_enum_is_refused_with_its_place():
    with pytest.raises(RefusalError) as caught:
        admit(
            [pb.Escalation(event_id="e", incident_id="i", contract="c", clause="c", slice="s")], limits=SMALL
        )
    assert str(caught.value) == "events[0].before: must be set"


def test_an_event_has_a_largest_size():
    message = escalation_to(escalation(summary="x" * 3000))
    with pytest.raises(RefusalError) as caught:
        admit([message], limits=SMALL)
    assert str(caught.value) == f"events[0]: {message.ByteSize()} bytes, at most 2000 are taken"
    fits = Limits(event_bytes=message.ByteSize())
    assert len(admit([message], limits=fits)) == 1


def test_a_batch_has_a_largest_count():
    with pytest.raises(RefusalError) as caught:
        admitted(escalation(1), escalation(2), escalation(3))
    assert str(caught.value) == "events: 3 events in one batch, at most 2 are taken"


def test_a_publisher_cannot_say_that_actions_are_suppressed():
    message = escalation_to(escalation())
    message.actions[0].suppressed = True
    [draft] = admit([message], limits=SMALL)
    assert not pb.Escalation.FromString(draft.payload).actions[0].suppressed
