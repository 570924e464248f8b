"""Traces to event-log records: one span a segment, one record a span."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from paritas import __version__
from paritas.errors import RecordError
from paritas.records import Timings, TokenTrace, TopK
from paritas.wire import names
from paritas.wire.attributes import put, segment_attributes, sequence_attributes
from paritas.wire.block import bytes_per_token, check_columns, encode_block
from paritas.wire.links import links_of
from paritas.wire.reasons import EncodeProblem
from paritas.wire.records import RECORD_LIMIT_BYTES, WireRecord

__all__ = ["encode", "segments_of", "span_id_of"]

# Room for what one segment adds to the shared attributes: 13 small ones, ids, times and framing.
SEGMENT_ROOM_BYTES = 1024
NS_PER_S = 1_000_000_000
SCHEMA_HEADER = ((names.HEADER_SCHEMA, b"%d" % names.SCHEMA),)


def encode(
    traces: Sequence[TokenTrace], *, resource: Mapping[str, str], limit_bytes: int = RECORD_LIMIT_BYTES
) -> list[WireRecord]:
    """Return the records of the traces, in order; long sequences give several segments.

    Parameters
    ----------
    traces : sequence of TokenTrace
        To isolate a bad trace, pass one at a time: the first bad one raises.
    resource : mapping of str to str
        OpenTelemetry resource attributes of this process (``service.name``, ``host.name`` …).
    limit_bytes : int
        Most bytes of one record's value.

    Raises
    ------
    RecordError
        With a reason of `EncodeProblem`.

    Examples
    --------
    >>> import numpy as np
    >>> from paritas.records import KernelIdentity, Role
    >>> trace = TokenTrace("run", "s", KernelIdentity(Role.TRAIN), np.array([-0.5], np.float32),
    ...                    np.array([7], np.uint64), np.array([0], np.uint8))
    >>> [record] = encode([trace], resource={"service.name": "trainer"})
    >>> record.key == trace.trace_id.encode(), len(record.value) < 600
    (True, True)
    """
    return [
        record
        for trace in traces
        for record in _encode_trace(trace, resource=resource, limit_bytes=limit_bytes)
    ]


def _encode_trace(
    trace: TokenTrace, *, resource: Mapping[str, str], limit_bytes: int
) -> Iterator[WireRecord]:
    check_columns(trace)
    try:
        shared = _request(trace, resource)
        for segment in segments_of(trace, limit_bytes=limit_bytes - shared.ByteSize()):
            yield WireRecord(trace.trace_id.encode(), _fill(shared, segment), SCHEMA_HEADER)
    except (TypeError, ValueError) as error:  # what protobuf and str.encode raise
        raise RecordError(
            f"sequence {trace.sequence_id!r}: cannot be written as OTLP: {error}",
            reason=EncodeProblem.UNENCODABLE,
            hint="text must be valid Unicode, integers must fit 64 bits, start must fit 32",
        ) from error


def _request(trace: TokenTrace, resource: Mapping[str, str]) -> ExportTraceServiceRequest:
    """Return the request that every segment of the trace starts from: all but what a segment adds."""
    request = ExportTraceServiceRequest()
    source = request.resource_spans.add()
    put(source.resource.attributes, resource)
    scope = source.scope_spans.add()
    scope.scope.name, scope.scope.version = names.SCOPE_NAME, __version__
    span = scope.spans.add(
        name=names.SPAN_NAME,
        kind=Span.SPAN_KIND_INTERNAL,
        trace_id=bytes.fromhex(trace.trace_id),
        start_time_unix_nano=trace.event_ns,
        end_time_unix_nano=trace.event_ns + _duration_ns(trace.timings),
        links=links_of(trace.traceparent),
    )
    put(span.attributes, sequence_attributes(trace))
    return request


def _fill(shared: ExportTraceServiceRequest, segment: TokenTrace) -> bytes:
    request = ExportTraceServiceRequest()
    request.CopyFrom(shared)
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.span_id = span_id_of(segment)
    put(span.attributes, segment_attributes(segment))
    put(span.attributes, {names.TOKENS: encode_block(segment)})
    return request.SerializeToString()


def segments_of(trace: TokenTrace, *, limit_bytes: int) -> Iterator[TokenTrace]:
    """Cut a trace into segments whose columns take at most `limit_bytes`, `SEGMENT_ROOM_BYTES` included.

    Positions go on from segment to segment; only the last can be final.  A trace that fits is
    yielded as it is, an empty one too.

    Raises
    ------
    RecordError
        Reason ``too_large``: not even one token fits.
    """
    at_once = (limit_bytes - SEGMENT_ROOM_BYTES) // bytes_per_token(trace)
    if at_once < 1:
        raise RecordError(
            f"sequence {trace.sequence_id!r}: attributes and one token exceed the record limit",
            reason=EncodeProblem.TOO_LARGE,
            hint="shorten the attributes, or report a smaller top-k",
        )
    if len(trace) <= at_once:
        yield trace
        return
    for first in range(0, len(trace), at_once):
        yield _segment(trace, first, min(first + at_once, len(trace)))


def _segment(trace: TokenTrace, first: int, end: int) -> TokenTrace:
    rows = slice(first, end)
    return replace(
        trace,
        logprob=trace.logprob[rows],
        token=trace.token[rows],
        status=trace.status[rows],
        itl_s=None if trace.itl_s is None else trace.itl_s[rows],
        rank=None if trace.rank is None else trace.rank[rows],
        top=None if trace.top is None else TopK(trace.top.token[rows], trace.top.logprob[rows]),
        start=trace.start + first,
        final=trace.final and end == len(trace),
    )


def span_id_of(trace: TokenTrace) -> bytes:
    """Return BLAKE2b-64 over run, sequence, role, weights version and start.

    The same segment sent twice has the same span id, so that backends and readers can drop copies.
    """
    parts = (trace.run_id, trace.sequence_id, trace.kernel.role, trace.weights_version, str(trace.start))
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def _duration_ns(timings: Timings) -> int:
    """Return the length of the request in ns as far as it was reported; 1 when it was not."""
    queue, ttft, prefill, decode = (_seconds(getattr(timings, field)) for field in names.TIMINGS)
    # Jaeger puts a warning on a span that ends when it starts.
    return max(1, round((max(ttft, queue + prefill) + decode) * NS_PER_S))


def _seconds(reported: float | None) -> float:
    """Return a duration one can add up: at most a year, 0 for what is missing or nonsense."""
    year_s = 31_557_600.0
    return min(reported, year_s) if reported is not None and math.isfinite(reported) and reported > 0 else 0.0
