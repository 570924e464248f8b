"""OTLP/HTTP: ``POST /v1/traces`` with a serialized ``ExportTraceServiceRequest``, plain or gzip."""

import socket
from collections.abc import Callable, Container
from contextlib import AbstractContextManager
from http import HTTPStatus
from io import BufferedReader
from pathlib import Path
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from paritas.agent.http_message import BadRequestError, Request, read_body, response, too_large, unpack
from paritas.agent.intake import RETRY_AFTER_S, Answer, Intake, Reply
from paritas.agent.receivers.http_server import HttpServer
from paritas.agent.receivers.listening import listen_tcp, listen_unix
from paritas.agent.receivers.peers import peer_of

__all__ = ["HttpReceiver", "otlp_answer", "tcp_receiver", "unix_receiver"]

PROTOBUF = "application/x-protobuf"
TEXT = "text/plain"
STATUSES = {
    Answer.TAKEN: HTTPStatus.OK,
    Answer.PARTLY: HTTPStatus.OK,
    Answer.BAD: HTTPStatus.BAD_REQUEST,
    Answer.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Answer.FULL: HTTPStatus.TOO_MANY_REQUESTS,
    Answer.BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
}
EMPTY_OK = response(HTTPStatus.OK, b"", PROTOBUF)  # an empty ExportTraceServiceResponse is no bytes


class HttpReceiver(AbstractContextManager["HttpReceiver"]):
    """Serves OTLP/HTTP during its context.

    Parameters
    ----------
    listener : socket
        Listening already.
    intake : Intake
        Takes the bodies.
    max_body_bytes : int
        Largest body, unpacked too.
    admits : callable
        Whether a fresh connection may talk to us.

    Attributes
    ----------
    address : str
        Where it listens.
    """

    def __init__(
        self,
        listener: socket.socket,
        intake: Intake,
        *,
        max_body_bytes: int,
        admits: Callable[[socket.socket], bool] = lambda _: True,
        path: Path | None = None,
    ) -> None:
        self._intake, self._max_body_bytes, self._path = intake, max_body_bytes, path
        self._server = HttpServer(listener, self._answer, name="otlp-http", admits=admits)
        self.address = self._server.address

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening; twice is fine."""
        self._server.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _answer(self, request: Request, stream: BufferedReader) -> bytes:
        if request.method == "GET" and request.path == "/healthz":
            return response(HTTPStatus.OK, b"", TEXT)
        _expect_traces(request)
        length, limit_bytes = request.content_length, self._max_body_bytes
        if length is not None and length > limit_bytes:
            self._intake.count(Reply(Answer.TOO_LARGE))
            raise too_large(limit_bytes)
        encoding = request.headers.get("content-encoding", "").lower()
        if request.headers.get("expect", "").lower() == "100-continue":
            raise BadRequestError(HTTPStatus.EXPECTATION_FAILED, "send the body at once")

        def read() -> bytes:
            return unpack(
                read_body(stream, length, limit_bytes=limit_bytes), encoding, limit_bytes=limit_bytes
            )

        try:
            reply = self._intake.take_admitted(read, limit_bytes if length is None else length)
        except BadRequestError as error:
            is_large = error.status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            self._intake.count(Reply(Answer.TOO_LARGE if is_large else Answer.BAD))
            raise
        if reply.answer is Answer.BUSY:
            _pass_over(stream, length)
        return otlp_answer(reply)


def _expect_traces(request: Request) -> None:
    if request.path != "/v1/traces":
        raise BadRequestError(HTTPStatus.NOT_FOUND, "only /v1/traces is served here")
    if request.method != "POST":
        raise BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "send traces with POST")
    told = request.headers.get("content-type", PROTOBUF).split(";")[0].strip().lower()
    if told != PROTOBUF:
        text = f"Content-Type must be {PROTOBUF}: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
        raise BadRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)


def _pass_over(stream: BufferedReader, length: int | None) -> None:
    """Read a refused body away in small pieces, so that the connection can go on; chunks end it."""
    if length is None:
        raise BadRequestError(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once: come back later")
    while length > 0 and (piece := stream.read(min(length, 64 * 1024))):
        length -= len(piece)


def otlp_answer(reply: Reply) -> bytes:
    """Return the HTTP answer, as the OTLP specification words it."""
    status = STATUSES[reply.answer]
    if reply.answer is Answer.TAKEN:
        return EMPTY_OK
    if status is HTTPStatus.OK:
        partial = ExportTracePartialSuccess(rejected_spans=reply.rejected_spans, error_message=reply.text)
        return response(
            status, ExportTraceServiceResponse(partial_success=partial).SerializeToString(), PROTOBUF
        )
    retry = {"Retry-After": str(RETRY_AFTER_S)} if reply.answer in (Answer.FULL, Answer.BUSY) else None
    return response(status, f"{reply.text}\n".encode(), TEXT, headers=retry)


def unix_receiver(
    path: Path, intake: Intake, *, uids: Callable[[], Container[int]], is_shared: bool, max_body_bytes: int
) -> HttpReceiver:
    """Return a receiver on a Unix socket that talks to some users only; the kernel says who they are.

    Raises
    ------
    UsageError
        The path cannot be listened on.
    """
    return HttpReceiver(
        listen_unix(path, is_shared=is_shared),
        intake,
        max_body_bytes=max_body_bytes,
        admits=lambda connection: peer_of(connection).uid in uids(),
        path=path,
    )


def tcp_receiver(listen: str, intake: Intake, *, max_body_bytes: int) -> HttpReceiver:
    """Return a receiver on a loopback address; UsageError if it cannot be bound."""
    return HttpReceiver(listen_tcp(listen), intake, max_body_bytes=max_body_bytes)
