"""The Subscribe stream of a real server, message by message: delivery, acks, races."""

import threading

import pytest
from escalation_examples import RESUME, SNAPSHOT, RawStream, config, escalation, start, stub
from session_scenes import chain, ids, running, seq

from paritas.clock import ManualClock
from paritas.controller import tokens
from paritas.controller.client import EscalationClient
from paritas.controller.server import serving
from paritas.controller.tokens import Token
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Phase, Severity


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def server(tmp_path, clock):
    with running(tmp_path, clock) as made:
        yield made


def test_what_is_published_is_received(server):
    with server.subscribe() as stream:
        created = stream.next()
        assert (created.protocol_version, created.snapshot, created.heartbeat_interval_s) == (1, False, 0.05)
        assert (seq(created.head), seq(created.oldest)) == (0, 0)
        server.publish(*chain(3))
        assert ids(stream.events(3)) == ["incident-1/1", "incident-1/2", "incident-1/3"]


def test_a_repeat_is_delivered_once(server):
    with server.subscribe() as stream:
        stream.next("created")
        for _ in range(3):
            server.publish(*chain(2))
        server.publish(escalation(3))
        assert ids(stream.events(3)) == ["incident-1/1", "incident-1/2", "incident-1/3"]


def test_now_is_only_what_comes(server):
    server.publish(*chain(2))
    with server.subscribe() as stream:
        assert seq(stream.next("created").head) == 2
        server.publish(escalation(3))
        assert ids(stream.events(1)) == ["incident-1/3"]


def test_a_token_is_everything_after_it(server):
    server.publish(*chain(5))
    with server.subscribe() as stream:
        head = stream.next("created").head
    start_token = tokens.encode(Token(tokens.decode(head, field="t").epoch, 2))
    with server.subscribe(token=start_token) as stream:
        events = stream.events(3)
        assert ids(events) == ["incident-1/3", "incident-1/4", "incident-1/5"]
    with server.subscribe(token=events[1].token) as stream:
        assert ids(stream.events(1)) == ["incident-1/5"]


def test_a_snapshot_is_the_open_incidents_then_what_comes(server):
    server.publish(
        *chain(2, incident_id="a"),
        escalation(1, incident_id="b", after=Phase.RESOLVED),
        escalation(1, incident_id="c"),
    )
    server.client.acknowledge("c", author="ana", comment="looking")
    with server.subscribe(snapshot_then_follow=SNAPSHOT) as stream:
        assert stream.next("created").snapshot
        first, second = stream.next("snapshot_item"), stream.next("snapshot_item")
        assert ids([first.incident.current, second.incident.current]) == ["a/2", "c/1"]
        assert (first.incident.acknowledgement.author, second.incident.acknowledgement.author) == ("", "ana")
        assert seq(stream.next("snapshot_end").token) == 5
        server.publish(escalation(2, incident_id="c"))
        [event] = stream.events(1)
        assert (event.event_id, seq(event.token)) == ("c/2", 6)


def test_a_filter_lets_a_snapshot_and_events_through_alike(server):
    only = pb.Filter(clauses=["b"])
    server.publish(escalation(1, incident_id="x", clause="a"), escalation(1, incident_id="y", clause="b"))
    with server.subscribe(snapshot_then_follow=SNAPSHOT, filter=only) as stream:
        assert stream.next("snapshot_item").incident.current.event_id == "y/1"
        stream.next("snapshot_end")
        server.publish(escalation(2, incident_id="x", clause="a"), escalation(2, incident_id="y", clause="b"))
        assert ids(stream.events(1)) == ["y/2"]


def test_whoever_saw_an_incident_turn_critical_sees_its_end(server):
    with server.subscribe(filter=pb.Filter(min_severity=pb.SEVERITY_CRITICAL)) as stream:
        stream.next("created")
        server.publish(
            escalation(1),
            escalation(2, severity=Severity.CRITICAL),
            escalation(3, severity=Severity.INFO, after=Phase.RESOLVED),
            escalation(1, incident_id="mild", severity=Severity.INFO),
            escalation(1, incident_id="last", severity=Severity.CRITICAL),
        )
        assert ids(stream.events(3)) == ["incident-1/2", "incident-1/3", "last/1"]


