"""A bounded queue in memory with a thread that ships it: for senders that may never wait and have no spool."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from paritas.agent.eventlog.kafka_errors import KafkaProblem
from paritas.agent.eventlog.kafka_producing import size_of
from paritas.agent.eventlog.kafka_shipper import Shipped, Shipper
from paritas.clock import Clock
from paritas.wire import WireRecord

__all__ = ["KafkaOutbox", "OutboxCounters", "OutboxDrop"]

CHUNK_BYTES = 4 * 1024 * 1024  # of one call of ship: large enough to hide the round trip
FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.1, 5.0
JOIN_TIMEOUT_S = 2.0


class OutboxDrop(StrEnum):
    """Why something accepted was given up; a broker's refusals are counted as their `KafkaProblem`."""

    QUEUE_FULL = "queue_full"
    SHUTDOWN = "shutdown"  # not delivered before the deadline of the end
    NOT_ENCODED = "not_encoded"


@dataclass(frozen=True, slots=True)
class OutboxCounters:
    """One consistent reading, in units of the sender: ``accepted == delivered + sum(dropped) + queued``.

    Attributes
    ----------
    accepted : int
        Everything that was handed over.
    delivered : int
        Acknowledged by the log.
    dropped : mapping of str to int
        Given up, by `OutboxDrop` or `KafkaProblem`.
    queued : int
        Still to be delivered.
    faults : mapping of KafkaProblem to int
        Failed attempts; each was or will be repeated.
    """

    accepted: int
    delivered: int
    dropped: Mapping[str, int]
    queued: int
    faults: Mapping[KafkaProblem, int]


@dataclass(slots=True)
class _Queue:
    """What waits, oldest first; guarded by the outbox's lock."""

    waiting: deque[tuple[WireRecord, int, int]] = field(default_factory=deque)  # record, units, bytes
    size_bytes: int = 0
    accepted: int = 0
    delivered: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def queued(self) -> int:
        return sum(units for _, units, _ in self.waiting)

    def chunk(self) -> list[WireRecord]:
        chosen: list[WireRecord] = []
        room = CHUNK_BYTES
        for record, _, size_bytes in self.waiting:
            room -= size_bytes
            if room < 0 and chosen:
                break
            chosen.append(record)
        return chosen

    def settle(self, shipped: Shipped) -> None:
        for place in range(min(shipped.settled, len(self.waiting))):
            _, units, size_bytes = self.waiting.popleft()
            self.size_bytes -= size_bytes
            problem = shipped.refused.get(place)
            if problem is None:
                self.delivered += units
            else:
                self.dropped[problem] += units

    def give_up(self) -> None:
        self.dropped[OutboxDrop.SHUTDOWN] += self.queued
        self.waiting.clear()
        self.size_bytes = 0


class KafkaOutbox:
    """Takes records without ever waiting and delivers them in order from its own thread.

    When it is full the newest record is refused, so that what is queued stays in order.

    Parameters
    ----------
    shipper : Shipper
        Closed together with the outbox.
    limit_bytes : int
        Most bytes queued.
    clock : Clock
        Waits; must really wait (`SystemClock`).
    on_start : callable
        Called on the new thread before anything else.
    """

    def __init__(
        self,
        shipper: Shipper,
        *,
        limit_bytes: int,
        clock: Clock,
        on_start: Callable[[], object] = lambda: None,
    ) -> None:
        self._shipper, self._limit_bytes, self._clock, self._on_start = shipper, limit_bytes, clock, on_start
        self._queue, self._lock = _Queue(), threading.Lock()
        self._faults: Counter[KafkaProblem] = Counter()
        self._wake, self._empty, self._closing = threading.Event(), threading.Event(), threading.Event()
        self._empty.set()
        # A daemon: it must never keep the process it lives in from ending.
        self._thread = threading.Thread(target=self._run, name="paritas-outbox", daemon=True)

    def offer(self, record: WireRecord, *, units: int = 1) -> bool:
        """Queue the record, or count it as dropped; returns whether it was queued."""
        size_bytes = size_of(record)
        with self._lock:
            self._queue.accepted += units
            if self._closing.is_set():
                self._queue.dropped[OutboxDrop.SHUTDOWN] += units
                return False
            if self._queue.size_bytes + size_bytes > self._limit_bytes:
                self._queue.dropped[OutboxDrop.QUEUE_FULL] += units
                return False
            self._queue.waiting.append((record, units, size_bytes))
            self._queue.size_bytes += size_bytes
            self._empty.clear()
        self._wake.set()
        return True

    def drop(self, reason: OutboxDrop, *, units: int) -> None:
        """Count what the sender could not even offer."""
        with self._lock:
            self._queue.accepted += units
            self._queue.dropped[reason] += units

    def counters(self) -> OutboxCounters:
        """Return one consistent reading."""
        with self._lock:
            queue = self._queue
            dropped = {str(reason): count for reason, count in queue.dropped.items() if count}
            return OutboxCounters(queue.accepted, queue.delivered, dropped, queue.queued, dict(self._faults))

    def _run(self) -> None:
        self._on_start()
        backoff_s = FIRST_BACKOFF_S
        while not self._closing.is_set():
            self._clock.wait(self._wake, timeout_s=LAST_BACKOFF_S)
            self._wake.clear()
            while not self._closing.is_set() and (chunk := self._chunk()):
                if self._settle(self._shipper.ship(chunk)):
                    backoff_s = FIRST_BACKOFF_S
                else:
                    self._clock.wait(self._closing, timeout_s=backoff_s)
                    backoff_s = min(2 * backoff_s, LAST_BACKOFF_S)

    def _chunk(self) -> list[WireRecord]:
        with self._lock:
            return self._queue.chunk()

    def _settle(self, shipped: Shipped) -> bool:
        """Account for one attempt; returns whether the next may follow at once."""
        with self._lock:
            if shipped.fault is not None:
                self._faults[shipped.fault.problem] += 1
            self._queue.settle(shipped)
            if not self._queue.waiting:
                self._empty.set()
        return shipped.fault is None

    def flush(self, *, timeout_s: float) -> bool:
        """Wait until nothing is queued; returns whether that is so within the time."""
        return self._clock.wait(self._empty, timeout_s=timeout_s)

    def close(self, *, timeout_s: float) -> None:
        """Deliver what is queued within the time, count the rest as dropped, and end; twice is fine."""
        if self._closing.is_set():
            return
        self.flush(timeout_s=timeout_s)
        self._closing.set()
        self._wake.set()
        self._shipper.close(timeout_s=0)
        self._thread.join(timeout=JOIN_TIMEOUT_S)
        with self._lock:
            self._queue.give_up()
            self._empty.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close(timeout_s=JOIN_TIMEOUT_S)
