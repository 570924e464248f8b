"""What people say in a Subscribe stream: silences and acknowledgements."""

import pytest
from escalation_examples import SNAPSHOT, escalation
from session_scenes import running

from paritas.clock import ManualClock
from paritas.contracts.model import Operator, Requirement
from paritas.proto.v1 import escalation_pb2 as pb

CLAUSE = Requirement("clause", Operator.IN, ("token-tv",))


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def server(tmp_path, clock):
    with running(tmp_path, clock) as made:
        yield made


def test_a_silence_marks_what_it_covers_and_state_goes_on(server, clock):
    silence = server.client.silence([CLAUSE], author="ana", comment="replica swap", duration_s=60)
    with server.subscribe(snapshot_then_follow=SNAPSHOT) as stream:
        stream.next("snapshot_end")
        server.publish(escalation(1), escalation(1, incident_id="b", clause="other"))
        hit, miss = stream.events(2)
        assert hit.suppressed == pb.Suppression(
            silence_id=silence.silence_id, author="ana", comment="replica swap", ends_ns=silence.ends_ns
        )
        assert [action.suppressed for action in hit.escalation.actions] == [True]
        assert not miss.HasField("suppressed")
        assert [action.suppressed for action in miss.escalation.actions] == [False]
    with server.subscribe(snapshot_then_follow=SNAPSHOT) as stream:
        incident = stream.next("snapshot_item").incident
        assert (incident.open, incident.suppressed.author) == (True, "ana")
    clock.advance(seconds=60)
    with server.subscribe(token=hit.token) as stream:
        server.publish(escalation(2))
        assert [event.HasField("suppressed") for event in stream.events(2)] == [False, False]


def test_silences_and_their_early_end_are_told_whatever_the_filter(server):
    with server.subscribe(filter=pb.Filter(clauses=["nothing"])) as stream:
        stream.next("created")
        made = server.client.silence([CLAUSE], author="ana", comment="swap", duration_s=60)
        server.client.expire_silence(made.silence_id, author="bo")
        created, expired = stream.events(2)
        assert (created.silence.author, created.silence.expired_by) == ("ana", "")
        assert (expired.silence.silence_id, expired.silence.expired_by) == (made.silence_id, "bo")
        assert not created.HasField("suppressed")


def test_an_acknowledgement_is_an_event_once_and_passes_the_filter_of_its_incident(server):
    server.publish(escalation(1), escalation(1, incident_id="b", clause="other"))
    with server.subscribe(filter=pb.Filter(clauses=["token-tv"])) as stream:
        stream.next("created")
        server.client.acknowledge("b", author="ana")
        for _ in range(2):
            server.client.acknowledge("incident-1", author="ana", comment="looking")
        server.publish(escalation(2))
        ack, event = stream.events(2)
        assert (ack.acknowledgement.author, ack.acknowledgement.transition) == ("ana", 1)
        assert event.event_id == "incident-1/2"
