"""The unary methods of a real server, and what they refuse."""

import asyncio

import grpc
import pytest
from escalation_examples import DEADLINE_S, HOUR_NS, config, escalation, stub

from paritas.clock import ManualClock
from paritas.contracts.model import Operator, Requirement
from paritas.controller import tokens
from paritas.controller.async_client import AsyncEscalationClient
from paritas.controller.client import EscalationClient, Filter
from paritas.controller.compaction import Retention
from paritas.controller.config import Limits
from paritas.controller.convert import escalation_to
from paritas.controller.decisions import expire_silence
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.server import EscalationServer, serving
from paritas.controller.tokens import Token
from paritas.errors import TransientError
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Phase, Severity

CLAUSE = Requirement("clause", Operator.IN, ("token-tv",))


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def target(tmp_path, clock):
    limits = Limits(silences=2, batch_events=1000, event_bytes=100_000, text_bytes=100)
    with serving(config(tmp_path, limits=limits, retention=Retention(events=1500)), clock=clock) as target:
        yield target


@pytest.fixture
def client(target, clock):
    with EscalationClient(target, clock=clock, timeout_s=DEADLINE_S) as client:
        yield client


@pytest.fixture
def service(target):
    with stub(target) as service:
        yield service


def refusal(call, *args, **kwargs):
    with pytest.raises(RefusalError) as caught:
        call(*args, **kwargs)
    return caught.value.reason, str(caught.value)


def status(call, request):
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=30)
    return caught.value.code(), caught.value.details()


# Publish


def test_publish_counts_what_was_new(service):
    messages = [escalation_to(escalation(n)) for n in (1, 2)]
    first = service.Publish(pb.PublishRequest(events=messages), timeout=30)
    again = service.Publish(pb.PublishRequest(events=[*messages, messages[0]]), timeout=30)
    assert (first.accepted, first.duplicates) == (2, 0)
    assert (again.accepted, again.duplicates) == (0, 3)
    nothing = service.Publish(pb.PublishRequest(), timeout=30)
    assert (nothing.accepted, nothing.duplicates) == (0, 0)


def test_one_bad_event_refuses_its_batch(service, client):
    messages = [escalation_to(escalation(1)), escalation_to(escalation(2, incident_id="b"))]
    messages[1].incident_id = ""
    assert status(service.Publish, pb.PublishRequest(events=messages)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "events[1].incident_id: must not be empty",
    )
    assert list(client.incidents()) == []


def test_a_batch_or_an_event_too_large_is_refused(service):
    message = escalation_to(escalation(1))
    code, text = status(service.Publish, pb.PublishRequest(events=[message] * 1001))
    assert (code, text) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "events: 1001 events in one batch, at most 1000 are taken (send several batches)",
    )
    message.summary = "x" * 100_000
    code, text = status(service.Publish, pb.PublishRequest(events=[message]))
    assert (code, text) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        f"events[0]: {message.ByteSize()} bytes, at most 100000 are taken",
    )


# List and Get


def test_open_incidents_oldest_first(client):
    client.publish(
        [
            escalation(1, incident_id="a"),
            escalation(1, incident_id="b"),
            escalation(2, incident_id="b", after=Phase.RESOLVED),
            escalation(1, incident_id="c", clause="x", severity=Severity.CRITICAL),
        ]
    )
    assert [i.current.event_id for i in client.incidents()] == ["a/1", "c/1"]
    everything = list(client.incidents(include_closed=True))
    assert [(i.current.event_id, i.open) for i in everything] == [
        ("a/1", True),
        ("b/2", False),
        ("c/1", True),
    ]
    only = Filter(min_severity=Severity.CRITICAL, clauses=frozenset({"x"}))
    assert [i.current.incident_id for i in client.incidents(only)] == ["c"]


