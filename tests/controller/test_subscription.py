"""The client's subscription: over restarts, gaps, repeats and servers that fall silent."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import pytest
from escalation_examples import DEADLINE_S, config, escalation, plain, take

from paritas.clock import SystemClock
from paritas.contracts.model import Operator, Requirement
from paritas.controller import tokens
from paritas.controller.backoff import Backoff
from paritas.controller.client import DeliveryKind, EscalationClient, Filter, StartAt, SubscriptionOptions
from paritas.controller.compaction import Retention
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.server import serving
from paritas.controller.tokens import Token
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.proto.v1 import escalation_pb2_grpc as pb_grpc

QUICK = Backoff(first_s=0.01, most_s=0.05)
NOW = SubscriptionOptions(start=StartAt.NOW)
CLAUSE = Requirement("clause", Operator.IN, ("token-tv",))


def numbered(first, last):
    return [f"incident-1/{n}" for n in range(first, last + 1)]


def chain(first, last):
    return [escalation(n) for n in range(first, last + 1)]


def ids(deliveries):
    return [d.event_id for d in deliveries]


class Place:
    """An address that outlives the servers on it, and a client of it."""

    def __init__(self, folder):
        self.folder, self.listen = folder, f"unix:{folder}/c.sock"
        self.client = EscalationClient(self.listen, backoff=QUICK)

    def serving(self, **changes):
        return serving(config(self.folder, **{"listen": self.listen, **changes}))

    def lose_log(self):
        for path in self.folder.glob("escalations.db*"):
            path.unlink()


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    with place.client:
        yield place


@pytest.fixture
def patient(monkeypatch):
    """Who leaves waits until the server has kept the acks, not for a second: how long that takes is the disk's to say."""
    monkeypatch.setattr("paritas.controller.connection._FAREWELL_S", DEADLINE_S)


def test_a_first_resume_is_a_snapshot_then_what_comes(place):
    with place.serving(), place.client.subscribe("router") as stream:
        place.client.publish(chain(1, 2))
        first = take(stream, 3)
        assert [d.kind for d in first] == ["snapshot_start", "incident", "snapshot_end"]
        assert plain(first[1].incident.current) == plain(escalation(2))
        place.client.publish(chain(3, 3))
        [event] = take(stream, 1)
        assert (event.kind, plain(event.escalation)) == (DeliveryKind.ESCALATION, plain(escalation(3)))
        assert [a.kind for a in event.actions] == ["reroute"]


def test_it_goes_on_over_a_restart_without_gap_or_double(place):
    with place.client.subscribe("router") as stream:
        with place.serving():
            take(stream, 2)
            place.client.publish(chain(1, 4))
            before = take(stream, 3)  # the fourth is on its way or not
        with place.serving():
            place.client.publish(chain(2, 6))
            assert ids(before + take(stream, 3)) == numbered(1, 6)
        assert stream.connections > 1


@pytest.mark.usefixtures("patient")
def test_a_new_process_resumes_after_its_last_ack(place):
    with place.serving(), place.client.subscribe("router") as stream:
        take(stream, 2)
        place.client.publish(chain(1, 5))
        events = take(stream, 4)
        stream.ack(events[2])
    with place.serving(), place.client.subscribe("router") as stream:
        assert ids(take(stream, 2)) == numbered(4, 5)


@pytest.mark.usefixtures("patient")
def test_auto_ack_acks_what_was_passed_over_by_the_next(place):
    options = SubscriptionOptions(auto_ack=True, max_outstanding=1)
    with place.serving():
        with place.client.subscribe("router", options) as stream:
            take(stream, 2)
            place.client.publish(chain(1, 5))
            assert ids(take(stream, 4)) == numbered(1, 4)
        with place.client.subscribe("router", options) as stream:
            assert ids(take(stream, 2)) == numbered(4, 5)


def test_a_saved_token_goes_on_after_it(place):
    with place.serving():
        with place.client.subscribe("a") as stream:
            [_, end] = take(stream, 2)
            place.client.publish(chain(1, 4))
            take(stream, 2)
            saved = stream.token
        assert end.token != saved
        with place.client.subscribe("b", SubscriptionOptions(start=saved)) as stream:
            assert ids(take(stream, 2)) == numbered(3, 4)


def test_a_gap_is_told_by_a_snapshot(place):
    """The log was compacted beyond where the subscriber is."""
    with place.serving(retention=Retention(events=5)):
        with place.client.subscribe("router") as stream:
            take(stream, 2)
            place.client.publish(chain(1, 1))
            stream.ack(take(stream, 1)[0])
        place.client.publish(chain(2, 20))
        with place.client.subscribe("router") as stream:
            first = take(stream, 3)
            assert [d.kind for d in first] == ["snapshot_start", "incident", "snapshot_end"]
            assert first[1].event_id == "incident-1/20"
            place.client.publish(chain(21, 21))
            assert ids(take(stream, 1)) == numbered(21, 21)


