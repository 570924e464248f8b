"""Why a call reached nobody, where a connection was taken and dropped: one side speaks TLS and the other does not.

gRPC says only that the socket was closed, or gives the words of its TLS library; the port itself can be asked.
"""

import socket
import ssl

import grpc

from paritas.controller.config import TlsFiles
from paritas.controller.statuses import error_of
from paritas.errors import ParitasError, TransientError

__all__ = ["call_error", "call_mismatch", "mismatch", "speaks_tls"]

_PATIENCE_S = 1.0
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
    """Greet ``host:port`` in TLS; None where nobody answers, or not in a way that tells."""
    host, _, port = target.rpartition(":")
    if not port.isdecimal():
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = (
        False,
        ssl.CERT_NONE,
    )  # nothing is sent: only whether, not who
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_S) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except ssl.SSLEOFError:
        return None
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # a refusal in TLS is TLS
    except (OSError, UnicodeError, OverflowError):
        return None
