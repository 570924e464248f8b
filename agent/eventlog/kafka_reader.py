"""Reading a topic as an event log: explicit positions, and every offset either a record or counted."""

import sys
import threading
from collections.abc import Mapping
from typing import Any

from paritas.agent.eventlog.kafka_client import open_consumer, topic_partition
from paritas.agent.eventlog.kafka_errors import is_corrupt, is_out_of_range, translated
from paritas.agent.eventlog.kafka_lane import Lane
from paritas.agent.eventlog.kafka_settings import KafkaSettings
from paritas.agent.eventlog.kafka_topic import describe_topic
from paritas.agent.eventlog.records import Batch, SkipReason
from paritas.clock import Clock
from paritas.closing import Closing
from paritas.errors import TransientError, UsageError

__all__ = ["KafkaReader"]

POLL_MS = 100
# Of all partitions together, before those nobody reads are put back.
WAITING_LIMIT_BYTES = 64 * 1024 * 1024
NS_PER_S = 1_000_000_000


class KafkaReader(Closing):
    """Reads one topic from positions that the caller keeps; joins no consumer group.

    Transactions that were aborted are not given; their offsets, and those of transaction markers, are
    counted as ``missing``.  Not to be shared between threads.

    Parameters
    ----------
    settings : KafkaSettings
        Cluster and topic.
    clock : Clock
        Bounds waiting for what the broker says it has.

    Raises
    ------
    UsageError
        There is no such topic, or the settings cannot work.
    TransientError
        No broker serves this client now.
    """

    def __init__(self, settings: KafkaSettings, *, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._topic = describe_topic(settings)
        self._lanes = [Lane(topic_partition(settings.topic, n)) for n in range(self._topic.partitions)]
        self._ends: Mapping[int, int] = {}
        self._closed = threading.Event()
        self._consumer = self._open()

    def _open(self) -> Any:
        consumer = open_consumer(self._settings)
        with translated(self._settings.place):
            partitions = [lane.partition for lane in self._lanes]
            consumer.assign(partitions)
            consumer.pause(*partitions)
            for lane in self._lanes:
                consumer.seek(lane.partition, max(lane.fetched_to, 0))
        return consumer

    @property
    def log_id(self) -> str:
        """Identity of the cluster's topic, 32 hex characters."""
        return self._topic.log_id

    @property
    def partitions(self) -> int:
        """Number of partitions when this reader was opened."""
        return self._topic.partitions

    def read(self, partition: int, offset: int, *, limit: int) -> Batch:
        """Return at most `limit` records from `offset` on; see `LogReader.read`.

        Raises
        ------
        UsageError
            There is no such partition, or this client may not read it.
        TransientError
            The broker does not answer; reading goes on where it was.
        """
        if not 0 <= partition < self.partitions:
            raise UsageError(
                f"{self._settings.place}: no partition {partition}, the topic has 0 to {self.partitions - 1}"
            )
        if offset < 0:
            raise UsageError(f"{self._settings.place}: offset {offset} is below 0")
        if limit <= 0:
            return Batch((), offset)
        lane = self._lanes[partition]
        with translated(self._settings.place):
            self._fetch(lane, offset)
        return lane.take(limit)

    def _fetch(self, lane: Lane, offset: int) -> None:
        if lane.next_offset != offset:
            lane.move(offset)
            self._consumer.seek(lane.partition, offset)
        if lane.waiting:
            return
        try:
            self._fill(lane)
        except Exception as error:
            if not is_corrupt(error):
                raise
            self._pass_corrupt(lane)

    def _pass_corrupt(self, lane: Lane) -> None:
        """Skip one offset if it is this partition that is damaged.

        The library cannot go on after a damaged batch and does not say whose it was: a new consumer,
        with every other partition paused, tells.
        """
        self._reopen()
        try:
            self._fill(lane)
        except Exception as error:
            if not is_corrupt(error):
                raise
            lane.jump(lane.fetched_to + 1, SkipReason.CORRUPT)
            self._reopen()

    def _reopen(self) -> None:
        self._consumer.close()
        self._consumer = self._open()

    def _fill(self, lane: Lane) -> None:
        """Fetch until the partition has something, or is known to have nothing."""
        self._consumer.resume(lane.partition)
        started = lane.fetched_to
        deadline_ns = self._clock.monotonic_ns() + round(self._settings.request_timeout_s * NS_PER_S)
        timeout_ms = 0
        while self._poll(lane, timeout_ms) and not lane.waiting and lane.fetched_to == started:
            if lane.fetched_to >= self._end_of(lane):
                return
            if self._clock.monotonic_ns() > deadline_ns:
                raise TransientError(f"{self._settings.place}: no records in time", hint="is the broker up?")
            timeout_ms = POLL_MS

    def _end_of(self, lane: Lane) -> int:
        """End of the partition, asked again only when everything known was read."""
        if lane.fetched_to >= self._ends.get(lane.partition.partition, 0):
            self._ends = self.end_offsets()
        return self._ends[lane.partition.partition]

    def _poll(self, lane: Lane, timeout_ms: int) -> bool:
        """Take in what was fetched for any partition; False if this one has lost its position."""
        try:
            # Everything at once: the library never gives what is left of a fetch to a partition that
            # was paused in the middle of it.
            found = self._consumer.poll(timeout_ms=timeout_ms, max_records=sys.maxsize)
        except Exception as error:
            if not is_out_of_range(error):
                raise
            return self._find_start(lane, error.args[0])
        for partition, records in found.items():
            self._lanes[partition.partition].add(records)
            self._lanes[partition.partition].fetched_to = self._consumer.position(partition)
        if not lane.waiting:
            lane.fetched_to = self._consumer.position(lane.partition)
        if sum(each.waiting_bytes for each in self._lanes) > WAITING_LIMIT_BYTES:
            self._put_back(lane)
        return True

    def _put_back(self, kept: Lane) -> None:
        """Forget what nobody reads; it is fetched again when somebody does."""
        for lane in self._lanes:
            if lane is not kept and lane.waiting:
                lane.move(lane.next_offset)
                self._consumer.pause(lane.partition)
                self._consumer.seek(lane.partition, lane.next_offset)

    def _find_start(self, lane: Lane, lost: Mapping[Any, int]) -> bool:
        for partition in lost:  # it will find its own way when it is read next
            self._consumer.pause(partition)
        if lane.partition not in lost:
            return True
        start = self.start_offsets()[lane.partition.partition]
        if start > lane.fetched_to:
            lane.jump(start, SkipReason.EXPIRED)
            self._consumer.seek(lane.partition, start)
        return False

    def start_offsets(self) -> Mapping[int, int]:
        """Return the offset of the oldest record kept, by partition."""
        return self._offsets("beginning_offsets")

    def end_offsets(self) -> Mapping[int, int]:
        """Return one more than the offset of the newest record, by partition."""
        return self._offsets("end_offsets")

    def _offsets(self, which: str) -> Mapping[int, int]:
        ask = getattr(self._consumer, which)
        with translated(self._settings.place):
            timeout_ms = round(self._settings.request_timeout_s * 1000)
            found = ask([lane.partition for lane in self._lanes], timeout_ms=timeout_ms)
        return {partition.partition: offset for partition, offset in sorted(found.items())}

    def flush(self) -> None:
        """Return at once: what the broker serves it has acknowledged, by the topic's replication."""

    def close(self) -> None:
        """Disconnect; twice is fine."""
        if not self._closed.is_set():
            self._closed.set()
            self._consumer.close()
