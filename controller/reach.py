"""How a controller is reached: address, TLS, token; for threads and for an event loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from paritas.controller.config import TlsFiles
from paritas.controller.listening import CLIENT_OPTIONS, client_credentials
from paritas.controller.secret_files import bearer

__all__ = ["Reach"]


@dataclass(frozen=True, slots=True)
class Reach:
    """How a controller is reached.

    Attributes
    ----------
    tls : TlsFiles or None
        CA, and certificate and key where the server asks for them.
    token_file : Path or None
        Holds the token this client shows, where the server has an access file.
    """

    target: str
    tls: TlsFiles | None = None
    token_file: Path | None = None

    def channel(self) -> Any:
        """Return a channel for threads."""
        if self.tls is None:
            plain = grpc.insecure_channel(self.target, options=CLIENT_OPTIONS)
        else:
            credentials = client_credentials(self.tls)
            plain = grpc.secure_channel(self.target, credentials, options=CLIENT_OPTIONS)
        return plain

    def aio_channel(self) -> Any:
        """Return a channel for the running event loop."""
        if self.tls is None:
            return grpc.aio.insecure_channel(self.target, options=CLIENT_OPTIONS)
        credentials = client_credentials(self.tls)
        return grpc.aio.secure_channel(self.target, credentials, options=CLIENT_OPTIONS)

    def metadata(self) -> Sequence[tuple[str, str]]:
        """Return what shows the token, read now."""
        if self.token_file is None:
            return ()
        return tuple((name.lower(), value) for name, value in bearer(self.token_file).items())
