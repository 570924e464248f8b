"""The only place that touches kafka-python: opens producers, consumers and admin clients, and gets rid of them.

Everything here is untyped behind `Any`, because the library has no types.  It is pinned to 3.0.12 up to 3.1.
"""

import importlib
import ssl
from typing import Any

from paritas.agent.eventlog.kafka_probe import why_not_served
from paritas.agent.eventlog.kafka_settings import Compression, KafkaSettings, Sasl, SaslMechanism, Tls
from paritas.errors import UsageError

__all__ = [
    "close_producer",
    "disown_producer",
    "open_admin",
    "open_consumer",
    "open_producer",
    "tls_context",
    "topic_partition",
]

# How long an idle broker keeps a fetch: everything else on that connection waits behind it, a question for
# the end of the log too, so that it is also how long a read at the end takes.
FETCH_WAIT_MS = 10
FETCH_BYTES = 16 * 1024 * 1024
PARTITION_FETCH_BYTES = 4 * 1024 * 1024
RECONNECT_MS = 1000  # the library's 30 s would outlast every deadline of ours
BATCH_BYTES = 512 * 1024
LINGER_MS = 5


def _library(name: str = "kafka") -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            "Kafka needs the package kafka-python", hint="pip install 'paritas[kafka]'"
        ) from error


def _require_codec(compression: Compression) -> None:
    if compression is Compression.ZSTD and not _library("kafka.codec").has_zstd():
        raise UsageError(
            "compression zstd needs the package zstandard",
            hint="pip install 'paritas[kafka]', or set compression to gzip or none",
        )


def open_producer(settings: KafkaSettings) -> Any:
    """Return an idempotent producer, connected; what it was given is delivered by its own threads.

    Raises
    ------
    UsageError
        The settings cannot work.
    TransientError
        No broker serves this client.
    """
    _require_codec(settings.compression)
    none = settings.compression is Compression.NONE
    return _connect(
        "KafkaProducer",
        settings,
        metrics_enabled=False,
        acks="all",
        enable_idempotence=True,  # said aloud, so that a conflict raises and is not solved silently
        compression_type=None if none else str(settings.compression),
        batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
        max_request_size=settings.record_limit_bytes + 64 * 1024,
        delivery_timeout_ms=_ms(settings.delivery_timeout_s),
        max_block_ms=_ms(settings.request_timeout_s),
        allow_auto_create_topics=False,
    )


def open_consumer(settings: KafkaSettings) -> Any:
    """Return a consumer without a group: positions are kept by whoever reads, beside their state.

    Raises
    ------
    UsageError
        The settings cannot work.
    TransientError
        No broker serves this client.
    """
    return _connect(
        "KafkaConsumer",
        settings,
        metrics_enabled=False,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",  # a position that is gone must be counted, not moved silently
        isolation_level="read_committed",
        fetch_max_wait_ms=FETCH_WAIT_MS,
        fetch_max_bytes=FETCH_BYTES,
        max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
        allow_auto_create_topics=False,
    )


def open_admin(settings: KafkaSettings) -> Any:
    """Return a client that describes and makes topics; errors as for `open_consumer`."""
    return _connect("KafkaAdminClient", settings)


def _connect(kind: str, settings: KafkaSettings, **more: Any) -> Any:
    library = _library()
    common = connection_options(settings)
    try:
        return getattr(library, kind)(**common, **more)
    except (library.errors.KafkaTimeoutError, library.errors.KafkaConnectionError) as error:
        raise why_not_served(settings, tls_context(settings.tls)) from error


def connection_options(settings: KafkaSettings) -> dict[str, Any]:
    """Return what every client of the library is told about the cluster and about us."""
    return {
        "bootstrap_servers": list(settings.bootstrap),
        "client_id": settings.client_id,
        "bootstrap_timeout_ms": _ms(settings.connect_timeout_s),
        "request_timeout_ms": _ms(settings.request_timeout_s),
        "reconnect_backoff_max_ms": RECONNECT_MS,
        "security_protocol": _protocol(settings),
        "ssl_context": tls_context(settings.tls),
        **_sasl_options(settings.sasl),
    }


def _protocol(settings: KafkaSettings) -> str:
    transport = "PLAINTEXT" if settings.tls is None else "SSL"
    return transport if settings.sasl is None else f"SASL_{transport}"


def tls_context(tls: Tls | None) -> ssl.SSLContext | None:
    """Return how to encrypt; None without TLS.

    Raises
    ------
    UsageError
        A file is missing or holds no certificate.
    """
    if tls is None:
        return None
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        context.check_hostname = tls.check_hostname
        if tls.certificate_file is not None:
            context.load_cert_chain(tls.certificate_file, tls.key_file)
    except OSError as error:  # ssl.SSLError is one too
        files = ", ".join(str(f) for f in (tls.ca_file, tls.certificate_file, tls.key_file) if f is not None)
        raise UsageError(f"{files}: {error.strerror or error}", hint="expected PEM files") from error
    return context


def _sasl_options(sasl: Sasl | None) -> dict[str, Any]:
    if sasl is None:
        return {}
    options: dict[str, Any] = {"sasl_mechanism": str(sasl.mechanism)}
    if sasl.mechanism is SaslMechanism.OAUTHBEARER:
        return options | {"sasl_oauth_token_provider": _token_provider(sasl)}
    return options | {"sasl_plain_username": sasl.username, "sasl_plain_password": sasl.password}


def _token_provider(sasl: Sasl) -> Any:
    """An object of the class the library insists on, which reads the file at each connection."""
    path = sasl.token_file
    if path is None or not path.is_file():
        raise UsageError(f"{path}: no such token file", hint="it holds the bearer token, nothing else")
    base = _library("kafka.net.sasl.oauth").AbstractTokenProvider
    return type("FileTokenProvider", (base,), {"token": lambda _: path.read_text().strip()})()


def close_producer(producer: Any, *, timeout_s: float) -> None:
    """Close within about `timeout_s` seconds; what is not acknowledged by then fails.

    The library's own ``close`` raises when records are left, and then leaves its threads running.
    """
    errors = _library("kafka.errors")
    try:
        producer.close(timeout=timeout_s)
    except errors.KafkaTimeoutError:
        producer._sender.force_close()  # noqa: SLF001 -- no public way ends a producer that has records left
        try:
            producer.close(timeout=1)
        except errors.KafkaTimeoutError:
            disown_producer(producer)


def disown_producer(producer: Any) -> None:
    """Make the library's finalizers leave a producer alone.

    After a fork its threads exist in the parent only: closing it here would wait for them in vain.
    """
    producer._closed = True  # noqa: SLF001 -- it has no public switch


def topic_partition(topic: str, number: int) -> Any:
    """Return the library's name of a partition."""
    return _library().TopicPartition(topic, number)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
