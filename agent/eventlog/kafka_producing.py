"""One producer a process, opened when it is needed and thrown away when it failed."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paritas.agent.eventlog.kafka_client import close_producer, disown_producer, open_producer
from paritas.agent.eventlog.kafka_errors import Fault, KafkaProblem, closed, diagnose
from paritas.agent.eventlog.kafka_settings import KafkaSettings
from paritas.agent.eventlog.kafka_topic import describe_topic, partition_of_key
from paritas.errors import PermanentError
from paritas.wire import WireRecord

__all__ = ["Producing", "size_of"]

DISCARD_TIMEOUT_S = 1.0
SHORT_S = 0.1
WAIT_MARGIN_S = 5.0  # beyond the library's own deadline: it always answers, this is for when it does not


def size_of(record: WireRecord) -> int:
    """Return the bytes that count towards the record's limit."""
    headers = sum([len(name.encode()) + len(value) for name, value in record.headers])
    return len(record.key) + len(record.value) + headers


class _Session:
    """What belongs to one process: after a fork the child starts a new one."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.producer: Any = None
        self.partitions = 0


class Producing:
    """Sends records and waits for their acknowledgements; threads may share it.

    An idempotent producer that had one record refused fails every later one as well, so a producer
    that failed is never used again.

    Parameters
    ----------
    settings : KafkaSettings
        Cluster, topic and limits.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._session = _Session()
        self._inherited: list[Any] = []  # of the parent process: kept, so that no finalizer runs
        self._closed = False

    def _current(self) -> _Session:
        if self._session.pid != os.getpid():
            if self._session.producer is not None:
                disown_producer(self._session.producer)
                self._inherited.append(self._session.producer)
            self._session = _Session()
        return self._session

    def check(self, record: WireRecord) -> int:
        """Return the bytes of a record; PermanentError for one that no broker will be asked to take."""
        size, limit = size_of(record), self._settings.record_limit_bytes
        if size > limit:
            raise PermanentError(
                f"{self._settings.place}: a record of {size} bytes exceeds the limit of {limit}",
                hint="split it by trace, or into segments",
            )
        return size

    def send(self, record: WireRecord, partition_key: bytes) -> Any:
        """Hand the record to the library and return its future; the library's errors pass through."""
        session = self._opened()
        return session.producer.send(
            self._settings.topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            partition=partition_of_key(partition_key, session.partitions),
        )

    def _opened(self) -> _Session:
        session = self._current()
        with session.lock:
            if self._closed:
                raise closed(self._settings.place)
            if session.producer is None:
                # Asked first: for a topic that is not there a producer only waits.
                session.partitions = describe_topic(self._settings).partitions
                session.producer = open_producer(self._settings)
            if self._closed:  # meanwhile, by a thread that did not wait for this
                producer, session.producer = session.producer, None
                close_producer(producer, timeout_s=0)
                raise closed(self._settings.place)
        return session

    def wait(self, future: Any) -> Any:
        """Return where the record is; the library's errors pass through."""
        if future.succeeded():  # as most are: a batch is acknowledged whole
            return future.value
        return future.get(timeout=self._settings.delivery_timeout_s + WAIT_MARGIN_S)

    @contextmanager
    def faults(self) -> Iterator[list[Fault]]:
        """Collect the fault of a block, if it has one, and throw the producer away then."""
        found: list[Fault] = []
        try:
            yield found
        except Exception as error:  # noqa: BLE001 -- whatever the library raises is diagnosed and reported
            found.append(self._diagnose(error))
            self.discard()

    def _diagnose(self, error: Exception) -> Fault:
        if self._closed:  # whatever the library says then
            return Fault(KafkaProblem.CLOSED, closed(self._settings.place))
        return diagnose(error, self._settings.place)

    def discard(self, *, timeout_s: float = DISCARD_TIMEOUT_S) -> None:
        """Throw the producer away; the next `send` opens another."""
        session = self._current()
        if not session.lock.acquire(timeout=max(timeout_s, SHORT_S)):
            return  # another thread is connecting: it looks at `_closed` when it is through
        producer, session.producer = session.producer, None
        session.lock.release()
        if producer is not None:
            close_producer(producer, timeout_s=timeout_s)

    def close(self, *, timeout_s: float) -> None:
        """Deliver what was sent, at most for `timeout_s` seconds, and end; twice is fine."""
        self._closed = True
        self.discard(timeout_s=timeout_s)