def test_a_lost_log_is_a_gap_and_old_acks_mean_nothing(place):
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        first.enter_context(place.serving())
        stream = stack.enter_context(place.client.subscribe("router"))
        take(stream, 2)
        place.client.publish(chain(1, 3))
        old = take(stream, 3)
        stream.ack(old[0])
        first.close()
        place.lose_log()
        with place.serving():
            place.client.publish(chain(1, 1))
            kinds = [d.kind for d in take(stream, 3)]
            assert kinds == ["snapshot_start", "incident", "snapshot_end"]
            stream.ack(old[2])
            place.client.publish(chain(2, 4))
            # The reader has handled 2 and 3 before, and the snapshot has taken that back: they are news to it.
            assert ids(take(stream, 3)) == numbered(2, 4)
            assert stream.skipped == 0


def test_a_log_restored_from_a_copy_is_a_gap_too(place):
    """Its epoch is the same, its numbers are not: what the reader holds is ahead of it."""
    log = place.folder / "escalations.db"
    with place.client.subscribe("router") as stream:
        with place.serving():
            place.client.publish(chain(1, 1))
            take(stream, 3)
        copy = log.read_bytes()
        with place.serving():
            place.client.publish(chain(2, 5))
            old = take(stream, 4)
        log.write_bytes(copy)
        with place.serving():
            assert [d.kind for d in take(stream, 3)] == ["snapshot_start", "incident", "snapshot_end"]
            stream.ack(old[-1])
            place.client.publish(chain(6, 6))
            assert ids(take(stream, 1)) == numbered(6, 6)


def test_a_repeat_under_a_new_number_is_dropped_and_does_not_stop_the_stream(place):
    """The server has forgotten an identity long ago; the subscriber has not."""
    options = SubscriptionOptions(max_outstanding=1)
    with place.serving(retention=Retention(events=2)), place.client.subscribe("router", options) as stream:
        for delivery in take(stream, 2):
            stream.ack(delivery)
        for number in range(1, 31):
            place.client.publish(chain(number, number))
            stream.ack(take(stream, 1)[0])
        place.client.publish(chain(1, 1))
        place.client.publish(chain(31, 31))
        assert ids(take(stream, 1)) == numbered(31, 31)
        assert stream.skipped == 1


def test_another_process_of_the_same_name_ends_this_one_for_good(place):
    with place.serving(), place.client.subscribe("router") as old:
        take(old, 2)
        with place.client.subscribe("router") as new:
            take(new, 2)
            with pytest.raises(RefusalError) as caught:
                take(old, 1)
            assert (caught.value.reason, str(caught.value)) == (
                Refused.REPLACED,
                "another stream of subscriber 'router' has started",
            )


def test_what_the_server_will_never_take_is_raised(place):
    with place.serving():
        with (
            place.client.subscribe("") as stream,
            pytest.raises(RefusalError, match=r"^start\.subscriber_id: must be 1 to 256 bytes long$"),
        ):
            next(stream)
        with (
            place.client.subscribe("a", SubscriptionOptions(start=b"garbage")) as stream,
            pytest.raises(RefusalError, match=r"^start\.token: not a token of this service \(7 bytes\) "),
        ):
            next(stream)


class ServerOnWait(SystemClock):
    """Starts the server when the subscription first waits for its next try."""

    def __init__(self, begin):
        self._begin = begin

    def wait(self, event, *, timeout_s):
        begin, self._begin = self._begin, lambda: None
        begin()
        return super().wait(event, timeout_s=timeout_s)


def test_a_server_that_is_not_there_yet_is_waited_for(place, caplog):
    with ExitStack() as stack, place.client.subscribe("router") as stream:
        stream._clock = ServerOnWait(lambda: stack.enter_context(place.serving()))
        assert [d.kind for d in take(stream, 2)] == ["snapshot_start", "snapshot_end"]
    [first, *_] = caplog.records
    assert first.message == "Subscription was interrupted, it resumes."
    assert first.error.startswith("subscribe: UNAVAILABLE: ")


def test_closing_from_another_thread_ends_the_iteration(place):
    with place.serving(heartbeat_s=3600), place.client.subscribe("router") as stream:
        take(stream, 2)
        closing = threading.Timer(0.01, stream.close)
        closing.start()
        assert list(stream) == []
        closing.join()
        stream.close()
        assert list(stream) == []


