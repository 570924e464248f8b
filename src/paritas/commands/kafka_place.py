"""`--kafka WHERE` of the commands: brokers on the command line, or a file with everything that a cluster asks for."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TypeVar

from paritas.agent.eventlog.kafka_settings import KafkaSettings, host_and_port
from paritas.clock import Clock
from paritas.commands.agent_config import ConfigError, kafka_of, read_fields
from paritas.commands.agent_table import KAFKA
from paritas.contracts.shapes import Field, Record
from paritas.errors import TransientError, UsageError

__all__ = ["kafka_place", "read_kafka_file", "when_served"]

FILE = Record("Kafka settings", (Field("kafka", KAFKA, "the cluster", is_required=True),))
HINTS = {
    "paritas contract init writes one": "kafka.bootstrap is required",
    "one contract a file: split it at '---'": "one cluster a file",
    "is this a contract? recordings belong in their own files": "is this the Kafka settings file?",
}
RETRY_S = 1.0
Opened = TypeVar("Opened")


def kafka_place(where: str, *, topic: str = "", client_id: str = "paritas") -> KafkaSettings:
    """Return the settings for a topic of the cluster that `where` names.

    Parameters
    ----------
    where : str
        ``HOST:PORT,…``, or the path of a file.
    topic : str
        Wins over the file's; empty for the file's, or its default.

    Raises
    ------
    UsageError
        It is neither, or the file cannot be read.
    ConfigError
        The file is wrong.

    Examples
    --------
    >>> kafka_place("a:9092,b:9092", topic="spans").place
    "topic 'spans' on a:9092,b:9092"
    """
    settings = _brokers(where, client_id) or _file(where, client_id)
    return replace(settings, topic=topic) if topic else settings


def _brokers(where: str, client_id: str) -> KafkaSettings | None:
    try:
        for address in where.split(","):
            host_and_port(address)
    except UsageError:
        return None
    return KafkaSettings(tuple(where.split(",")), client_id=client_id)


def _file(where: str, client_id: str) -> KafkaSettings:
    try:
        content = Path(where).read_bytes()
    except FileNotFoundError as error:
        hint = "write kafka-0.kafka:9092, or the path of a file with a `kafka:` section"
        raise UsageError(f"{where!r} is neither HOST:PORT nor a file", hint=hint) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{where}: cannot be read: {reason}", hint="name a Kafka settings file") from error
    return read_kafka_file(content, where, client_id=client_id)


def read_kafka_file(content: bytes, file: str, *, client_id: str = "paritas") -> KafkaSettings:
    """Read settings from bytes; `file` is the name that errors show.

    Examples
    --------
    >>> read_kafka_file(b"kafka: {bootstrap: ['a:9092'], topic: spans}", "k.yaml").place
    "topic 'spans' on a:9092"
    """
    at = read_fields(FILE, content, file, hints=HINTS).at("kafka")
    try:
        return kafka_of(at.value, client_id)
    except UsageError as error:
        raise ConfigError(f"{at.place}: kafka: {error}", hint=error.hint) from error


def when_served(
    start: Callable[[], Opened],
    *,
    clock: Clock,
    stop: Event,
    on_wait: Callable[[TransientError], None],
) -> Opened | None:
    """Return what `start` opens, tried again while nobody serves it; None if `stop` was set before.

    `on_wait` is told why, whenever the reason has changed.
    """
    said = ""
    while not stop.is_set():
        try:
            return start()
        except TransientError as error:
            if str(error) != said:
                said = str(error)
                on_wait(error)
        clock.wait(stop, timeout_s=RETRY_S)
    return None
