"""OTLP over HTTP, the sending side: standard library only, every wait bounded.

`Target` says where a receiver listens, `OtlpClient` posts one body at a time over one kept
connection.  It loads neither protobuf nor OpenTelemetry, so that it may enter any process.
"""

import http.client
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from paritas.clock import Clock
from paritas.errors import TransientError, UsageError

__all__ = ["Answer", "OtlpClient", "Target", "target_of"]

NS_PER_S = 1_000_000_000
TARGET_HINT = "write unix:/path/of/the.sock or http://127.0.0.1:PORT"
HEADERS = {"Content-Type": "application/x-protobuf"}
# Receivers answer with nothing, a line for people, or a partial-success message.
ANSWER_LIMIT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    """Where a receiver listens: a socket file, or host and port."""

    unix_path: Path | None = None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return f"http://{self.host}:{self.port}" if self.unix_path is None else f"unix:{self.unix_path}"


def target_of(text: str, *, name: str = "the target") -> Target:
    """Read a target; `name` is what the error calls it.

    Raises
    ------
    UsageError
        It is neither a socket file nor plain HTTP.

    Examples
    --------
    >>> str(target_of("unix:/run/paritas/otlp.sock")), target_of("http://127.0.0.1:4318").port
    ('unix:/run/paritas/otlp.sock', 4318)
    """
    if text.startswith("unix:/"):
        return Target(unix_path=Path(text.removeprefix("unix:")))
    try:
        found = urlsplit(text)
        if found.scheme == "http" and found.hostname and found.path in ("", "/") and not found.query:
            return Target(host=found.hostname, port=found.port or 4318)
    except ValueError:
        pass
    raise UsageError(f"{name} is {text!r}", hint=TARGET_HINT)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receiver said: HTTP status and (the start of) the body."""

    status: int
    body: bytes

    @property
    def text(self) -> str:
        """The body as one line for people."""
        return self.body.decode(errors="replace").strip()


class _DeadlineSocket(socket.socket):
    """A socket whose reads all end by one deadline: a peer that drips bytes gains no time."""

    clock: Clock
    deadline_ns: int

    def recv_into(self, *arguments: Any, **named: Any) -> int:
        """Read with what is left of the time."""
        left_s = (self.deadline_ns - self.clock.monotonic_ns()) / NS_PER_S
        if left_s <= 0:
            raise TimeoutError("timed out")
        self.settimeout(left_s)
        return super().recv_into(*arguments, **named)


class _Connection(http.client.HTTPConnection):
    """HTTP to a target, over a `_DeadlineSocket`."""

    def __init__(self, target: Target, *, timeout_s: float) -> None:
        super().__init__(target.host or "localhost", target.port or None, timeout=timeout_s)
        self._target = target

    def connect(self) -> None:
        """Connect within the timeout."""
        path = self._target.unix_path
        if path is None:
            plain = socket.create_connection((self.host, self.port), self.timeout)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock = _DeadlineSocket(fileno=plain.detach())
            return
        fresh = _DeadlineSocket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            fresh.settimeout(self.timeout)
            fresh.connect(str(path))
        except OSError:
            fresh.close()
            raise
        self.sock = fresh


class OtlpClient:
    """Posts bodies; connects when needed, again after a failure.

    Parameters
    ----------
    target : Target
    clock : Clock
    timeout_s : float, seconds
        For sending a body, and again for the whole answer.
    path : str
        What the bodies are: ``/v1/traces`` or ``/v1/metrics``.
    """

    def __init__(self, target: Target, *, clock: Clock, timeout_s: float, path: str = "/v1/traces") -> None:
        self.target, self._clock, self._timeout_s, self._path = target, clock, timeout_s, path
        self._connection = _Connection(target, timeout_s=timeout_s)
        self._is_aborted = False

    def connect(self) -> None:
        """Connect now; OSError if nobody listens."""
        self._connection.connect()

    def post(self, body: bytes) -> Answer:
        """Send a body and return the answer.

        Raises
        ------
        TransientError
            The receiver is absent, went away, is too slow, or speaks no HTTP.
        """
        try:
            return self._post(body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise TransientError(f"the receiver went away: {error or type(error).__name__}") from error

    def _post(self, body: bytes) -> Answer:
        self._prepare()
        self._connection.request("POST", self._path, body, HEADERS)
        self._prepare()
        with self._connection.getresponse() as answer:
            content = answer.read(ANSWER_LIMIT_BYTES)
            is_whole = answer.isclosed()
        if not is_whole:
            self.close()  # what is left would be read as the next answer
        return Answer(answer.status, content)

    def _prepare(self) -> None:
        """Connect if needed, and give what follows the whole timeout."""
        if self._connection.sock is None:
            self._connection.connect()
        if self._is_aborted:  # looked at after `sock` is there: `abort` sets it before it looks at `sock`
            raise TimeoutError("aborted")
        open_socket = self._connection.sock
        assert isinstance(open_socket, _DeadlineSocket), "made by `_Connection`"
        open_socket.clock = self._clock
        open_socket.deadline_ns = self._clock.monotonic_ns() + round(self._timeout_s * NS_PER_S)
        open_socket.settimeout(self._timeout_s)

    def abort(self) -> None:
        """Fail what another thread posts, now and from now on."""
        self._is_aborted = True
        open_socket = self._connection.sock
        if open_socket is not None:
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)

    def disown(self) -> None:
        """Let go, in a forked child, of the parent's connection; not to be used afterwards.

        Only the descriptor is closed: a thread of the parent that was reading has left behind the lock of its
        buffer, which `close` would wait for, for ever.
        """
        open_socket = self._connection.sock
        if open_socket is not None:
            with suppress(OSError):
                os.close(open_socket.detach())

    def close(self) -> None:
        """Close the connection; twice is fine, and `post` opens it again."""
        with suppress(OSError):
            self._connection.close()