def test_closing_the_client_ends_its_subscriptions(place):
    with place.serving():
        stream = place.client.subscribe("router")
        take(stream, 2)
        place.client.close()
        assert list(stream) == []


def test_a_filter_goes_with_the_subscription(place):
    only = Filter(clauses=frozenset({"b"}))
    with place.serving(), place.client.subscribe("router", SubscriptionOptions(only=only)) as stream:
        take(stream, 2)
        place.client.publish([escalation(1, incident_id="x"), escalation(1, incident_id="y", clause="b")])
        assert ids(take(stream, 1)) == ["y/1"]


def test_silences_and_acknowledgements_arrive_as_records(place):
    with place.serving(), place.client.subscribe("router") as stream:
        take(stream, 2)
        silence = place.client.silence([CLAUSE], author="ana", comment="swap", duration_s=60)
        place.client.publish(chain(1, 1))
        ack = place.client.acknowledge("incident-1", author="bo")
        one, two, three = take(stream, 3)
        assert (one.kind, one.silence) == (DeliveryKind.SILENCE, silence)
        assert (two.suppression.author, two.actions, len(two.escalation.actions)) == ("ana", (), 1)
        assert (three.kind, three.acknowledgement) == (DeliveryKind.ACKNOWLEDGEMENT, ack)


def test_an_event_this_version_cannot_read_is_nacked_and_passed_over(place, caplog):
    with place.serving(), place.client.subscribe("router") as stream:
        take(stream, 2)
        message = pb.ServerMsg(event=pb.Event(event_id="new", token=tokens.encode(Token(1, 1))))
        message.event.escalation.SetInParent()
        assert stream._delivery(message) is None
        assert stream.skipped == 1
        place.client.publish(chain(1, 1))
        assert ids(take(stream, 1)) == numbered(1, 1)
    told = [r.message for r in caplog.records]
    assert "Event cannot be read." in told
    assert "Subscriber could not apply an event." in told


class Troubled(pb_grpc.EscalationServiceServicer):
    """A real server in trouble that ours cannot be brought into at will, another one on each stream."""

    def __init__(self):
        self.starts, self.acks = [], []
        self._troubles = iter([self._hang, self._bookmark_and_hang, self._fail_after_ack, self._serve])

    def Subscribe(self, messages, context):  # noqa: N802
        self.starts.append(next(messages).start)
        created = pb.ServerMsg.Created(head=tokens.encode(Token(1, 1)))
        created.heartbeat_interval_s = 0.3 if len(self.starts) <= 2 else 3600
        yield pb.ServerMsg(created=created)
        yield from next(self._troubles)(messages, context)

    def _hang(self, _messages, context):
        gone = threading.Event()
        context.add_callback(gone.set)
        gone.wait()
        yield from ()

    def _bookmark_and_hang(self, messages, context):
        yield pb.ServerMsg(heartbeat=pb.ServerMsg.Heartbeat(token=tokens.encode(Token(1, 9))))
        yield from self._hang(messages, context)

    def _fail_after_ack(self, messages, context):
        yield self._event(10)
        self.acks.append(next(messages).ack.token)
        context.abort(grpc.StatusCode.UNAVAILABLE, "in trouble")

    def _serve(self, messages, _context):
        self.acks.append(next(messages).ack.token)
        yield pb.ServerMsg(heartbeat=pb.ServerMsg.Heartbeat(token=tokens.encode(Token(1, 12))))
        self.acks.append(next(messages).ack.token)
        yield self._event(13)
        list(messages)  # until the client stops

    def _event(self, number):
        body = {"event_id": f"e{number}", "acknowledgement": pb.Acknowledgement(author="ana")}
        return pb.ServerMsg(event=pb.Event(token=tokens.encode(Token(1, number)), **body))


def test_it_gets_through_a_server_in_trouble(place):
    """Silence is left after three missed heartbeats, bookmarks count and are acked, a lost ack is said again."""
    service = Troubled()
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads)
        pb_grpc.add_EscalationServiceServicer_to_server(service, server)
        server.add_insecure_port(place.listen)
        server.start()
        with place.client.subscribe("router", NOW) as stream:
            [event] = take(stream, 1)
            stream.ack(event)
            assert ids([event, *take(stream, 1)]) == ["e10", "e13"]
        server.stop(None).wait()
    points = [(s.WhichOneof("start"), s.token) for s in service.starts]
    told = [tokens.encode(Token(1, seq)) for seq in (1, 9, 10, 12)]
    assert points == [("now", b""), *(("token", token) for token in told[:3])]
    assert service.acks == [told[2], told[2], told[3]]
