"""How to reach a Kafka cluster, whom to be there, and how a topic of ours is made."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from paritas.errors import UsageError

__all__ = ["Compression", "KafkaSettings", "Sasl", "SaslMechanism", "Tls", "TopicSettings"]

MIB = 1024 * 1024
DAY_S = 86_400


class SaslMechanism(StrEnum):
    """How a client says who it is."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


class Compression(StrEnum):
    """Codec of the record batches; every reader of ours and every collector knows all of them."""

    NONE = "none"
    GZIP = "gzip"  # in every Python, and the slowest
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True)
class Tls:
    """An encrypted connection; without files the machine's certificate authorities are trusted.

    Attributes
    ----------
    ca_file : Path, optional
        Certificate authorities to trust instead, PEM.
    certificate_file, key_file : Path, optional
        What this client shows of itself, PEM; both or none.
    check_hostname : bool
        Whether the certificate must name the broker's host.
    """

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    check_hostname: bool = True

    def __post_init__(self) -> None:
        """Check that a certificate comes with its key."""
        if (self.certificate_file is None) != (self.key_file is None):
            raise UsageError("a TLS client certificate needs both certificate_file and key_file")


@dataclass(frozen=True, slots=True)
class Sasl:
    """Who this client is.

    Attributes
    ----------
    mechanism : SaslMechanism
        ``OAUTHBEARER`` takes `token_file`; the others take `username` and `password`.
    username, password : str
        The password never appears in the record's text.
    token_file : Path, optional
        Holds a bearer token; read again at each connection, so that it may be replaced while running.
    """

    mechanism: SaslMechanism
    username: str = ""
    password: str = field(default="", repr=False)
    token_file: Path | None = None

    def __post_init__(self) -> None:
        """Check that the mechanism has what it needs."""
        if self.mechanism is SaslMechanism.OAUTHBEARER:
            if self.token_file is None:
                raise UsageError("SASL OAUTHBEARER needs token_file")
        elif not (self.username and self.password):
            raise UsageError(f"SASL {self.mechanism} needs username and password")


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """One topic of one cluster, and the limits of a client of it.

    Attributes
    ----------
    bootstrap : tuple of str
        Addresses ``host:port``; one that answers is enough.
    topic : str
        Collectors read ``otlp_spans``, Jaeger's ingester ``jaeger-spans``.
    client_id : str
        Name in the broker's logs and quotas.
    tls, sasl : Tls, Sasl, optional
        Encryption and authentication.
    compression : Compression
        Of the record batches.
    in_flight_bytes : int
        Most bytes handed to the client library and not yet acknowledged: the library itself has no bound.
    record_limit_bytes : int
        Largest key, value and headers together; the topic's ``max.message.bytes`` must be above it.
    connect_timeout_s, request_timeout_s, delivery_timeout_s : float
        Longest wait for a first answer, for one request, and for a record with all its retries, seconds.
    """

    bootstrap: tuple[str, ...]
    topic: str = "otlp_spans"
    client_id: str = "paritas"
    tls: Tls | None = None
    sasl: Sasl | None = None
    compression: Compression = Compression.ZSTD
    in_flight_bytes: int = 32 * MIB
    record_limit_bytes: int = 1_000_000
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 10.0
    delivery_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        """Check the addresses and the limits."""
        if not self.bootstrap:
            raise UsageError("no bootstrap address", hint="give host:port of a broker")
        for address in self.bootstrap:
            host_and_port(address)
        if self.in_flight_bytes < self.record_limit_bytes:
            raise UsageError(
                f"in_flight_bytes is {self.in_flight_bytes}, less than one record of {self.record_limit_bytes} bytes"
            )
        if self.delivery_timeout_s < self.request_timeout_s:
            raise UsageError(
                f"delivery_timeout_s is {self.delivery_timeout_s:g}, less than request_timeout_s ({self.request_timeout_s:g})"
            )

    @property
    def place(self) -> str:
        """How messages name the topic."""
        return f"topic {self.topic!r} on {','.join(self.bootstrap)}"


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of an address; UsageError if it is none.

    Examples
    --------
    >>> host_and_port("[::1]:9092")
    ('::1', 9092)
    """
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit() and 0 < int(port) < 65536):
        raise UsageError(f"bootstrap address {address!r} is not host:port", hint="e.g. kafka-0.kafka:9092")
    return host.strip("[]"), int(port)


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """How `ensure_topic` makes a topic that is not there; one that is there is left as it is.

    Attributes
    ----------
    partitions : int
        More can be added later, but then equal keys change their partition.
    replication_factor, min_insync_replicas : int
        3 and 2 survive the loss of a broker; 1 and 1 are for one machine.
    retention_s : float
        Age at which records go, seconds.
    retention_bytes : int
        Bytes a partition at which the oldest records go; -1 for no bound.
    cleanup_policy : str
        ``delete`` for spans; ``compact`` keeps the newest record of a key.
    max_message_bytes : int
        Largest batch that the broker takes.
    """

    partitions: int = 4
    replication_factor: int = 1
    min_insync_replicas: int = 1
    retention_s: float = 7.0 * DAY_S
    retention_bytes: int = -1
    cleanup_policy: str = "delete"
    max_message_bytes: int = MIB

    def __post_init__(self) -> None:
        """Check the numbers that have no meaning outside a range."""
        if self.partitions < 1:
            raise UsageError(f"partitions is {self.partitions}, expected at least 1")
        if not 1 <= self.min_insync_replicas <= self.replication_factor:
            raise UsageError(
                f"min_insync_replicas is {self.min_insync_replicas}, expected 1 to replication_factor ({self.replication_factor})"
            )

    def configs(self) -> dict[str, str]:
        """Return the topic's settings as the broker names them."""
        return {
            "cleanup.policy": self.cleanup_policy,
            "retention.ms": str(round(self.retention_s * 1000)),
            "retention.bytes": str(self.retention_bytes),
            "max.message.bytes": str(self.max_message_bytes),
            "min.insync.replicas": str(self.min_insync_replicas),
            # The broker's clock: a replay of old records must not expire at once, and a sender whose
            # clock is ahead must not be refused.
            "message.timestamp.type": "LogAppendTime",
        }
