"""What the agent says of itself, as OTLP spans: gaps in what it delivers, and its own health.

They go to the destination like every other record, through a small spool of their own, so that a
flood of spans cannot crowd out the news that spans were lost.
"""

import hashlib
from collections.abc import Mapping

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from paritas import __version__
from paritas.agent.claim import Lost
from paritas.agent.otlp import SCHEMA_HEADERS
from paritas.wire import WireRecord, names
from paritas.wire.attributes import put

__all__ = ["GAP_SPAN", "HEALTH_SPAN", "gap_record", "health_record"]

GAP_SPAN, HEALTH_SPAN = names.GAP_SPAN, names.HEALTH_SPAN

SHORTEST_NS = 1_000  # backends count microseconds, and warn of a span without length
TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8


def gap_record(agent: str, stream: str, lost: Lost, *, now_ns: int) -> WireRecord:
    """Return the record that says which numbers of a stream are missing, and why.

    The same gap told twice has the same span id.

    Examples
    --------
    >>> from paritas.agent.reasons import DropReason
    >>> record = gap_record("pod-7", "pod-7", Lost(range(3, 9), DropReason.OVERFLOW), now_ns=1)
    >>> record == gap_record("pod-7", "pod-7", Lost(range(3, 9), DropReason.OVERFLOW), now_ns=1)
    True
    """
    told: dict[str, int | str] = {
        names.GAP_STREAM: stream,
        names.GAP_FIRST_SEQ: lost.seqs.start,
        names.GAP_LAST_SEQ: lost.seqs.stop - 1,
        names.GAP_REASON: str(lost.reason),
    }
    return _record(agent, GAP_SPAN, told, now_ns=now_ns, identity=repr(sorted(told.items())))


def health_record(agent: str, counts: Mapping[str, int | str], *, now_ns: int) -> WireRecord:
    """Return the record of the agent's counters at one time."""
    told = {names.AGENT_PREFIX + name: value for name, value in counts.items()}
    return _record(agent, HEALTH_SPAN, told, now_ns=now_ns, identity=str(now_ns))


def _record(
    agent: str, name: str, told: Mapping[str, int | str], *, now_ns: int, identity: str
) -> WireRecord:
    trace_id = hashlib.blake2b(agent.encode(), digest_size=TRACE_ID_BYTES, person=b"paritas.agent").digest()
    request = ExportTraceServiceRequest()
    source = request.resource_spans.add()
    put(source.resource.attributes, {"service.name": "paritas-agent", names.INSTANCE_ID: agent})
    scope = source.scope_spans.add()
    scope.scope.name, scope.scope.version = names.SCOPE_NAME, __version__
    span = scope.spans.add(
        name=name,
        kind=Span.SPAN_KIND_INTERNAL,
        trace_id=trace_id,
        span_id=hashlib.blake2b(f"{agent}\n{name}\n{identity}".encode(), digest_size=SPAN_ID_BYTES).digest(),
        start_time_unix_nano=now_ns,
        end_time_unix_nano=now_ns + SHORTEST_NS,
        status=Status(code=Status.STATUS_CODE_ERROR if name == GAP_SPAN else Status.STATUS_CODE_OK),
    )
    put(span.attributes, told)
    return WireRecord(trace_id.hex().encode(), request.SerializeToString(), SCHEMA_HEADERS)
