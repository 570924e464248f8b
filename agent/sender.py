"""OTLP/HTTP over a Unix socket, the sending side: standard library only."""

import http.client
import socket
from pathlib import Path
from typing import Self

from paritas.errors import PermanentError, TransientError, UsageError
from paritas.wire import WireRecord

__all__ = ["Sender"]


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket file."""
        fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            fresh.settimeout(self.timeout)
            fresh.connect(str(self._path))
        except OSError:
            fresh.close()
            raise
        self.sock = fresh


class Sender:
    """Sends records one at a time over one kept connection; a context manager.

    Parameters
    ----------
    path : Path
        The receiver's socket.
    timeout_s : float, seconds
        Of each answer.
    """

    def __init__(self, path: Path, *, timeout_s: float = 30.0) -> None:
        self._path = path
        self._connection = _UnixConnection(path, timeout_s=timeout_s)

    def __enter__(self) -> Self:
        """Connect.

        Raises
        ------
        UsageError
            If nobody listens.
        """
        try:
            self._connection.connect()
        except OSError as error:
            message = f"nobody listens on {self._path}"
            raise UsageError(message, hint="start `paritas up` with the same --data first") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, record: WireRecord) -> None:
        """Return when the receiver has the record in its log.

        Raises
        ------
        TransientError
            The receiver is gone or cannot take it now.
        PermanentError
            It will never take this record.
        """
        try:
            self._connection.request(
                "POST", "/v1/traces", record.value, {"Content-Type": "application/x-protobuf"}
            )
            answer = self._connection.getresponse()
            text = answer.read().decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(f"the receiver went away: {error or type(error).__name__}") from error
        if answer.status in (429, 503):
            raise TransientError(text)
        if answer.status != http.client.OK:
            raise PermanentError(f"the receiver answered {answer.status}: {text}")
