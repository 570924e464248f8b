"""Spools, configurations and destinations for the agent's tests."""

from dataclasses import dataclass, field
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from paritas.agent.config import SpoolSettings
from paritas.agent.destination import Shipped
from paritas.agent.eventlog import SyncMode
from paritas.agent.spool import Spool
from paritas.clock import ManualClock
from paritas.errors import ParitasError, TransientError
from paritas.wire import WireRecord, origin_of

AGENT = "pod-7"
OTLP = Path(__file__).parent / "data/otlp"


def recorded():
    """Requests that vLLM 0.32 sent."""
    return [path.read_bytes() for path in sorted(OTLP.glob("*.bin"))]


def record(number, size=10):
    return WireRecord(b"%032x" % number, b"%d:" % number + bytes(size), (("paritas-schema", b"1"),))


def number_of(record):
    """The number of one of ours; -1 for a record of the agent itself."""
    told = record.value.split(b":")[0]
    return int(told) if told.isdigit() else -1


def spool_at(path, clock=None, **settings):
    """A spool that syncs only when told, so that a test owns time and threads."""
    settings = {"segment_bytes": 4096, "limit_bytes": 1 << 20, "sync": SyncMode.NONE, **settings}
    return Spool(SpoolSettings(path, **settings), agent=AGENT, clock=clock or ManualClock())


def holds(spool):
    """The invariant, in one reading."""
    told = spool.counters().records
    assert told.accepted == told.delivered + sum(told.dropped.values()) + told.queued, told
    return told


def requests_of(*trace_ids, scope="load", spans=1):
    """An OTLP request with so many spans in each of these traces, interleaved."""
    message = ExportTraceServiceRequest()
    source = message.resource_spans.add()
    source.resource.attributes.add(key="service.name").value.string_value = "x"
    scoped = source.scope_spans.add()
    scoped.scope.name = scope
    for number in range(spans):
        for trace_id in trace_ids:
            scoped.spans.add(trace_id=trace_id, span_id=b"%08d" % number, name="load")
    return message.SerializeToString()


@dataclass
class Place:
    """A destination in memory that says what a test tells it to: no real one fails on demand.

    Attributes
    ----------
    failing : ParitasError or None
        Raised, or told of what is beyond `takes`.
    takes : int
        So many records of a call are taken while it fails.
    refuses : set of int
        Numbers that will never be taken.
    """

    failing: ParitasError | None = None
    takes: int = 0
    refuses: set = field(default_factory=set)
    records: list = field(default_factory=list)
    calls: int = 0
    closed: int = 0

    def ship(self, records):
        self.calls += 1
        taken = records if self.failing is None else records[: self.takes]
        refused = {i: "never" for i, one in enumerate(taken) if number_of(one) in self.refuses}
        self.records += [one for i, one in enumerate(taken) if i not in refused]
        acknowledged = frozenset(range(len(taken))) - set(refused)
        return Shipped(acknowledged, refused, self.failing)

    def close(self):
        self.closed += 1

    def numbers(self):
        return [number for one in self.records if (number := number_of(one)) >= 0]

    def origins(self):
        return [origin_of(one.headers) for one in self.records]


DOWN = TransientError("down")
