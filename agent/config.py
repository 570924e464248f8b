"""What an agent is told: where it listens, keeps and sends, and how much of each.

The command reads these from a file; a program may build them itself.  What `fixed` names cannot
change while the agent runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from paritas.agent.eventlog import SegmentLimits, SyncMode
from paritas.agent.eventlog.kafka_settings import KafkaSettings
from paritas.agent.retry import Backoff
from paritas.errors import UsageError

__all__ = [
    "MIB",
    "AgentConfig",
    "EmbeddedTarget",
    "HealthSettings",
    "ReceiverSettings",
    "ShippingSettings",
    "SpoolSettings",
    "Target",
    "fixed",
    "host_port",
]

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """What is kept until it is delivered.

    Attributes
    ----------
    path : Path
        Directory of the spool; made if it is not there.
    limit_bytes, segment_bytes : int
        Most bytes on disk, and of one file; at least two files fit.
    max_age_s : float
        Records that waited longer are given up as ``expired``.
    refuse_when_full : bool
        Refuse new records with a Retry-After instead of dropping the oldest.
    sync, sync_interval_s
        When appends are made durable.
    memory_bytes : int
        What is kept in memory while the disk refuses.
    """

    path: Path
    limit_bytes: int = 1024 * MIB
    segment_bytes: int = 32 * MIB
    max_age_s: float = 7 * 86_400.0
    refuse_when_full: bool = False
    sync: SyncMode = SyncMode.INTERVAL
    sync_interval_s: float = 0.5
    memory_bytes: int = 16 * MIB

    @property
    def limits(self) -> SegmentLimits:
        """The same, as a writer wants it; UsageError if two segments do not fit."""
        return SegmentLimits(self.segment_bytes, self.limit_bytes)


@dataclass(frozen=True, slots=True)
class ReceiverSettings:
    """Where spans come in; an empty address is not served.

    Attributes
    ----------
    unix_path : Path or None
        OTLP/HTTP for processes of this user (mode 0600), of `peer_uids` or of `any_user` (mode 0666).
    peer_uids : tuple of int
        Other users that may connect there.
    http_listen, grpc_listen : str
        ``HOST:PORT`` on a loopback address; port 0 picks one.
    max_body_bytes : int
        Largest request, unpacked too.
    max_pending_bytes : int
        Bytes of requests being worked on at once; more are answered 503.
    any_user : bool
        Whether everyone who reaches the socket may: in a volume of one pod, whoever mounts it.
    """

    unix_path: Path | None = None
    peer_uids: tuple[int, ...] = ()
    http_listen: str = ""
    grpc_listen: str = ""
    max_body_bytes: int = 16 * MIB
    max_pending_bytes: int = 32 * MIB
    any_user: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether users beside the agent's own may connect to the Unix socket."""
        return self.any_user or bool(self.peer_uids)


@dataclass(frozen=True, slots=True)
class ShippingSettings:
    """How fast records leave.

    Attributes
    ----------
    batch_records, batch_bytes : int
        Most in flight at once.
    max_records_per_s, max_bytes_per_s : float
        Cap, so that catching up starves nobody; 0 is no cap.
    backoff : Backoff
        Waits after failures.
    commit_s : float
        Longest time between two saves of the position: what a crash sends twice.
    gather_s : float
        Time between two batches while fewer records wait than a quarter of a batch: a few large
        batches cost less than many small ones.  The first record after a silence leaves at once.
    """

    batch_records: int = 512
    batch_bytes: int = 8 * MIB
    max_records_per_s: float = 0.0
    max_bytes_per_s: float = 0.0
    backoff: Backoff = field(default_factory=Backoff)
    commit_s: float = 1.0
    gather_s: float = 0.05


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """Where health and metrics are served, and when standing still is an illness.

    Attributes
    ----------
    listen : str
        ``HOST:PORT`` of /healthz, /readyz and /metrics; empty for none.
    stall_s : float
        Records that wait so long without one acknowledged make the agent not ready.
    report_s : float
        Time between two health spans sent to the destination; 0 for none.
    """

    listen: str = "127.0.0.1:4319"
    stall_s: float = 30.0
    report_s: float = 60.0


@dataclass(frozen=True, slots=True)
class EmbeddedTarget:
    """An event log in a directory of this machine."""

    path: Path
    partitions: int = 4
    limit_bytes: int = 1024 * MIB
    segment_bytes: int = 32 * MIB


# A topic of a Kafka cluster, or a directory.
Target = EmbeddedTarget | KafkaSettings


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Everything an agent is told.

    Attributes
    ----------
    name : str
        Name of this agent in the headers of every record; unique among the agents of a topic.
    grace_s : float
        How long it goes on shipping after it was asked to stop.
    """

    name: str
    spool: SpoolSettings
    target: Target
    receivers: ReceiverSettings = field(default_factory=ReceiverSettings)
    shipping: ShippingSettings = field(default_factory=ShippingSettings)
    health: HealthSettings = field(default_factory=HealthSettings)
    grace_s: float = 10.0

    def __post_init__(self) -> None:
        """Check what a file's shape cannot say.

        Raises
        ------
        UsageError
            Nothing is received, the spool cannot hold two segments, or spans would be taken from
            other machines.
        """
        receivers = self.receivers
        if not (receivers.unix_path or receivers.http_listen or receivers.grpc_listen):
            raise UsageError("no receiver: nothing could come in", hint="set receivers.unix.path")
        _ = self.spool.limits
        for listen in (receivers.http_listen, receivers.grpc_listen):
            if listen and not _is_loopback(host_port(listen)[0]):
                raise UsageError(
                    f"{listen}: spans are taken on loopback addresses only",
                    hint="listen on 127.0.0.1; other machines send to the event log",
                )


def fixed(config: AgentConfig) -> Iterator[tuple[str, object]]:
    """Yield the fields that cannot change while the agent runs, by their names in the file."""
    yield "name", config.name
    yield "spool.path", config.spool.path
    yield "spool.sync", (config.spool.sync, config.spool.sync_interval_s)
    yield "receivers.unix.path", config.receivers.unix_path
    yield "receivers.http.listen", config.receivers.http_listen
    yield "receivers.grpc.listen", config.receivers.grpc_listen
    yield "receivers.unix.uids", config.receivers.is_shared  # the mode of the socket depends on it
    yield "receivers.max_body_bytes", config.receivers.max_body_bytes
    yield "receivers.max_pending_bytes", config.receivers.max_pending_bytes
    yield "health.listen", config.health.listen


def host_port(listen: str) -> tuple[str, int]:
    """Split ``HOST:PORT``; UsageError if it is none.

    Examples
    --------
    >>> host_port("127.0.0.1:4318"), host_port("[::1]:0")
    (('127.0.0.1', 4318), ('::1', 0))
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(f"{listen!r} is not HOST:PORT", hint="write 127.0.0.1:4318")
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
