"""OTLP/HTTP over a Unix socket: what collectors on this machine send to.

``POST /v1/traces`` with a serialized ``ExportTraceServiceRequest``; a request is split by trace
id, so that one sequence stays in one partition, and answered when its records are appended.
"""

import gzip
import os
import socket
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any, Self

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from paritas.errors import PermanentError, TransientError, UsageError
from paritas.wire import WireRecord

__all__ = ["MAX_BODY_BYTES", "Receiver", "split_by_trace"]

MAX_BODY_BYTES = 16 * 1024 * 1024  # a batch of thirty full records
MAX_PATH_BYTES = 100  # the kernel takes 107; a margin for a temporary name
PROTOBUF = "application/x-protobuf"
SCHEMA_HEADERS = (("paritas-schema", b"1"),)


def split_by_trace(body: bytes) -> Iterator[WireRecord]:
    """Yield one record for each trace id in an OTLP request, in order of appearance.

    A request about one trace, which is what our collectors send, passes byte for byte.

    Raises
    ------
    PermanentError
        If the bytes are no such request.
    """
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise PermanentError("the body is not an ExportTraceServiceRequest") from error
    ids = dict.fromkeys(
        span.trace_id.hex()
        for source in request.resource_spans
        for scope in source.scope_spans
        for span in scope.spans
    )
    for trace_id in ids:
        value = body if len(ids) == 1 else _only(request, trace_id)
        yield WireRecord(trace_id.encode(), value, SCHEMA_HEADERS)


def _only(request: ExportTraceServiceRequest, trace_id: str) -> bytes:
    """The request with the spans of one trace only; empty scopes and resources are left out."""
    part = ExportTraceServiceRequest()
    for source in request.resource_spans:
        kept = part.resource_spans.add(resource=source.resource, schema_url=source.schema_url)
        for scope in source.scope_spans:
            spans = [span for span in scope.spans if span.trace_id.hex() == trace_id]
            if spans:
                kept.scope_spans.add(scope=scope.scope, spans=spans, schema_url=scope.schema_url)
        if not kept.scope_spans:
            del part.resource_spans[-1]
    return part.SerializeToString()


class _Server(ThreadingUnixStreamServer):
    """One thread a connection; connections are few and local."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: str, append: Callable[[WireRecord], None], counts: Counter[str]) -> None:
        self.append = append
        self.counts = counts
        super().__init__(path, _Handler)


class _Handler(BaseHTTPRequestHandler):
    """Answers OTLP/HTTP; everything else is a clear status."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    server: _Server

    def do_POST(self) -> None:
        """Append the records of the body; 200 means they are in the log."""
        status, text = self._append()
        body = ExportTraceServiceResponse().SerializeToString() if status is HTTPStatus.OK else text.encode()
        self.send_response(status)
        self.send_header("Content-Type", PROTOBUF if status is HTTPStatus.OK else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        if status is not HTTPStatus.OK:
            self.send_header("Connection", "close")  # the rest of the body may be unread
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Say that someone is here."""
        self.send_response(HTTPStatus.OK if self.path == "/healthz" else HTTPStatus.NOT_FOUND)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _append(self) -> tuple[HTTPStatus, str]:
        length = self.headers.get("Content-Length", "")
        if self.path != "/v1/traces":
            return HTTPStatus.NOT_FOUND, "only /v1/traces is served here\n"
        if not length.isdigit():
            return HTTPStatus.LENGTH_REQUIRED, "Content-Length is required\n"
        if int(length) > MAX_BODY_BYTES:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MAX_BODY_BYTES} bytes are taken\n"
        try:
            records = list(split_by_trace(self._body(int(length))))
            for record in records:
                self.server.append(record)
        except PermanentError as error:
            self.server.counts["refused"] += 1
            return HTTPStatus.BAD_REQUEST, f"{error}\n"
        except TransientError as error:
            self.server.counts["unavailable"] += 1
            return HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n"
        self.server.counts["accepted"] += len(records)
        return HTTPStatus.OK, ""

    def _body(self, length: int) -> bytes:
        body = self.rfile.read(length)
        if self.headers.get("Content-Encoding", "identity") != "gzip":
            return body
        return _gunzip(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class names it so
        """Stay quiet: what matters is counted."""


def _gunzip(body: bytes) -> bytes:
    """Unpack at most MAX_BODY_BYTES, whatever the body claims.

    Raises
    ------
    PermanentError
        If it is no gzip, or unpacks to more.
    """
    try:
        unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
        out = unpacker.decompress(body, MAX_BODY_BYTES)
    except (zlib.error, gzip.BadGzipFile) as error:
        raise PermanentError("the body is not gzip") from error
    if unpacker.unconsumed_tail:
        raise PermanentError(f"the body unpacks to more than {MAX_BODY_BYTES} bytes")
    return out


class Receiver:
    """Listens during its context; private to the user (mode 0600).

    Parameters
    ----------
    path : Path
        The socket; a stale one is replaced, a live one is an error.
    append : callable
        Puts one record into the log; may be called from several threads.

    Raises
    ------
    UsageError
        On entering: the path is too long, or someone listens there already.
    """

    def __init__(self, path: Path, append: Callable[[WireRecord], None]) -> None:
        self._path = path
        self._append = append
        self.counts: Counter[str] = Counter()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        _claim(self._path)
        mask = os.umask(0o177)  # the socket is made private, not made and then closed to others
        try:
            self._server = _Server(str(self._path), self._append, self.counts)
        finally:
            os.umask(mask)
        self._thread = threading.Thread(target=self._server.serve_forever, name="receiver", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening; twice is fine."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._path.unlink(missing_ok=True)
        self._server = self._thread = None


def _claim(path: Path) -> None:
    """Make sure that the path can be bound: short enough, and nobody alive behind it."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise UsageError(
            f"{path}: a socket's path has at most {MAX_PATH_BYTES} bytes", hint="use a shorter --data"
        )
    if not path.exists():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise UsageError(f"{path}: another paritas listens here", hint="use another --data")
