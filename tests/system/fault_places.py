"""Where an agent delivers to in tests with faults: the log, its outage, and what it holds in the end."""

import fcntl
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from paritas.agent.eventlog import EmbeddedReader
from paritas.agent.own_spans import GAP_SPAN
from paritas.clock import SystemClock
from paritas.wire import origin_of


class EmbeddedPlace:
    """An embedded event log, and its outage: somebody else holds its lock."""

    def __init__(self, folder):
        self.path = folder

    def config(self):
        return f"{{embedded: {{path: {self.path}, partitions: 2}}}}"

    @contextmanager
    def outage(self):
        """Keep an agent that starts now from opening the log."""
        self.path.mkdir(exist_ok=True)
        with (self.path / "lock").open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield

    def records(self):
        with EmbeddedReader(self.path) as log:
            for partition in range(log.partitions):
                offset = 0
                while (batch := log.read(partition, offset, limit=500)).next_offset > offset:
                    assert not batch.skipped
                    yield from (stored.record for stored in batch)
                    offset = batch.next_offset


class KafkaPlace:
    """A topic of a real broker, and its outage: the broker stands still."""

    def __init__(self, broker, topic):
        from paritas.agent.eventlog.kafka_settings import KafkaSettings, TopicSettings
        from paritas.agent.eventlog.kafka_topic import ensure_topic

        self.broker, self.topic = broker, topic
        self.settings = KafkaSettings(bootstrap=(broker.bootstrap,), topic=topic)
        ensure_topic(self.settings, TopicSettings(partitions=2))

    def config(self):
        times = "connect_timeout: 2s, request_timeout: 2s, delivery_timeout: 4s"
        return f"{{kafka: {{bootstrap: ['{self.broker.bootstrap}'], topic: {self.topic}, {times}}}}}"

    @contextmanager
    def outage(self):
        """Keep the broker from answering."""
        self.broker.pause()
        try:
            yield
        finally:
            self.broker.resume()

    def records(self):
        from paritas.agent.eventlog.kafka_reader import KafkaReader

        with KafkaReader(self.settings, clock=SystemClock()) as log:
            for partition, end in log.end_offsets().items():
                offset = log.start_offsets()[partition]
                while offset < end:
                    batch = log.read(partition, offset, limit=500)
                    yield from (stored.record for stored in batch)
                    offset = batch.next_offset


@dataclass
class Arrived:
    """What the destination holds after readers dropped repeated origins."""

    numbers: Counter = field(default_factory=Counter)
    origins: set = field(default_factory=set)
    gaps: dict = field(default_factory=dict)
    repeated: int = 0

    def take(self, record):
        origin = origin_of(record.headers)
        if origin in self.origins:
            self.repeated += 1
            return
        self.origins.add(origin)
        self.hold(origin, record)

    def hold(self, origin, record):
        """Take what is new."""
        for source in ExportTraceServiceRequest.FromString(record.value).resource_spans:
            for scope in source.scope_spans:
                for span in scope.spans:
                    self._take(span, {one.key: one.value for one in span.attributes})

    def _take(self, span, told):
        if span.name == "load":
            self.numbers[told["number"].int_value] += 1
        elif span.name == GAP_SPAN:
            first, last = (told[f"paritas.gap.{end}_seq"].int_value for end in ("first", "last"))
            for seq in range(first, last + 1):
                self.gaps[told["paritas.gap.stream"].string_value, seq] = told[
                    "paritas.gap.reason"
                ].string_value

    def bulk(self):
        """Origins of records that came in by way of the disk, without the agent's own."""
        return {origin for origin in self.origins if "/" not in origin.agent}

    def in_memory(self):
        """Origins of records that were accepted while the disk took nothing; one life of an agent counts them."""
        return {origin for origin in self.origins if origin.agent.endswith("/memory")}


def arrived(place, found=None):
    """Read the whole destination."""
    found = found or Arrived()
    for record in place.records():
        found.take(record)
    return found
