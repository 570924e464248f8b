"""An agent that is slow, deaf, dead or mad: the host goes on, the account balances."""

from dataclasses import replace

import pytest
from emitter_scenes import PATIENT, PATIENT_S, QUICK, emitter_to, holds, trace
from hostile_peers import Peer, answering, closing, deaf, dripping
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from paritas.collectors.emitter import EmitterDrop
from paritas.wire import decode


def answer(status, body=b""):
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body


@pytest.mark.parametrize(
    "serve",
    [
        closing,
        deaf,
        dripping,
        answering(b"\x00\xff not HTTP at all\r\n\r\n"),
        answering(b"HTTP/1.1 999999 no\r\n\r\n"),
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"),  # and never the rest
        answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        answering(answer(429)),
        answering(answer(500)),
        answering(answer(503)),
    ],
    ids=["closes", "deaf", "drips", "garbage", "status", "short", "chunks", "429", "500", "503"],
)
def test_what_never_succeeds_is_given_up(serve):
    with Peer(serve) as peer, emitter_to(peer.path, QUICK) as emitter:
        emitter.emit_many(map(trace, range(3)))
        assert emitter.flush(timeout_s=PATIENT_S)
        assert holds(emitter).dropped == {EmitterDrop.GAVE_UP: 3}
        assert peer.met.wait(PATIENT_S)


def test_a_full_socket_does_not_hold_the_thread():
    """Four megabytes do not fit the buffers of a socket nobody reads."""
    with Peer(deaf) as peer, emitter_to(peer.path, QUICK) as emitter:
        emitter.emit(trace(1, tokens=300_000))
        assert emitter.flush(timeout_s=PATIENT_S)
        assert holds(emitter).dropped == {EmitterDrop.GAVE_UP: 1}


@pytest.mark.parametrize("status", [400, 404, 413, 418])
def test_what_is_refused_is_not_sent_again(status):
    with Peer(answering(answer(status))) as peer, emitter_to(peer.path) as emitter:
        emitter.emit(trace(1))
        assert emitter.flush(timeout_s=PATIENT_S)
        told = holds(emitter)
        assert (told.dropped, told.retries) == ({EmitterDrop.REFUSED: 1}, 0)


def test_one_bad_trace_does_not_take_its_neighbours_along():
    """The peer refuses any request in which it finds s1."""
    served = []

    def serve(connection):
        from hostile_peers import request_body

        while body := request_body(connection):
            names = [one.sequence_id for one in decode(body).traces]
            served.append(names)
            connection.sendall(answer(400 if "s1" in names else 200))

    with Peer(serve) as peer, emitter_to(peer.path, replace(PATIENT, linger_s=10.0)) as emitter:
        emitter.emit_many(map(trace, range(3)))
        assert emitter.flush(timeout_s=PATIENT_S)
        told = holds(emitter)
    assert (told.delivered, told.dropped) == (2, {EmitterDrop.REFUSED: 1})
    assert served == [["s0", "s1", "s2"], ["s0"], ["s1"], ["s2"]]


def test_a_partial_success_is_believed():
    said = ExportTraceServiceResponse()
    said.partial_success.rejected_spans = 2
    body = said.SerializeToString()
    with (
        Peer(answering(answer(200, body))) as peer,
        emitter_to(peer.path, replace(PATIENT, linger_s=10.0)) as emitter,
    ):
        emitter.emit_many(map(trace, range(3)))
        assert emitter.flush(timeout_s=PATIENT_S)
        told = holds(emitter)
    assert (told.delivered, told.dropped) == (1, {EmitterDrop.REFUSED: 2})


def test_a_mad_body_of_a_success_is_no_harm():
    with Peer(answering(answer(200, b"\xff" * 100))) as peer, emitter_to(peer.path) as emitter:
        emitter.emit(trace(1))
        assert emitter.flush(timeout_s=PATIENT_S)
        assert holds(emitter).delivered == 1


def test_close_does_not_wait_for_a_deaf_agent():
    """The request in the air is woken; its trace counts as dropped, whatever the agent makes of it."""
    patient = replace(QUICK, timeout_s=600.0, retry_for_s=600.0)
    with Peer(deaf) as peer:
        emitter = emitter_to(peer.path, patient)
        emitter.emit(trace(1))
        assert peer.met.wait(PATIENT_S)
        emitter.close(timeout_s=0.0)
        assert holds(emitter).dropped == {EmitterDrop.CLOSED: 1}
        emitter._thread.join(PATIENT_S)  # it has been woken; a busy machine may leave it no turn for a second
        assert not emitter._thread.is_alive()
