"""Event-log values to traces: ours are decoded, everything else is passed over and counted."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from paritas.errors import RecordError
from paritas.records import GpuSample, StepTime, TokenTrace
from paritas.wire import names
from paritas.wire.agent_spans import AgentHealth, Gap, gap_of, health_of
from paritas.wire.attributes import kernel_of, labels_of, sampling_of, text_of, timings_of, values_of
from paritas.wire.block import Columns, decode_block
from paritas.wire.links import traceparent_in
from paritas.wire.readings import gpu_of, step_of
from paritas.wire.reasons import DecodeProblem
from paritas.wire.roster import Roster, roster_of

__all__ = ["Decoded", "decode"]

LATEST_NS = 2**62  # in the year 2116: int64, in which times are compared and sent, has room for what is added


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """What one value held; every span is in exactly one of the eight.

    Attributes
    ----------
    traces : tuple of TokenTrace
        Segments, in the order of their spans; the columns are read-only.
    foreign_spans : int
        Spans of other programs.
    problems : mapping of DecodeProblem to int
        Spans of ours that could not be read, by reason.
    gaps : tuple of Gap
        What agents lost.
    health : tuple of AgentHealth
        What agents say of themselves.
    steps : tuple of StepTime
        How long training steps took.
    gpus : tuple of GpuSample
        What GPUs told.
    rosters : tuple of Roster
        Who is expected to report.
    """

    traces: tuple[TokenTrace, ...]
    foreign_spans: int
    problems: Mapping[DecodeProblem, int]
    gaps: tuple[Gap, ...] = ()
    health: tuple[AgentHealth, ...] = ()
    steps: tuple[StepTime, ...] = ()
    gpus: tuple[GpuSample, ...] = ()
    rosters: tuple[Roster, ...] = ()


def decode(value: bytes) -> Decoded:
    """Return the traces in a serialized ``ExportTraceServiceRequest``.

    A trace of ours is named ``kernel.score`` and either carries ``paritas.tokens`` or was written
    under our instrumentation scope; so were the agent's own spans, and those of steps, GPUs and rosters.

    Raises
    ------
    RecordError
        Reason ``not_otlp``: the value is no such message at all.

    Examples
    --------
    >>> decode(b"").traces
    ()
    """
    told: dict[str, list[Any]] = {name: [] for name in (names.SPAN_NAME, *_OWN)}
    problems: Counter[DecodeProblem] = Counter()
    foreign_spans = 0
    for span, resource, our_scope in _spans(_parse(value)):
        try:
            found = _read(span, resource, our_scope=our_scope)
        except RecordError as error:
            problems[DecodeProblem(error.reason)] += 1
            continue
        if found is None:
            foreign_spans += 1
        else:
            told[span.name].append(found)
    traces, *own = (tuple(one) for one in told.values())
    return Decoded(traces, foreign_spans, dict(problems), *own)


# What is written under our scope beside traces, in the order of the fields of `Decoded`.
_OWN: Mapping[str, Callable[[Span, Resource], object]] = {
    names.GAP_SPAN: lambda span, _: gap_of(span),
    names.HEALTH_SPAN: health_of,
    names.STEP_SPAN: lambda span, _: step_of(span),
    names.GPU_SPAN: lambda span, _: gpu_of(span),
    names.ROSTER_SPAN: roster_of,
}


def _read(span: Span, resource: Resource, *, our_scope: bool) -> object:
    """Return what a span of ours holds; None if it is not ours, RecordError when it is and is broken."""
    if span.name == names.SPAN_NAME:
        return _trace(span, our_scope=our_scope)
    own = _OWN.get(span.name) if our_scope else None
    return None if own is None else own(span, resource)


def _parse(value: bytes) -> ExportTraceServiceRequest:
    try:
        return ExportTraceServiceRequest.FromString(value)
    except DecodeError as error:
        raise RecordError(
            f"a value of {len(value)} bytes is not an OTLP trace request",
            reason=DecodeProblem.NOT_OTLP,
            hint="this topic may hold only records with encoding otlp_proto",
        ) from error


def _spans(request: ExportTraceServiceRequest) -> Iterator[tuple[Span, Resource, bool]]:
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            our_scope = scope_spans.scope.name == names.SCOPE_NAME
            for span in scope_spans.spans:
                yield span, resource_spans.resource, our_scope


def _trace(span: Span, *, our_scope: bool) -> TokenTrace | None:
    """Return the trace of a span; None if it is not ours, RecordError when it is and is broken."""
    values = values_of(span.attributes)
    if names.TOKENS not in values and not our_scope:
        return None
    tokens = values.get(names.TOKENS)
    if not isinstance(tokens, bytes):
        raise RecordError("paritas.tokens is missing or not bytes", reason=DecodeProblem.NO_TOKENS)
    trace = _build(values, decode_block(tokens), span)
    if bytes.fromhex(trace.trace_id) != span.trace_id:
        raise RecordError("the trace id is not that of the sequence", reason=DecodeProblem.TRACE_ID_MISMATCH)
    return trace


def _build(values: Mapping[str, object], columns: Columns, span: Span) -> TokenTrace:
    return TokenTrace(
        run_id=text_of(values, names.RUN_ID, required=True),
        sequence_id=text_of(values, names.SEQUENCE_ID, required=True),
        kernel=kernel_of(values),
        logprob=columns.logprob,
        token=columns.token,
        status=columns.status,
        group_id=text_of(values, names.GROUP_ID),
        weights_version=text_of(values, names.WEIGHTS_VERSION),
        weights_digest=text_of(values, names.WEIGHTS_DIGEST),
        sampling=sampling_of(values),
        attributes=labels_of(values, names.ATTRIBUTE_PREFIX),
        start=columns.start,
        event_ns=_started_ns(span),
        top=columns.top,
        timings=timings_of(values),
        itl_s=columns.itl_s,
        final=columns.final,
        traceparent=traceparent_in(span.links),
        rank=columns.rank,
    )


def _started_ns(span: Span) -> int:
    """Return when the sequence was started; RecordError on a time that is none."""
    if span.start_time_unix_nano > LATEST_NS:
        raise RecordError("the start of the span is out of range", reason=DecodeProblem.BAD_ATTRIBUTE)
    return span.start_time_unix_nano
