"""OTLP trace requests → records, one a trace; what can pass unread is not read.

An ``ExportTraceServiceRequest`` is ``resource_spans = 1 { resource = 1, scope_spans = 2 { scope = 1
{ name = 1 }, spans = 2 { trace_id = 1 … } } }``, every one of them length-delimited.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from paritas.errors import PermanentError
from paritas.wire import RECORD_LIMIT_BYTES, WireRecord, names

__all__ = ["SCHEMA_HEADERS", "Split", "own_trace_id", "split"]

SCHEMA_HEADERS = ((names.HEADER_SCHEMA, b"%d" % names.SCHEMA),)
TRACE_ID_BYTES = 16
FIRST, SECOND, THIRD = 0x0A, 0x12, 0x1A  # tags of the length-delimited fields 1, 2 and 3
SCOPE = names.SCOPE_NAME.encode()
SCOPE_START = bytes((FIRST, len(SCOPE))) + SCOPE


@dataclass(frozen=True, slots=True)
class Split:
    """What one request gave.

    Attributes
    ----------
    records : tuple of WireRecord
        One a trace, in order of appearance; several where one would exceed the record limit.
    too_large : int
        Spans that no record holds.
    bad_ids : int
        Spans whose trace id has not 16 bytes; a reader may choke on them.
    """

    records: tuple[WireRecord, ...]
    too_large: int = 0
    bad_ids: int = 0


def split(body: bytes, *, limit_bytes: int = RECORD_LIMIT_BYTES) -> Split:
    """Return the records of a request.

    A request about one trace passes byte for byte; one of ours without even being decoded.

    Raises
    ------
    PermanentError
        The bytes are no such request.

    Examples
    --------
    >>> split(b"")
    Split(records=(), too_large=0, bad_ids=0)
    """
    if len(body) <= limit_bytes and (trace_id := own_trace_id(body)) is not None:
        return Split((_record(trace_id, body),))
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise PermanentError("the body is not an ExportTraceServiceRequest") from error
    return _split(request, body, limit_bytes)


def own_trace_id(body: bytes) -> bytes | None:
    """Return the trace id of a request that holds spans of our scope and of one trace only; else None.

    Only the frame is walked: the inside of a span is never looked at beyond its first field.
    """
    try:
        found = set(_own_trace_ids(body))
    except (IndexError, ValueError):
        return None
    return found.pop() if len(found) == 1 else None


def _own_trace_ids(body: bytes) -> Iterator[bytes]:
    """Yield the trace id of each span; ValueError or IndexError if anything is not as ours is."""
    for tag, start, end in _fields(body, 0, len(body)):
        _expect(tag == FIRST)
        for inner_tag, inner_start, inner_end in _fields(body, start, end):
            if inner_tag == SECOND:
                yield from _scope_trace_ids(body, inner_start, inner_end)


def _scope_trace_ids(body: bytes, start: int, end: int) -> Iterator[bytes]:
    is_ours = False
    for tag, field_start, field_end in _fields(body, start, end):
        if tag == FIRST:
            is_ours = body.startswith(SCOPE_START, field_start, field_end)
        elif tag == SECOND:
            _expect(is_ours and body[field_start] == FIRST and body[field_start + 1] == TRACE_ID_BYTES)
            _expect(field_start + 2 + TRACE_ID_BYTES <= field_end)
            yield body[field_start + 2 : field_start + 2 + TRACE_ID_BYTES]


def _fields(body: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (tag, start, end) of the length-delimited fields 1 to 3; ValueError on anything else."""
    while at < end:
        tag = body[at]
        _expect(tag in (FIRST, SECOND, THIRD))
        size, shift = 0, 0
        while True:
            at += 1
            size |= (body[at] & 0x7F) << shift
            shift += 7
            if body[at] < 0x80 or shift > 35:
                break
        start, at = at + 1, at + 1 + size
        _expect(at <= end)
        yield tag, start, at


def _expect(truth: bool) -> None:
    if not truth:
        raise ValueError


def _record(trace_id: bytes, value: bytes) -> WireRecord:
    return WireRecord(trace_id.hex().encode(), value, SCHEMA_HEADERS)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A span with the two messages around it."""

    source: ResourceSpans
    scope: ScopeSpans
    span: Span


def _split(request: ExportTraceServiceRequest, body: bytes, limit_bytes: int) -> Split:
    traces: dict[bytes, list[_Placed]] = {}
    for source in request.resource_spans:
        for scope in source.scope_spans:
            for span in scope.spans:
                traces.setdefault(span.trace_id, []).append(_Placed(source, scope, span))
    bad_ids = sum(len(placed) for trace_id, placed in traces.items() if len(trace_id) != TRACE_ID_BYTES)
    if len(traces) == 1 and not bad_ids and len(body) <= limit_bytes:
        return Split((_record(next(iter(traces)), body),))
    values = [
        (trace_id, _request_of(part), len(part))
        for trace_id, placed in traces.items()
        if len(trace_id) == TRACE_ID_BYTES
        for part in _parts(placed, limit_bytes)
    ]
    fitting = tuple(_record(trace_id, value) for trace_id, value, _ in values if len(value) <= limit_bytes)
    too_large = sum(spans for _, value, spans in values if len(value) > limit_bytes)
    return Split(fitting, too_large, bad_ids)


def _parts(placed: list[_Placed], limit_bytes: int) -> Iterator[list[_Placed]]:
    """Yield runs of spans that surely fit one record together; a span that may not fit is alone."""
    part: list[_Placed] = []
    room_bytes = limit_bytes
    for one in placed:
        # The span with all that surrounds it, as if every span had its own resource and scope.
        size_bytes = one.span.ByteSize() + one.source.resource.ByteSize() + one.scope.scope.ByteSize() + 256
        if part and size_bytes > room_bytes:
            yield part
            part, room_bytes = [], limit_bytes
        part.append(one)
        room_bytes -= size_bytes
    if part:
        yield part


def _request_of(placed: list[_Placed]) -> bytes:
    """The spans in a request of their own; neighbours of one scope stay in one."""
    request = ExportTraceServiceRequest()
    last: _Placed | None = None
    for one in placed:
        if last is None or one.source is not last.source:
            source = request.resource_spans.add(
                resource=one.source.resource if one.source.HasField("resource") else None,
                schema_url=one.source.schema_url,
            )
        if last is None or one.scope is not last.scope:
            scope = source.scope_spans.add(
                scope=one.scope.scope if one.scope.HasField("scope") else None,
                schema_url=one.scope.schema_url,
            )
        scope.spans.append(one.span)
        last = one
    return request.SerializeToString()
