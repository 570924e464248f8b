"""Peers that a collector may meet on its agent's socket, each with a thread of its own."""

import contextlib
import socket
import threading
from pathlib import Path
from tempfile import TemporaryDirectory


class Peer:
    """Listens on a Unix socket and gives each connection to `serve`; a context manager.

    Attributes
    ----------
    met : threading.Event
        Set when a connection came.
    """

    def __init__(self, serve, path=None):
        self.path = path
        self._serve, self.met, self.connections = serve, threading.Event(), 0
        self._open = []

    def __enter__(self):
        self._folder = TemporaryDirectory()
        self.path = self.path or Path(self._folder.name) / "s"
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(self.path))
        self._listening.listen(8)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._open.append(connection)
                self.connections += 1
                self.met.set()
                with contextlib.suppress(OSError):
                    self._serve(connection)

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._thread.join()
        self._folder.cleanup()


def request_body(connection):
    """Read one request and return its body; b"" when the peer went away."""
    with connection.makefile("rb") as stream:
        length = 0
        while (line := stream.readline().strip().lower()) or not length:
            if not line and not length:
                return b""
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return stream.read(length)


def answering(answer):
    """Serve: read a request, send these bytes, again and again."""

    def serve(connection):
        while request_body(connection):
            connection.sendall(answer)

    return serve


def closing(connection):
    """Serve: read a request and hang up."""
    request_body(connection)
    connection.shutdown(socket.SHUT_RDWR)


def deaf(connection):
    """Serve: never read, never answer; the connection stays open."""


def dripping(connection):
    """Serve: read a request, then send an endless header a byte at a time until the client leaves."""
    request_body(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        connection.sendall(b"a" * 16)