def test_pages_are_whole_and_disjoint(service, client):
    client.publish([escalation(1, incident_id=f"i{n:03}", clause=f"c{n % 2}") for n in range(600)])
    request = pb.ListIncidentsRequest(page_size=70, filter=pb.Filter(clauses=["c1"]))
    pages = []
    while not pages or request.page_token:
        answer = service.List(request, timeout=30)
        pages.append([incident.current.incident_id for incident in answer.incidents])
        request.page_token = answer.next_page_token
    assert [len(page) for page in pages] == [70, 70, 70, 70, 20]
    assert [name for page in pages for name in page] == [f"i{n:03}" for n in range(1, 600, 2)]
    assert len(list(client.incidents())) == 600


def test_an_answer_stays_below_the_size_of_a_message(service, client):
    client.publish([escalation(n, incident_id=f"i{n}", summary="x" * 90_000) for n in range(1, 41)])
    client.publish([escalation(n, incident_id="long", summary="x" * 90_000) for n in range(1, 41)])
    answer = service.List(pb.ListIncidentsRequest(), timeout=30)
    assert 1 < len(answer.incidents) < 41
    assert len(list(client.incidents())) == 41
    history = client.history("long")
    assert [event.transition for event in history.transitions][-1] == 40
    assert (1 < len(history.transitions) < 40, history.complete) == (True, False)


def test_a_page_token_or_size_that_is_wrong(service):
    assert status(service.List, pb.ListIncidentsRequest(page_token=b"x")) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "page_token: not a token of this service (1 bytes) (send back tokens unchanged)",
    )
    assert status(service.List, pb.ListIncidentsRequest(page_size=1001)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "page_size: at most 1000, got 1001",
    )


def test_a_page_token_beyond_every_number_is_an_empty_page(service, client):
    client.publish([escalation(1, incident_id="a"), escalation(1, incident_id="b")])
    first = service.List(pb.ListIncidentsRequest(page_size=1), timeout=30).next_page_token
    epoch = tokens.decode(first, field="page").epoch
    beyond = pb.ListIncidentsRequest(page_token=tokens.encode(Token(epoch, 2**64 - 1)))
    assert list(service.List(beyond, timeout=30).incidents) == []


def test_an_incident_with_its_history(client, clock):
    client.publish([escalation(1), escalation(1, incident_id="other"), escalation(2)])
    ack = client.acknowledge("incident-1", author="ana", comment="looking")
    history = client.history("incident-1")
    assert history.transitions == (escalation(1), escalation(2))
    assert history.acknowledgements == (ack,)
    assert (history.incident.acknowledgement, history.complete) == (ack, True)
    assert (history.incident.opened_ns, ack.acknowledged_ns) == (clock.now_ns(), clock.now_ns())


def test_a_history_that_was_cut_says_so(client):
    client.publish([escalation(1)])
    for batch in range(4):
        client.publish(
            [escalation(n, incident_id="noise") for n in range(batch * 450 + 1, batch * 450 + 451)]
        )
    client.publish([escalation(2)])
    history = client.history("incident-1")
    assert ([event.transition for event in history.transitions], history.complete) == ([2], False)


def test_an_unknown_incident(client):
    unknown = (Refused.NOT_FOUND, "incident 'x' is not known (it may be over and forgotten)")
    assert refusal(client.history, "x") == unknown
    assert refusal(client.acknowledge, "x", author="ana") == unknown


# Acknowledge


def test_acknowledging_twice_is_once_and_after_a_new_transition_again(client, clock):
    client.publish([escalation(1)])
    first = client.acknowledge("incident-1", author="ana")
    clock.advance(seconds=5)
    assert client.acknowledge("incident-1", author="ana") == first
    client.publish([escalation(2)])
    later = client.acknowledge("incident-1", author="ana")
    assert (later.transition, later.acknowledged_ns - first.acknowledged_ns) == (2, 5_000_000_000)
    assert client.history("incident-1").acknowledgements == (first, later)


def test_an_acknowledgement_has_an_author_of_bounded_size(client):
    client.publish([escalation(1)])
    empty = (Refused.INVALID, "author: must not be empty")
    assert refusal(client.acknowledge, "incident-1", author=" ") == empty
    long = (Refused.INVALID, "comment: 101 bytes, at most 100 are taken")
    assert refusal(client.acknowledge, "incident-1", author="a", comment="x" * 101) == long


# Silences


