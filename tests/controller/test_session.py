"""The Subscribe stream of a real server, message by message."""

import threading

import grpc
import pytest
from escalation_examples import RESUME, SNAPSHOT, RawStream, config, escalation, start, stub

from paritas.clock import ManualClock
from paritas.contracts.model import Operator, Requirement
from paritas.controller import tokens
from paritas.controller.client import EscalationClient
from paritas.controller.compaction import Retention
from paritas.controller.config import Limits
from paritas.controller.server import serving
from paritas.controller.tokens import Token
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Phase, Severity

CLAUSE = Requirement("clause", Operator.IN, ("token-tv",))


class Running:
    """A server, a client of it, and its raw stub."""

    def __init__(self, client, service):
        self.client, self.service = client, service

    def publish(self, *events):
        return self.client.publish(events)

    def subscribe(self, *args, **kwargs):
        return RawStream(self.service, start(*args, **kwargs))


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def server(tmp_path, clock):
    limits = Limits(queue_events=8)
    conf = config(tmp_path, limits=limits, retention=Retention(events=50), farewell_s=0.2)
    with (
        serving(conf, clock=clock) as target,
        EscalationClient(target, clock=clock) as client,
        stub(target) as service,
    ):
        yield Running(client, service)


def ids(events):
    return [event.event_id for event in events]


def chain(count, first=1, **changes):
    return [escalation(n, **changes) for n in range(first, first + count)]


def seq(token):
    return tokens.decode(token, field="token").seq


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
        assert stream.next().snapshot
        first, second = stream.next(), stream.next()
        assert ids([first.incident.current, second.incident.current]) == ["a/2", "c/1"]
        assert (first.incident.acknowledgement.author, second.incident.acknowledgement.author) == ("", "ana")
        assert seq(stream.next().token) == 5
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
        stream.send(ping=pb.ClientMsg.Ping())
        stream.next("heartbeat")
        server.publish(escalation(1))
        stream.events(1)
        stream.send(stop=pb.ClientMsg.Stop())
        assert stream.end()[1] is None
    [record] = [r for r in caplog.records if r.message == "Subscriber could not apply an event."]
    assert (record.subscriber_id, record.event_id, record.error) == ("raw", "e1", "no such route")


# Ends


def ended(stream, code, text):
    """Check how a stream ends; return the last message."""
    rest, error = stream.end()
    assert (error.code(), error.details()) == (code, text)
    trailer = dict(error.trailing_metadata()).get("paritas-canceled-bin")
    if trailer is None:
        return rest, None
    canceled = pb.ServerMsg.Canceled.FromString(trailer)
    assert canceled.detail == text
    if rest and rest[-1].HasField("canceled"):
        assert rest.pop().canceled == canceled
    return rest, canceled


def test_a_subscriber_that_does_not_ack_is_canceled_and_others_get_everything(server):
    with server.subscribe("slow", max_outstanding=1) as slow, server.subscribe("quick") as quick:
        slow.next("created")
        quick.next("created")
        for number in range(1, 31):
            server.publish(escalation(number))
            assert quick.next("event").event_id == f"incident-1/{number}"
        rest, canceled = ended(slow, grpc.StatusCode.RESOURCE_EXHAUSTED, "too slow: 8 events were waiting")
        assert canceled.reason == pb.ServerMsg.REASON_OVERFLOW
        assert ids(m.event for m in rest if m.HasField("event")) == ["incident-1/1"]
    with server.subscribe("slow", token=canceled.resume) as slow:
        assert ids(slow.events(29)) == [f"incident-1/{n}" for n in range(2, 31)]


def test_a_subscriber_that_does_not_read_is_canceled_and_others_get_everything(server):
    large = "x" * 200_000  # 50 of them are more than the transport takes in
    with server.subscribe("deaf") as deaf, server.subscribe("quick") as quick:
        deaf.next("created")
        quick.next("created")
        for number in range(1, 51):
            server.publish(escalation(number, summary=large))
            assert quick.next("event").event_id == f"incident-1/{number}"
        rest, canceled = ended(deaf, grpc.StatusCode.RESOURCE_EXHAUSTED, "too slow: 8 events were waiting")
        received = ids(m.event for m in rest if m.HasField("event"))
        assert received == [f"incident-1/{n}" for n in range(1, len(received) + 1)]
        assert len(received) < 50
    with server.subscribe("deaf", token=canceled.resume) as deaf:
        assert ids(deaf.events(50 - len(received))) == [
            f"incident-1/{n}" for n in range(len(received) + 1, 51)
        ]


