"""How a Subscribe stream ends: too slow, out of range, replaced, broken, gone."""

import threading

import grpc
import pytest
from escalation_examples import RESUME, SNAPSHOT, RawStream, config, escalation, start, stub
from session_scenes import chain, ended, ids, running

from paritas.clock import ManualClock
from paritas.controller import tokens
from paritas.controller.server import serving
from paritas.controller.tokens import Token
from paritas.proto.v1 import escalation_pb2 as pb


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def server(tmp_path, clock):
    with running(tmp_path, clock) as made:
        yield made


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
    for first in (pb.ClientMsg(ping=pb.ClientMsg.Ping()), pb.ClientMsg()):
        with RawStream(server.service, first) as stream:
            assert ended(
                stream, grpc.StatusCode.INVALID_ARGUMENT, "the first message of a stream must be start"
            ) == ([], None)


def test_a_start_that_does_not_come_is_refused(tmp_path):
    with serving(config(tmp_path, start_s=0.05)) as target, stub(target) as service:
        silent = threading.Event()
        call = service.Subscribe(iter(silent.wait, True), timeout=30)
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
        silent.set()  # or gRPC's thread would wait for ever
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
