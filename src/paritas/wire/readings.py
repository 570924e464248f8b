"""Spans beside the traces: one a training step, one a GPU and sampling period; there and back."""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from paritas import __version__
from paritas.errors import RecordError
from paritas.records import GpuReading, GpuSample, StepTime
from paritas.wire import names
from paritas.wire.attributes import AttributeValue, labels_of, put, read, text_of, values_of
from paritas.wire.reasons import DecodeProblem, EncodeProblem
from paritas.wire.records import RECORD_LIMIT_BYTES, WireRecord

__all__ = ["encode_reading", "gpu_of", "step_of"]

NS_PER_S = 1_000_000_000
HOUR_NS = 3600 * NS_PER_S
SHORTEST_NS = 1_000  # backends count microseconds, and warn of a span without length
LONGEST_S = 31_557_600.0
SCHEMA_HEADER = ((names.HEADER_SCHEMA, b"%d" % names.SCHEMA),)
_GPU_TYPES: Mapping[str, type[str] | type[int] | type[float] | type[bool]] = {
    **dict.fromkeys(names.GPU_FIELDS, int),
    **dict.fromkeys(("uuid", "name", "driver", "compute_capability"), str),
    **dict.fromkeys(("mig", "ecc"), bool),
    **dict.fromkeys(("power_w", "utilization"), float),
}


def encode_reading(reading: StepTime | GpuSample, *, resource: Mapping[str, str]) -> WireRecord:
    """Return the record of a step or of a GPU.

    Steps of one run and weights version share a trace, so the ranks of a step stand side by side;
    readings of one GPU share one for an hour.  The same reading sent twice has the same span id.

    Parameters
    ----------
    reading : StepTime or GpuSample
    resource : mapping of str to str
        OpenTelemetry resource attributes of this process.

    Raises
    ------
    RecordError
        Reason ``unencodable`` or ``too_large``.

    Examples
    --------
    >>> record = encode_reading(StepTime("run", 5, 0.25, weights_version="7"), resource={})
    >>> record.key == encode_reading(StepTime("run", 9, 0.5, weights_version="7"), resource={}).key
    True
    """
    try:
        record = _record(reading, resource)
    except (TypeError, ValueError) as error:  # what protobuf and str.encode raise
        raise RecordError(
            f"a {type(reading).__name__} cannot be written as OTLP: {error}",
            reason=EncodeProblem.UNENCODABLE,
            hint="text must be valid Unicode, integers must fit 64 bits",
        ) from error
    if len(record.value) > RECORD_LIMIT_BYTES:
        raise RecordError(
            f"a {type(reading).__name__} exceeds the record limit",
            reason=EncodeProblem.TOO_LARGE,
            hint="shorten the attributes",
        )
    return record


def _record(reading: StepTime | GpuSample, resource: Mapping[str, str]) -> WireRecord:
    name, own, together = _step(reading) if isinstance(reading, StepTime) else _gpu(reading)
    request = ExportTraceServiceRequest()
    source = request.resource_spans.add()
    put(source.resource.attributes, resource)
    scope = source.scope_spans.add()
    scope.scope.name, scope.scope.version = names.SCOPE_NAME, __version__
    trace_id = _digest(16, name, *together)
    span = scope.spans.add(
        name=name,
        kind=Span.SPAN_KIND_INTERNAL,
        trace_id=trace_id,
        span_id=_digest(8, name, *together, resource.get(names.INSTANCE_ID, ""), str(reading.event_ns)),
        start_time_unix_nano=reading.event_ns,
        end_time_unix_nano=reading.event_ns + _length_ns(reading),
    )
    labels = {names.ATTRIBUTE_PREFIX + label: value for label, value in reading.attributes.items()}
    put(span.attributes, {names.RUN_ID: reading.run_id, **_told(own), **labels})
    return WireRecord(trace_id.hex().encode(), request.SerializeToString(), SCHEMA_HEADER)


def _step(step: StepTime) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    own = {name: getattr(step, field) for field, name in names.STEP_FIELDS.items()}
    # Without a version every step is a trace of its own.
    return names.STEP_SPAN, own, (step.run_id, step.weights_version or f"at {step.event_ns}")


def _gpu(sample: GpuSample) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    own = {name: getattr(sample.gpu, field) for field, name in names.GPU_FIELDS.items()}
    return names.GPU_SPAN, own, (sample.run_id, sample.gpu.uuid, str(sample.event_ns // HOUR_NS))


def _told(own: Mapping[str, Any]) -> dict[str, AttributeValue]:
    return {name: value for name, value in own.items() if value is not None and value != ""}


def _digest(size: int, *parts: str) -> bytes:
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.blake2b(text.encode(), digest_size=size, person=b"paritas.reading").digest()


def _length_ns(reading: StepTime | GpuSample) -> int:
    """A step lasts as long as its host waited; a reading is a moment."""
    if not isinstance(reading, StepTime) or not math.isfinite(reading.host_s) or reading.host_s <= 0:
        return SHORTEST_NS
    return max(SHORTEST_NS, round(min(reading.host_s, LONGEST_S) * NS_PER_S))


def step_of(span: Span) -> StepTime:
    """Return the step a span tells of; RecordError with a `DecodeProblem` when it is broken."""
    values = values_of(span.attributes)
    host_s = read(values, names.STEP_FIELDS["host_s"], kind=float)
    if host_s is None:
        raise RecordError(f"{names.STEP_FIELDS['host_s']} is missing", reason=DecodeProblem.MISSING_ATTRIBUTE)
    return StepTime(
        run_id=text_of(values, names.RUN_ID, required=True),
        event_ns=span.start_time_unix_nano,
        host_s=host_s,
        device_s=read(values, names.STEP_FIELDS["device_s"], kind=float),
        weights_version=text_of(values, names.WEIGHTS_VERSION),
        attributes=labels_of(values, names.ATTRIBUTE_PREFIX),
    )


def gpu_of(span: Span) -> GpuSample:
    """Return the GPU a span tells of; RecordError with a `DecodeProblem` when it is broken."""
    values = values_of(span.attributes)
    text_of(values, names.GPU_FIELDS["uuid"], required=True)
    told: dict[str, Any] = {
        field: read(values, name, kind=_GPU_TYPES[field]) for field, name in names.GPU_FIELDS.items()
    }
    texts = {field: told[field] or "" for field, kind in _GPU_TYPES.items() if kind is str}
    return GpuSample(
        run_id=text_of(values, names.RUN_ID, required=True),
        event_ns=span.start_time_unix_nano,
        gpu=GpuReading(**{**told, **texts}),
        attributes=labels_of(values, names.ATTRIBUTE_PREFIX),
    )