def test_a_compacted_token_is_out_of_range_and_the_oldest_is_told(server):
    with server.subscribe() as stream:
        origin = stream.next("created").head
    for number in range(1, 61):
        server.publish(escalation(1, incident_id=f"i{number}"))
    text = "token: 0 is outside the log, which holds 6 to 60"
    with server.subscribe(token=origin) as stream:
        rest, canceled = ended(stream, grpc.StatusCode.OUT_OF_RANGE, text)
        assert (rest, canceled.reason) == ([], pb.ServerMsg.REASON_OUT_OF_RANGE)
    with server.subscribe(token=canceled.oldest) as stream:
        assert ids(stream.events(54)) == [f"i{n}/1" for n in range(7, 61)]


def test_a_token_of_another_log_or_from_the_future_is_out_of_range(server):
    with server.subscribe() as stream:
        epoch = tokens.decode(stream.next("created").head, field="t").epoch
    other = tokens.encode(Token(epoch + 1, 0))
    with server.subscribe(token=other) as stream:
        ended(stream, grpc.StatusCode.OUT_OF_RANGE, "token: is of another log")
    ahead = tokens.encode(Token(epoch, 1))
    with server.subscribe(token=ahead) as stream:
        text = "token: 1 is outside the log, which holds 0 to 0"
        ended(stream, grpc.StatusCode.OUT_OF_RANGE, text)


def test_a_newer_stream_of_the_same_subscriber_replaces_the_older(server):
    with server.subscribe("router") as old:
        old.next("created")
        with server.subscribe("router") as new:
            new.next("created")
            text = "another stream of subscriber 'router' has started"
            _, canceled = ended(old, grpc.StatusCode.ABORTED, text)
            assert canceled.reason == pb.ServerMsg.REASON_REPLACED
            server.publish(escalation(1))
            assert ids(new.events(1)) == ["incident-1/1"]


BROKEN = {
    "start: may only be the first message": start(),
    "ack.token: not a token of this service (3 bytes)": pb.ClientMsg(ack=pb.ClientMsg.Ack(token=b"abc")),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.items(), ids=BROKEN)
def test_a_broken_protocol_ends_the_stream(server, text, message):
    with RawStream(server.service, start(), message) as stream:
        _, canceled = ended(stream, grpc.StatusCode.INVALID_ARGUMENT, text)
        assert canceled.reason == pb.ServerMsg.REASON_INVALID


def test_an_ack_of_what_was_not_sent_ends_the_stream_and_is_not_kept(server):
    server.publish(*chain(3))
    with server.subscribe() as stream:
        head = stream.next("created").head
        epoch = tokens.decode(head, field="t").epoch
        stream.send(ack=pb.ClientMsg.Ack(token=head))
        stream.send(ack=pb.ClientMsg.Ack(token=tokens.encode(Token(epoch, 4))))
        ended(stream, grpc.StatusCode.INVALID_ARGUMENT, "ack.token: is ahead of what was sent")
    server.publish(escalation(4))
    with server.subscribe(resume=RESUME) as stream:
        assert ids(stream.events(1)) == ["incident-1/4"]


def test_a_wrong_first_message_is_refused(server):
    ping = pb.ClientMsg(ping=pb.ClientMsg.Ping())
    with RawStream(server.service, ping) as stream:
        assert ended(
            stream, grpc.StatusCode.INVALID_ARGUMENT, "the first message of a stream must be start"
        ) == ([], None)


def test_a_start_that_does_not_come_is_refused(tmp_path):
    with serving(config(tmp_path, start_s=0.05)) as target, stub(target) as service:
        with RawStream(service, pb.ClientMsg()) as stream:
            ended(stream, grpc.StatusCode.INVALID_ARGUMENT, "the first message of a stream must be start")
        call = service.Subscribe(iter(threading.Event().wait, None), timeout=30)
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
        assert caught.value.details() == "start: did not come within 0.05 s"


def test_clients_that_leave_without_a_word_leave_no_trace(server, caplog):
    for number in range(1, 31):
        with server.subscribe(f"s{number}", snapshot_then_follow=SNAPSHOT) as stream:
            server.publish(escalation(number))
            if number % 2:
                stream.next("created")
    with server.subscribe() as stream:
        stream.next("created")
        server.publish(escalation(31))
        assert ids(stream.events(1)) == ["incident-1/31"]
    assert [record.message for record in caplog.records] == []


# People


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
