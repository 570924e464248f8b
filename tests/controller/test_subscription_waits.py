"""The client's subscription while it is not connected: what is waited for, how long, and what ends it."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from escalation_examples import config, escalation, take

from paritas.clock import SystemClock
from paritas.controller.backoff import Backoff
from paritas.controller.client import EscalationClient, StartAt, SubscriptionOptions
from paritas.controller.server import serving
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.proto.v1 import escalation_pb2_grpc as pb_grpc

QUICK = Backoff(first_s=0.01, most_s=0.05)


@pytest.fixture
def listen(tmp_path):
    """An address that outlives the servers on it."""
    return f"unix:{tmp_path}/c.sock"


def test_a_client_that_is_closed_while_its_subscription_connects_just_ends_it():
    client = EscalationClient("127.0.0.1:1", backoff=QUICK)
    stream = client.subscribe("router")
    connect = stream._connect

    def closed_meanwhile(first):
        client.close()
        return connect(first)

    stream._connect = closed_meanwhile
    assert list(stream) == []


class Greeter(pb_grpc.EscalationServiceServicer):
    """A server that takes every stream and then cannot use its log, as on a full disk."""

    def Subscribe(self, messages, context):  # noqa: N802
        next(messages)
        yield pb.ServerMsg(created=pb.ServerMsg.Created(heartbeat_interval_s=3600))
        context.abort(grpc.StatusCode.UNAVAILABLE, "disk full")


class Waits(SystemClock):
    """Notes how long is waited, and closes after the sixth."""

    def __init__(self):
        self.waits_s = []

    def wait(self, event, *, timeout_s):
        self.waits_s.append(timeout_s)
        if len(self.waits_s) == 6:
            event.set()
        return event.is_set()


def test_a_greeting_alone_is_no_success_and_the_waits_grow(listen):
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads)
        pb_grpc.add_EscalationServiceServicer_to_server(Greeter(), server)
        server.add_insecure_port(listen)
        server.start()
        with EscalationClient(listen, backoff=Backoff(first_s=0.01, most_s=60.0)) as client:
            stream = client.subscribe("router", SubscriptionOptions(start=StartAt.NOW))
            stream._clock = clock = Waits()
            assert list(stream) == []
        server.stop(None).wait()
    assert clock.waits_s[5] >= 0.01 * 2**5 / 2


class TokenOnWait(SystemClock):
    """Puts the token in place at the second wait: the first try after the restart finds none."""

    def __init__(self, file):
        self.file, self.waits = file, 0

    def wait(self, event, *, timeout_s):
        self.waits += 1
        if self.waits == 2:
            self.file.write_text("0123456789")
        return super().wait(event, timeout_s=timeout_s)


def test_a_token_file_in_renewal_is_waited_for(listen, tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789")
    with (
        EscalationClient(listen, backoff=QUICK, token_file=token) as client,
        client.subscribe("router") as stream,
    ):
        with serving(config(tmp_path, listen=listen)):
            take(stream, 2)
        token.unlink()
        stream._clock = TokenOnWait(token)
        with serving(config(tmp_path, listen=listen)), EscalationClient(listen) as publisher:
            publisher.publish([escalation()])
            assert [d.event_id for d in take(stream, 1)] == ["incident-1/1"]
