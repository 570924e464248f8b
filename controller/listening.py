"""Bind one gRPC server to one address, with the keepalive both ends agree on."""

import socket
import ssl
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from paritas.controller.access.callers import Callers
from paritas.controller.access.grants import Grants, load_grants, own_grant
from paritas.controller.access.guard import Guard
from paritas.controller.calls import Calls
from paritas.controller.config import ServerConfig, TlsFiles
from paritas.errors import UsageError
from paritas.listen_probe import why_not_free

__all__ = ["CLIENT_OPTIONS", "Bound", "bind", "client_credentials", "make_private"]

_MS_PER_S = 1000
_MESSAGE_BYTES = 8 * 1024 * 1024

# The two ends belong together: a client that pings more often than the server allows is cut off.
CLIENT_OPTIONS = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    (
        "grpc.min_reconnect_backoff_ms",
        2_000,
    ),  # the patience of one attempt: a busy server is not an absent one
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    # A proxy set for the internet must not get what is meant for this pod.
    ("grpc.enable_http_proxy", 0),
)


def _server_options(config: ServerConfig) -> tuple[tuple[str, int], ...]:
    return (
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.max_connection_age_ms", round(config.connection_age_s * _MS_PER_S)),
        ("grpc.max_connection_age_grace_ms", round(config.drain_s * _MS_PER_S)),
        ("grpc.max_receive_message_length", _MESSAGE_BYTES),
        ("grpc.so_reuseport", 0),  # else a second server would share the port, unseen
    )


@dataclass(frozen=True, slots=True)
class Bound:
    """A server that is not started yet, the target clients connect to, who tells its callers apart, and its calls."""

    server: Any
    target: str
    callers: Callers
    calls: Calls


def bind(config: ServerConfig, turned_away: Counter[str] | None = None) -> Bound:
    """Make a server that listens where `config` says once it is started.

    Parameters
    ----------
    turned_away : Counter, optional
        Counts the calls that access control refuses (`controller.access.guard`).

    Raises
    ------
    UsageError
        The address cannot be bound, or a TLS or access file cannot be used.
    """
    local_path = config.listen.startswith("unix:")
    if local_path:
        _refuse_live_socket(config.listen)
    elif reason := why_not_free(config.listen):
        raise _cannot_bind(config.listen, reason)
    callers = Callers(_grants(config))
    calls = Calls()
    guards = [] if callers.grants is None else [Guard(callers.grants, turned_away)]
    server = grpc.aio.server(options=_server_options(config), interceptors=[calls, *guards])
    try:
        port = _add_port(server, config)
        if config.own_socket is not None:
            _refuse_live_socket(f"unix:{config.own_socket}")
            server.add_insecure_port(f"unix:{config.own_socket}")
    except RuntimeError as error:
        raise _tls_fault(config.tls) or _cannot_bind(config.listen) from error
    target = config.listen if local_path else f"{config.listen.rpartition(':')[0]}:{port}"
    return Bound(server, target, callers, calls)


def _grants(config: ServerConfig) -> Grants | None:
    if config.access is None:
        return None
    own = () if config.own_token is None else (own_grant(config.own_token),)
    return Grants((*load_grants(config.access).grants, *own))


def _add_port(server: Any, config: ServerConfig) -> int:
    if config.tls is None:
        return int(server.add_insecure_port(config.listen))
    return int(server.add_secure_port(config.listen, _server_credentials(config.tls)))


def make_private(listen: str) -> None:
    """Let only this user connect to a Unix socket."""
    if listen.startswith("unix:"):
        Path(listen.removeprefix("unix:")).chmod(0o600)


def _refuse_live_socket(listen: str) -> None:
    """Leave a socket alone that somebody answers on; gRPC would take it away without a word."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(listen.removeprefix("unix:"))
        except OSError:
            return  # absent, or left behind by a process that was killed
    raise _cannot_bind(listen)


def _cannot_bind(listen: str, reason: str = "") -> UsageError:
    hint = "is another controller running there? choose another address"
    return UsageError(f"listen: cannot bind {listen!r}" + (f": {reason}" if reason else ""), hint=hint)


def _tls_fault(tls: TlsFiles | None) -> UsageError | None:
    """Return what is wrong with the files: gRPC says of them what it says of a port in use."""
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(str(tls.certificate), str(tls.key), password="")
    except OSError:
        hint = "both in PEM: a chain of certificates, and the key of its first one without a password"
        return UsageError(f"tls: {str(tls.certificate)!r} and {str(tls.key)!r} are no pair", hint=hint)
    if tls.ca is not None:
        try:
            context.load_verify_locations(str(tls.ca))
        except OSError:
            return _no_authority(tls)
    return None


def _no_authority(tls: TlsFiles) -> UsageError:
    return UsageError(f"tls: {str(tls.ca)!r} holds no certificate of an authority", hint="in PEM")


def _server_credentials(tls: TlsFiles) -> Any:
    if tls.certificate is None or tls.key is None:
        raise UsageError("tls: a server needs both certificate and key")
    renewing = _Renewing(tls)
    return grpc.dynamic_ssl_server_credentials(
        _configured(renewing.used), renewing, require_client_authentication=tls.ca is not None
    )


class _Renewing:
    """Reads the files anew at every handshake: whoever renews a certificate, restarts nobody.

    gRPC stays with what it has where this returns None, and where key and certificate do not fit together, as they do not
    between the two reads of a file that is just being replaced.
    """

    def __init__(self, tls: TlsFiles) -> None:
        self._tls = tls
        self.used = _contents(tls)

    def __call__(self) -> Any:
        """Return the configuration, or None if nothing has changed or nothing can be read."""
        try:
            found = _contents(self._tls)
        except UsageError:
            return None
        if found == self.used:
            return None
        self.used = found
        return _configured(found)


def _contents(tls: TlsFiles) -> tuple[bytes | None, ...]:
    """Key, certificate and authorities, in this order."""
    return tuple(None if file is None else _read(file) for file in (tls.key, tls.certificate, tls.ca))


def _configured(contents: tuple[bytes | None, ...]) -> Any:
    key, certificate, ca = contents
    return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=ca)


def client_credentials(tls: TlsFiles) -> Any:
    """Return channel credentials; without a CA, the system's are trusted."""
    ca, key, certificate = (None if f is None else _read(f) for f in (tls.ca, tls.key, tls.certificate))
    if ca is not None and b"CERTIFICATE-----" not in ca:
        raise _no_authority(tls)  # gRPC would only say, again and again, that nobody answers
    return grpc.ssl_channel_credentials(ca, key, certificate)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        message = f"tls: cannot read {str(file)!r}: {error.strerror}"
        raise UsageError(message, hint="name a PEM file that this user may read") from error
