"""A running escalation service for tests of its Subscribe stream, and words for what comes over it."""

import contextlib

from escalation_examples import RawStream, config, escalation, start, stub

from paritas.controller import tokens
from paritas.controller.client import EscalationClient
from paritas.controller.compaction import Retention
from paritas.controller.config import Limits
from paritas.controller.server import serving
from paritas.proto.v1 import escalation_pb2 as pb


class Running:
    """A server, a client of it, and its raw stub."""

    def __init__(self, client, service):
        self.client, self.service = client, service

    def publish(self, *events):
        return self.client.publish(events)

    def subscribe(self, *args, **kwargs):
        return RawStream(self.service, start(*args, **kwargs))


@contextlib.contextmanager
def running(folder, clock):
    """A server with small limits, so that a test reaches them."""
    conf = config(folder, limits=Limits(queue_events=8), retention=Retention(events=50), farewell_s=0.2)
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
