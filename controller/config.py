"""What the escalation server is told: where it listens, what it keeps, what it bounds."""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from paritas.controller.compaction import Retention
from paritas.controller.promotion.config import PromotionConfig
from paritas.controller.routing.declared import Declared
from paritas.errors import UsageError

__all__ = ["DEFAULT_LISTEN", "Limits", "ServerConfig", "TlsFiles", "check_listen", "is_local"]

MAX_PORT = 65535  # gRPC would take a larger one modulo 65536, and say nothing
DEFAULT_LISTEN = "127.0.0.1:4320"  # beside OTLP's 4317 and 4318


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of one side.

    Attributes
    ----------
    certificate, key : Path or None
        This side's chain and private key; a client that only checks the server has none.
    ca : Path or None
        Whom to trust on the other side.  A server that has it demands a client certificate.
    """

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what clients can make the server hold."""

    batch_events: int = 1000
    event_bytes: int = 256 * 1024  # ten times a long diagnosis; a batch of these still fits a message
    queue_events: int = 1024  # per subscriber: seconds of a very bad day
    subscribers: int = 1000
    silences: int = 1000
    silence_s: float = 30 * 86_400.0
    text_bytes: int = 4096  # names, comments


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Everything the server needs.

    Attributes
    ----------
    database : Path
        SQLite file of the log; its folder must exist.
    listen : str
        ``host:port`` (port 0 picks one) or ``unix:/path``.
    heartbeat_s : float
        Interval of heartbeats on every stream; clients give up after three missed.
    farewell_s : float
        How long a stream that is ended may take to be told why.
    start_s : float
        How long a new stream may take to send Start.
    drain_s : float
        How long closing waits for streams and calls.
    housekeeping_s : float
        Interval of compaction by age.
    connection_age_s : float
        Age at which a connection is renewed, so that clients spread and certificates roll.
    access : Path or None
        Who may call what (`controller.access.grants`); without it whoever can connect may do everything.
    own_token : Path or None
        Where a token for this process and its owner is written, anew at every start.
    own_socket : Path or None
        A private socket beside `listen`, without TLS: for this process and its owner, who cannot
        know under which name the certificate was made.
    routes : tuple of Declared
        Fleets whose routes follow the incidents, one a policy.
    """

    database: Path
    listen: str = DEFAULT_LISTEN
    tls: TlsFiles | None = None
    heartbeat_s: float = 10.0
    farewell_s: float = 1.0
    start_s: float = 10.0
    drain_s: float = 5.0
    housekeeping_s: float = 60.0
    connection_age_s: float = 3600.0
    retention: Retention = field(default_factory=Retention)
    limits: Limits = field(default_factory=Limits)
    access: Path | None = None
    own_token: Path | None = None
    own_socket: Path | None = None
    promotion: PromotionConfig = field(default_factory=PromotionConfig)
    routes: tuple[Declared, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot work, before anything is bound."""
        for name in ("heartbeat_s", "farewell_s", "start_s", "drain_s", "housekeeping_s", "connection_age_s"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}: must be positive, got {getattr(self, name)!r}")
        check_listen(self.listen, self.tls, has_access=self.access is not None)


def check_listen(listen: str, tls: TlsFiles | None, *, has_access: bool = False) -> None:
    """Refuse an address that others can reach unless both sides prove who they are.

    Clients prove it by their certificate, or by a token where there is an access file.

    Raises
    ------
    UsageError
        The address is malformed, or is remote without TLS or without a way to know clients.
    """
    host, _, port = listen.rpartition(":")
    if not listen.startswith("unix:") and not (host and port.isdecimal()):
        raise UsageError(f"listen: {listen!r} is not an address", hint="write host:port or unix:/path")
    if not listen.startswith("unix:") and int(port) > MAX_PORT:
        raise UsageError(f"listen: port {port} is above {MAX_PORT}", hint="port 0 picks a free one")
    if is_local(listen):
        return
    if tls is None:
        message = f"listen: {listen!r} can be reached from other machines and has no TLS"
        raise UsageError(
            message, hint="listen on 127.0.0.1 or unix:/path, or give certificate, key and client CA"
        )
    if tls.ca is None and not has_access:
        message = f"listen: {listen!r} can be reached from other machines and takes any client"
        raise UsageError(message, hint="give the CA of the clients' certificates, or an access file")


def is_local(listen: str) -> bool:
    """Tell whether only this machine can connect to `listen`.

    Examples
    --------
    >>> [is_local(a) for a in ("unix:/run/p.sock", "localhost:1", "[::1]:1", "0.0.0.0:1", "db.example:1")]
    [True, True, True, False, False]
    """
    if listen.startswith("unix:"):
        return True
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name; only this one is known to stay here
        return host == "localhost"
