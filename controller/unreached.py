"""Why a call reached nobody, where a connection was taken and dropped: one side speaks TLS and the other does not.

gRPC says only that the socket was closed, or gives the words of its TLS library; the port itself can be asked.
"""

import socket
import ssl
from contextlib import suppress

import grpc

from paritas.controller.config import TlsFiles
from paritas.controller.statuses import error_of
from paritas.errors import ParitasError, TransientError

__all__ = ["call_error", "call_mismatch", "mismatch", "speaks_tls"]

_PATIENCE_S = 3.0  # a port that answers does so at once, but for a machine that is busy
# What a server of TLS begins with: an alert, which is a refusal in TLS, or its hello.
_RECORDS = (b"\x15", b"\x16")
_DROPPED = ("Socket closed", "Connection reset", "WRONG_VERSION_NUMBER")


def call_error(error: grpc.RpcError, *, target: str, tls: TlsFiles | None) -> ParitasError:
    """Return our error for a failed call of a client that blocks; asks the port where TLS may be the cause."""
    return call_mismatch(error, target=target, tls=tls) or error_of(error, target=target)


def call_mismatch(error: grpc.RpcError, *, target: str, tls: TlsFiles | None) -> TransientError | None:
    """Return `mismatch` where the words of a failed call allow for it."""
    details = error.details() or ""
    if error.code() is grpc.StatusCode.UNAVAILABLE and any(words in details for words in _DROPPED):
        return mismatch(target, tls)
    return None


def mismatch(target: str, tls: TlsFiles | None) -> TransientError | None:
    """Return the error where only one of client and port speaks TLS; None where that cannot be told."""
    spoken = speaks_tls(target)
    if spoken is True and tls is None:
        return TransientError(
            f"{target} speaks TLS, and this client does not",
            hint="name the authority of its certificate: --ca FILE",
        )
    if spoken is False and tls is not None:
        return TransientError(
            f"{target} does not speak TLS",
            hint="leave out --ca, --certificate and --key, or name its TLS port",
        )
    return None


def speaks_tls(target: str) -> bool | None:
    """Greet ``host:port`` in TLS and look at how it begins to answer; None where nobody does.

    It goes no further: a port that asks for certificates would log that it was shown none.
    """
    host, _, port = target.rpartition(":")
    if not port.isdecimal():
        return None
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_S) as plain:
            plain.sendall(_greeting())
            began = plain.recv(1)
    except (OSError, UnicodeError, OverflowError):
        return None
    return began in _RECORDS if began else None


def _greeting() -> bytes:
    """Return what a client of TLS says first; it names nobody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    said = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said).do_handshake()
    return said.read()