def test_a_heartbeat_moves_the_token_past_what_the_filter_hides(server):
    with server.subscribe(filter=pb.Filter(clauses=["other"])) as stream:
        stream.next("created")
        server.publish(*chain(5))
        while seq((beat := stream.next("heartbeat")).token) < 5:
            pass
        assert beat.queued == 0
    server.publish(escalation(1, incident_id="new"))
    with server.subscribe(token=beat.token) as stream:
        assert ids(stream.events(1)) == ["new/1"]


def test_a_ping_is_answered_by_a_heartbeat(tmp_path):
    with (
        serving(config(tmp_path, heartbeat_s=3600)) as target,
        stub(target) as service,
        RawStream(service, start()) as stream,
    ):
        stream.next("created")
        stream.send(ping=pb.ClientMsg.Ping())
        assert seq(stream.next().token) == 0


def test_a_client_that_says_no_more_goes_on_listening(server):
    with server.subscribe() as stream:
        stream.next("created")
        stream.send()
        server.publish(escalation(1))
        assert ids(stream.events(1)) == ["incident-1/1"]
        stream.send()  # the context manager's own end


# Acks


def test_resume_goes_on_after_the_last_ack(server):
    with server.subscribe(resume=RESUME) as stream:
        assert stream.next("created").snapshot  # never acked
        stream.next("snapshot_end")
        server.publish(*chain(4))
        events = stream.events(4)
        stream.send(ack=pb.ClientMsg.Ack(token=events[2].token))
        stream.send(ack=pb.ClientMsg.Ack(token=events[1].token))
        stream.send(stop=pb.ClientMsg.Stop())
        rest, error = stream.end()
        assert error is None
        assert {message.WhichOneof("body") for message in rest} <= {"heartbeat"}
    with server.subscribe(resume=RESUME) as stream:
        assert not stream.next("created").snapshot
        assert ids(stream.events(1)) == ["incident-1/4"]
    with server.subscribe("another", resume=RESUME) as stream:
        assert stream.next("created").snapshot


def test_no_more_than_max_outstanding_are_sent_unacked(server):
    with server.subscribe(max_outstanding=2) as stream:
        stream.next("created")
        server.publish(*chain(5))
        first = stream.events(2)
        # Nothing but heartbeats comes now, and they do not pass what was sent.
        beats = [stream.next() for _ in range(4)]
        assert [seq(beat.token) for beat in beats] == [2, 2, 2, 2]
        stream.send(ack=pb.ClientMsg.Ack(token=first[0].token))
        assert ids(stream.events(1)) == ["incident-1/3"]
        stream.send(ack=pb.ClientMsg.Ack(token=beats[0].token))
        assert ids(stream.events(1)) == ["incident-1/4"]


def test_a_nack_is_recorded_and_the_stream_goes_on(server, caplog):
    with server.subscribe() as stream:
        stream.next("created")
        stream.send(nack=pb.ClientMsg.Nack(event_id="e1", error="no such route"))
        stream.send(nack=pb.ClientMsg.Nack(event_id="e" * 100_000, error="x" * 100_000))
        stream.send(ping=pb.ClientMsg.Ping())
        stream.next("heartbeat")
        server.publish(escalation(1))
        stream.events(1)
        stream.send(stop=pb.ClientMsg.Stop())
        assert stream.end()[1] is None
    [record, long] = [r for r in caplog.records if r.message == "Subscriber could not apply an event."]
    assert (record.subscriber_id, record.event_id, record.error) == ("raw", "e1", "no such route")
    assert (len(long.event_id), len(long.error)) == (4096, 4096), (
        "a client fills neither the log nor the disk"
    )


# Races


def test_streams_that_start_while_much_is_published_have_no_gap_and_no_double(tmp_path):
    """Twelve streams start at any moment of a burst, by token, in the log or at its head."""
    total, received = 120, {}
    with serving(config(tmp_path)) as target, EscalationClient(target) as client, stub(target) as service:
        with RawStream(service, start()) as stream:
            origin = stream.next("created").head

        def read(name):
            with RawStream(service, start(name, token=origin)) as stream:
                received[name] = ids(stream.events(total))

        readers = [threading.Thread(target=read, args=(f"r{n}",)) for n in range(12)]
        for number in range(1, total + 1):
            client.publish([escalation(number)])
            if number % 10 == 0:
                readers[number // 10 - 1].start()
        for reader in readers:
            reader.join()
    assert list(received.values()) == [[f"incident-1/{n}" for n in range(1, total + 1)]] * 12
