"""A span exporter to Kafka for any program that uses the OpenTelemetry SDK for Python.

::

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from paritas.agent.eventlog.kafka_settings import KafkaSettings
    from paritas.agent.otel_exporter import KafkaSpanExporter

    provider = TracerProvider()
    provider.add_span_processor(
        BatchSpanProcessor(KafkaSpanExporter(KafkaSettings(("kafka:9092",))))
    )

A record is one OTLP ``ExportTraceServiceRequest`` about one trace, its key the trace id in hex: what the
OpenTelemetry Collector's Kafka receiver (``otlp_proto``) and Jaeger's ingester read.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from itertools import count

from opentelemetry import context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from paritas.agent.eventlog.kafka_outbox import KafkaOutbox, OutboxCounters, OutboxDrop
from paritas.agent.eventlog.kafka_settings import KafkaSettings
from paritas.agent.eventlog.kafka_shipper import KafkaShipper
from paritas.agent.receiver import SCHEMA_HEADERS
from paritas.clock import Clock, SystemClock
from paritas.wire import RECORD_LIMIT_BYTES, Origin, WireRecord, stamp

__all__ = ["KafkaSpanExporter", "split_by_trace_id"]

MIB = 1024 * 1024
MS_PER_S = 1000


def split_by_trace_id(spans: Sequence[ReadableSpan]) -> Iterator[list[ReadableSpan]]:
    """Yield the spans of each trace together, in order of appearance."""
    traces: dict[int, list[ReadableSpan]] = {}
    for span in spans:
        traces.setdefault(span.context.trace_id, []).append(span)
    yield from traces.values()


def _encode(spans: Sequence[ReadableSpan]) -> Iterator[tuple[bytes, int]]:
    """Yield values within the record limit and how many spans each has; one span is never cut."""
    value = encode_spans(spans).SerializeToString()
    if len(value) <= RECORD_LIMIT_BYTES or len(spans) == 1:
        yield value, len(spans)
        return
    middle = len(spans) // 2
    yield from _encode(spans[:middle])
    yield from _encode(spans[middle:])


def _suppress_instrumentation() -> None:
    """Keep an instrumented Kafka client from tracing the export of its own traces."""
    context.attach(context.set_value(context._SUPPRESS_INSTRUMENTATION_KEY, True))  # noqa: SLF001 -- the SDK's own exporters do so


class KafkaSpanExporter(SpanExporter):
    """Exports spans to a topic from its own thread; never raises into its host, never waits for a broker.

    Constructing it connects to nothing.  It survives a fork: the child starts with an empty queue.

    Parameters
    ----------
    settings : KafkaSettings
        Cluster, topic and limits.
    agent : str
        Name under which records are numbered for deduplication; host and process id are added.
    limit_bytes : int
        Most bytes queued; then `export` answers FAILURE and counts.
    shutdown_timeout_s : float
        How long `shutdown` delivers what is queued, seconds.
    clock : Clock, optional
        The machine's by default.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        agent: str = "otel-sdk",
        limit_bytes: int = 32 * MIB,
        shutdown_timeout_s: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        self._settings, self._agent, self._limit_bytes = settings, agent, limit_bytes
        self._shutdown_timeout_s, self._clock = shutdown_timeout_s, clock or SystemClock()
        self._shut_down = False
        self._parents: list[
            KafkaOutbox
        ] = []  # of the process before a fork: kept, so that nothing finalizes them
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._origin = f"{self._agent}/{socket.gethostname()}/{self._pid}"
        self._epoch, self._seqs = self._clock.now_ns(), count()
        self._outbox = KafkaOutbox(
            KafkaShipper(self._settings),
            limit_bytes=self._limit_bytes,
            clock=self._clock,
            on_start=_suppress_instrumentation,
        )
        self._outbox.__enter__()

    def _current(self) -> KafkaOutbox:
        if self._pid != os.getpid():
            self._parents.append(self._outbox)
            self._start()
        return self._outbox

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Queue the spans; FAILURE when some could not be, which `counters` tells apart."""
        if self._shut_down:
            return SpanExportResult.FAILURE
        queued = [self._export_trace(trace) for trace in split_by_trace_id(spans)]
        return SpanExportResult.SUCCESS if all(queued) else SpanExportResult.FAILURE

    def _export_trace(self, trace: list[ReadableSpan]) -> bool:
        outbox = self._current()
        try:
            values = list(_encode(trace))
        except Exception:  # noqa: BLE001 -- whatever a host put into its spans, it must not hit the host
            outbox.drop(OutboxDrop.NOT_ENCODED, units=len(trace))
            return False
        key = b"%032x" % trace[0].context.trace_id
        queued = [outbox.offer(self._record(key, value), units=spans) for value, spans in values]
        return all(queued)

    def _record(self, key: bytes, value: bytes) -> WireRecord:
        origin = Origin(self._origin, self._epoch, next(self._seqs))
        return stamp(WireRecord(key, value, SCHEMA_HEADERS), origin)

    def counters(self) -> OutboxCounters:
        """Return what became of the spans of this process so far."""
        return self._current().counters()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait at most so long until everything queued is delivered; returns whether it is."""
        return self._current().flush(timeout_s=timeout_millis / MS_PER_S)

    def shutdown(self) -> None:
        """Deliver what is queued within ``shutdown_timeout_s``, count the rest as dropped; twice is fine."""
        if not self._shut_down:
            self._shut_down = True
            self._current().close(timeout_s=self._shutdown_timeout_s)