def test_a_silence_is_listed_until_it_ends(client, clock):
    made = client.silence([CLAUSE], author="ana", comment="swap", duration_s=60)
    assert (made.matchers, made.ends_ns - made.starts_ns) == ((CLAUSE,), 60_000_000_000)
    assert client.silences() == [made]
    clock.advance(seconds=60)
    assert (client.silences(), client.silences(include_ended=True)) == ([], [made])


def test_a_silence_can_be_ended_once(client, clock):
    made = client.silence([CLAUSE], author="ana", comment="swap", duration_s=60)
    clock.advance(seconds=10)
    ended = client.expire_silence(made.silence_id, author="bo")
    assert (ended.expired_by, ended.ends_ns - ended.starts_ns) == ("bo", 10_000_000_000)
    clock.advance(seconds=10)
    assert client.expire_silence(made.silence_id, author="cy") == ended
    assert (client.silences(), client.silences(include_ended=True)) == ([], [ended])


def test_of_two_who_end_a_silence_at_once_both_are_told_who_did(tmp_path):
    async def scene():
        async with (
            EscalationServer(config(tmp_path)) as server,
            AsyncEscalationClient(server.target) as client,
        ):
            made = await client.silence([CLAUSE], author="ana", comment="swap", duration_s=60)
            asked = (
                pb.ExpireSilenceRequest(silence_id=made.silence_id, author=name) for name in ("bo", "cy")
            )
            return await asyncio.gather(*(expire_silence(request, server._core) for request in asked))

    first, second = asyncio.run(scene())
    assert first == second
    assert first.expired_by == "bo"


def test_a_planned_silence_that_is_ended_never_was(service, client, clock):
    now_ns = clock.now_ns()
    request = pb.SilenceRequest(
        matchers=[pb.Matcher(field="clause", op=pb.OPERATOR_EXISTS)],
        starts_ns=now_ns + HOUR_NS,
        ends_ns=now_ns + 2 * HOUR_NS,
        author="ana",
        comment="later",
    )
    made = service.Silence(request, timeout=30).silence
    ended = client.expire_silence(made.silence_id, author="bo")
    assert ended.starts_ns == ended.ends_ns == now_ns


def test_silences_survive_a_restart(tmp_path, clock):
    with serving(config(tmp_path), clock=clock) as target, EscalationClient(target, clock=clock) as client:
        made = client.silence([CLAUSE], author="ana", comment="swap", duration_s=60)
        client.publish([escalation(1)])
    with serving(config(tmp_path), clock=clock) as target, EscalationClient(target, clock=clock) as client:
        [incident] = client.incidents()
        assert (client.silences(), incident.suppression.silence_id) == ([made], made.silence_id)


def test_what_silences_refuse(client):
    good = {"author": "ana", "comment": "swap", "duration_s": 60.0}
    past = (
        Refused.INVALID,
        "ends_ns: must be later than starts_ns and now (a silence always ends; say when)",
    )
    assert refusal(client.silence, [CLAUSE], **{**good, "duration_s": 0}) == past
    reason, text = refusal(client.silence, [], **good)
    assert (reason, text.split(" (")[0]) == (Refused.INVALID, "matchers: must not be empty")
    many = tuple(f"{n:07}" for n in range(10_000))
    reason, text = refusal(client.silence, [Requirement("clause", Operator.IN, many)], **good)
    assert (reason, text.split(" ", 2)[2]) == (Refused.INVALID, "bytes, at most 65536")
    unknown = (Refused.NOT_FOUND, "silence 'x' is not known")
    assert refusal(client.expire_silence, "x", author="ana") == unknown


def test_there_are_only_so_many_silences_at_once(client, clock):
    for _ in range(2):
        client.silence([CLAUSE], author="ana", comment="swap", duration_s=60)
    with pytest.raises(TransientError) as caught:
        client.silence([CLAUSE], author="ana", comment="swap", duration_s=60)
    assert "silences: 2 are active or planned, no more are taken (end one, or match more with one)" in str(
        caught.value
    )
    clock.advance(seconds=60)
    client.silence([CLAUSE], author="ana", comment="swap", duration_s=60)
