"""A small HTTP server: a thread a connection, a bounded number of them, one answering function."""

import logging
import socket
import struct
import threading
from collections.abc import Callable
from http import HTTPStatus
from io import BufferedReader
from socketserver import BaseServer, StreamRequestHandler, ThreadingMixIn
from typing import Self, cast

from paritas.agent.http_message import BadRequestError, Request, read_head, response

__all__ = ["Answering", "HttpServer"]

log = logging.getLogger(__name__)
MAX_CONNECTIONS = 128
IDLE_S = 120.0
TIMEVAL = struct.Struct("@ll")  # struct timeval: seconds, microseconds

# Reads the body, if it wants it, and returns the whole answer.
Answering = Callable[[Request, BufferedReader], bytes]


class _Handler(StreamRequestHandler):
    """Answers the requests of one connection in turn."""

    rbufsize = 256 * 1024
    server: "_Server"

    def setup(self) -> None:
        """Let the kernel watch the silence: with the library's own timeout every read would poll first."""
        super().setup()
        patience = TIMEVAL.pack(*divmod(round(IDLE_S * 1e6), 1_000_000))
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)

    def handle(self) -> None:
        """Answer until the client goes, is silent for long, or says something that is not HTTP."""
        try:
            while self._one():
                pass
        except (OSError, ValueError):
            return  # it went away, or the socket was closed under us while stopping

    def _one(self) -> bool:
        """Answer one request; False when the connection is over."""
        stream = cast("BufferedReader", self.rfile)
        try:
            request = read_head(stream)
            if request is None:
                return False
            answer, goes_on = self.server.answering(request, stream), request.keeps_alive
        except BadRequestError as error:
            text = f"{error}\n".encode()
            answer = response(error.status, text, "text/plain", headers={"Connection": "close"})
            goes_on = False  # the rest of the request may be unread
        self.connection.sendall(answer)
        return goes_on and not self.server.is_stopping


class _Server(ThreadingMixIn, BaseServer):
    """Accepts on a socket that is listening already."""

    daemon_threads = True
    block_on_close = False

    def __init__(
        self, listener: socket.socket, answering: Answering, admits: Callable[[socket.socket], bool]
    ) -> None:
        super().__init__(listener.getsockname(), _Handler)
        self.answering, self._admits, self._listener = answering, admits, listener
        self.is_stopping = False
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def fileno(self) -> int:
        """The descriptor that the accepting loop waits on."""
        return self._listener.fileno()

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept."""
        return self._listener.accept()

    def verify_request(self, request: object, client_address: object) -> bool:
        """Turn away who may not talk to us, and whoever is one too many."""
        del client_address
        assert isinstance(request, socket.socket)
        if not self._admits(request):
            return _refuse(request, HTTPStatus.FORBIDDEN, "this user may not send here\n")
        if not self._slots.acquire(blocking=False):
            return _refuse(request, HTTPStatus.SERVICE_UNAVAILABLE, "too many connections\n")
        return True

    def process_request(self, request: object, client_address: object) -> None:
        """Start the thread of one connection; where none is to be had, the connection is closed."""
        try:
            super().process_request(request, client_address)  # type: ignore[arg-type]  # a socket, as above
        except RuntimeError:
            self._slots.release()
            raise

    def process_request_thread(self, request: object, client_address: object) -> None:
        """Serve one connection on its own thread."""
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]  # a socket, as above
        finally:
            self._slots.release()

    def shutdown_request(self, request: object) -> None:
        """End a connection."""
        assert isinstance(request, socket.socket)
        request.close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log what nobody foresaw; only this connection ends."""
        del request, client_address
        log.exception("A connection failed unexpectedly.")  # noqa: LOG004 -- socketserver calls this in its except

    def server_close(self) -> None:
        """Stop listening."""
        self._listener.close()


def _refuse(connection: socket.socket, status: HTTPStatus, text: str) -> bool:
    headers = {"Connection": "close", "Retry-After": "1"}
    connection.settimeout(1.0)
    try:
        connection.sendall(response(status, text.encode(), "text/plain", headers=headers))
    except OSError:
        return False
    return False


class HttpServer:
    """Serves during its context.

    Parameters
    ----------
    listener : socket
        Listening already; closed at the end.
    answering : callable
        Given a request and the stream its body is on; raises BadRequestError for an early end.
    admits : callable
        Whether a fresh connection may talk to us.
    """

    def __init__(
        self,
        listener: socket.socket,
        answering: Answering,
        *,
        name: str,
        admits: Callable[[socket.socket], bool] = lambda _: True,
    ) -> None:
        self._server = _Server(listener, answering, admits)
        self._address = listener.getsockname()
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name=f"paritas-{name}", daemon=True
        )

    @property
    def address(self) -> str:
        """``HOST:PORT``, or the path of a Unix socket."""
        told = self._address
        return told if isinstance(told, str) else f"{told[0]}:{told[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop accepting, and end each connection behind its answer; twice is fine."""
        self._server.is_stopping = True
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
