"""The topic behind an event log: what it is, and how it is made."""

import hashlib
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from paritas.agent.eventlog.kafka_client import open_admin
from paritas.agent.eventlog.kafka_errors import no_topic, not_allowed, translated
from paritas.agent.eventlog.kafka_settings import KafkaSettings, TopicSettings
from paritas.errors import TransientError, UsageError

__all__ = ["Topic", "describe_topic", "ensure_topic", "murmur2", "partition_of_key"]

NO_ERROR, UNKNOWN_TOPIC, INVALID_NAME, NOT_AUTHORIZED, ALREADY_EXISTS = 0, 3, 17, 29, 36  # of the protocol


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is.

    Attributes
    ----------
    name : str
        Its name in the cluster.
    partitions : int
        How many there are now.
    log_id : str
        32 hex characters over cluster and topic id: a topic made again under its name is another log.
    """

    name: str
    partitions: int
    log_id: str


def describe_topic(settings: KafkaSettings) -> Topic:
    """Return the topic of the settings.

    Raises
    ------
    UsageError
        It is not there, or not for this client.
    TransientError
        No broker serves this client now, or the topic has no leader yet.
    """
    with _admin(settings) as admin:
        return _describe(admin, settings)


def ensure_topic(settings: KafkaSettings, topic: TopicSettings) -> Topic:
    """Return the topic of the settings, made if it is not there; an existing one is not changed.

    Raises
    ------
    UsageError
        The broker refuses to make it so.
    TransientError
        No broker serves this client now.
    """
    with _admin(settings) as admin:
        told = admin.describe_topics([settings.topic])[0]
        if told["error_code"] in (UNKNOWN_TOPIC, INVALID_NAME):
            _create(admin, settings, topic)
        return _describe(admin, settings)


@contextmanager
def _admin(settings: KafkaSettings) -> Iterator[Any]:
    admin = open_admin(settings)
    try:
        with translated(settings.place):
            yield admin
    finally:
        admin.close()


def _create(admin: Any, settings: KafkaSettings, topic: TopicSettings) -> None:
    wanted = {
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "configs": topic.configs(),
    }
    answer = admin.create_topics({settings.topic: wanted}, raise_errors=False)["topics"][0]
    if answer["error_code"] not in (NO_ERROR, ALREADY_EXISTS):
        raise UsageError(f"{settings.place} cannot be made: {answer['error_message']}")
    admin.wait_for_topics([settings.topic])


def _describe(admin: Any, settings: KafkaSettings) -> Topic:
    told = admin.describe_topics([settings.topic])[0]
    if told["error_code"] in (UNKNOWN_TOPIC, INVALID_NAME):
        raise no_topic(settings.place)
    if told["error_code"] == NOT_AUTHORIZED:
        raise not_allowed(settings.place)
    if told["error_code"] != NO_ERROR or not told["partitions"]:
        raise TransientError(f"{settings.place} is not ready (code {told['error_code']})")
    cluster = admin.describe_cluster()["cluster_id"]
    identity = f"{cluster}/{told.get('topic_id') or settings.topic}".encode()
    log_id = hashlib.blake2b(identity, digest_size=16).hexdigest()
    return Topic(settings.topic, len(told["partitions"]), log_id)


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's own clients choose for a key, so that all producers agree.

    Examples
    --------
    >>> partition_of_key(b"21", 1000) == (murmur2(b"21") & 0x7FFFFFFF) % 1000
    True
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(key: bytes) -> int:
    """Return the 32-bit MurmurHash2 of a key, with the seed that Kafka's clients use.

    Examples
    --------
    >>> murmur2(b"21") - 2**32  # a value from the tests of Kafka's Java client
    -973932308
    """
    factor, mask, shift = 0x5BD1E995, 0xFFFFFFFF, 24
    hashed = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for raw in struct.unpack_from(f"<{whole // 4}I", key):
        word = raw * factor & mask
        hashed = (hashed * factor & mask) ^ ((word ^ word >> shift) * factor & mask)
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * factor & mask
    hashed = (hashed ^ hashed >> 13) * factor & mask
    return hashed ^ hashed >> 15
