"""The small attributes of a span: from the fields of a trace, and back."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from paritas.errors import RecordError
from paritas.records import KernelIdentity, LogprobSemantics, Role, Sampling, Timings, TokenStatus, TokenTrace
from paritas.wire import names
from paritas.wire.reasons import DecodeProblem

__all__ = [
    "AttributeValue",
    "kernel_of",
    "labels_of",
    "put",
    "read",
    "sampling_of",
    "segment_attributes",
    "sequence_attributes",
    "text_of",
    "timings_of",
    "values_of",
]

AttributeValue = str | int | float | bool | bytes
Values = Mapping[str, object]
T = TypeVar("T")


def sequence_attributes(trace: TokenTrace) -> dict[str, AttributeValue]:
    """Return what every segment of a sequence repeats; what was not reported is left out."""
    identity = {
        names.RUN_ID: trace.run_id,
        names.SEQUENCE_ID: trace.sequence_id,
        names.ROLE: str(trace.kernel.role),
        names.LOGPROB_SEMANTICS: str(trace.sampling.semantics),
    }
    optional = {
        names.GROUP_ID: trace.group_id,
        names.WEIGHTS_VERSION: trace.weights_version,
        names.WEIGHTS_DIGEST: trace.weights_digest,
        **{name: getattr(trace.sampling, field) for field, name in names.SAMPLING.items()},
        **{name: getattr(trace.timings, field) for field, name in names.TIMINGS.items()},
    }
    if trace.sampling.top_k is not None:
        optional[names.SAMPLING["top_k"]] = float(trace.sampling.top_k)  # a double in the GenAI conventions
    told = {name: value for name, value in optional.items() if value is not None and value != ""}
    labels = {names.ATTRIBUTE_PREFIX + name: value for name, value in trace.attributes.items()}
    return {**identity, **told, **_kernel_attributes(trace.kernel), **labels}


def _kernel_attributes(kernel: KernelIdentity) -> dict[str, AttributeValue]:
    known = {name: getattr(kernel, field) for field, name in names.KERNEL_FIELDS.items()}
    told = {name: value for name, value in known.items() if value is not None and value != ""}
    extra = {names.KERNEL_EXTRA_PREFIX + name: value for name, value in kernel.extra.items()}
    return {names.KERNEL_DIGEST: kernel.digest, **told, **extra}


def segment_attributes(segment: TokenTrace) -> dict[str, AttributeValue]:
    """Return what a person wants to read of one segment without opening its columns.

    Mean and minimum (nats) are taken over the tokens whose status is valid; they are left out when
    there is none, or when a value marked valid is not finite.
    """
    counts = {names.STATUS_COUNTS[status]: count for status, count in segment.counts().items() if count}
    valid = segment.logprob[segment.status == TokenStatus.VALID]
    shown: dict[str, AttributeValue] = {
        names.SEGMENT_START: segment.start,
        names.SEGMENT_FINAL: segment.final,
        names.TOTAL_COUNT: len(segment),
        **counts,
    }
    if len(valid) and np.isfinite(valid).all():
        shown[names.LOGPROB_MEAN_NATS] = float(valid.mean(dtype=np.float64))
        shown[names.LOGPROB_MIN_NATS] = float(valid.min())
    return shown


def put(target: RepeatedCompositeFieldContainer[KeyValue], attributes: Mapping[str, AttributeValue]) -> None:
    """Append the attributes to a message's list; TypeError or ValueError if OTLP cannot hold one."""
    add = target.add  # in place: building messages and copying them in takes twice as long
    for name, value in attributes.items():
        setattr(add(key=name).value, _field_of(value), value)


def _field_of(value: AttributeValue) -> str:
    """Return which field of ``AnyValue`` holds a value; numpy scalars count as what they are."""
    match value:
        case str():
            return "string_value"
        case bool():
            return "bool_value"
        case int() | np.integer():
            return "int_value"
        case float() | np.floating():
            return "double_value"
        case bytes():
            return "bytes_value"
    raise TypeError(f"an attribute is a {type(value).__name__}")


def values_of(attributes: Iterable[KeyValue]) -> dict[str, object]:
    """Return name to Python value; arrays and maps stay messages, as nothing of ours is one."""
    found: dict[str, object] = {}
    for attribute in attributes:
        kind = attribute.value.WhichOneof("value")
        if kind is not None:
            found[attribute.key] = getattr(attribute.value, kind)
    return found


def read(values: Values, name: str, *, kind: type[T]) -> T | None:
    """Return the value of that type, or None if it is not there; RecordError on another type."""
    value = values.get(name)
    if kind is float and type(value) is int:
        value = float(value)  # some exporters write whole doubles as integers
    if value is not None and type(value) is not kind:
        raise _bad(name, f"is a {type(value).__name__}, expected {kind.__name__}")
    return value


def text_of(values: Values, name: str, *, required: bool = False) -> str:
    """Return a text attribute, empty when it is not there; RecordError when it must be."""
    value = read(values, name, kind=str)
    if value is None and required:
        raise RecordError(f"{name} is missing", reason=DecodeProblem.MISSING_ATTRIBUTE)
    return value or ""


def kernel_of(values: Values) -> KernelIdentity:
    """Return the identity the attributes describe; RecordError on a wrong type or an unknown role."""
    role = _member(Role, names.ROLE, text_of(values, names.ROLE, required=True))
    fields: dict[str, Any] = {
        field: read(values, name, kind=_KERNEL_TYPES[field]) for field, name in names.KERNEL_FIELDS.items()
    }
    told = {field: value for field, value in fields.items() if value is not None}
    return KernelIdentity(role, extra=labels_of(values, names.KERNEL_EXTRA_PREFIX), **told)


def sampling_of(values: Values) -> Sampling:
    """Return how tokens were drawn; RecordError on a wrong type, a fractional top-k, unknown semantics."""
    top_k_name = names.SAMPLING["top_k"]
    top_k = read(values, top_k_name, kind=float)
    if top_k is not None and not top_k.is_integer():
        raise _bad(top_k_name, f"is {top_k}, expected a whole number")
    semantics = text_of(values, names.LOGPROB_SEMANTICS) or LogprobSemantics.UNKNOWN
    return Sampling(
        temperature=read(values, names.SAMPLING["temperature"], kind=float),
        top_p=read(values, names.SAMPLING["top_p"], kind=float),
        top_k=None if top_k is None else int(top_k),
        min_p=read(values, names.SAMPLING["min_p"], kind=float),
        processors=text_of(values, names.SAMPLING["processors"]),
        semantics=_member(LogprobSemantics, names.LOGPROB_SEMANTICS, semantics),
    )


def timings_of(values: Values) -> Timings:
    """Return the reported durations in seconds; RecordError on a wrong type."""
    return Timings(**{field: read(values, name, kind=float) for field, name in names.TIMINGS.items()})


def labels_of(values: Values, prefix: str) -> dict[str, str]:
    """Return the text attributes under `prefix`, without it."""
    return {name.removeprefix(prefix): text_of(values, name) for name in values if name.startswith(prefix)}


_KERNEL_TYPES: Mapping[str, type[str] | type[int] | type[bool]] = {
    **dict.fromkeys(names.KERNEL_FIELDS, str),
    **dict.fromkeys(("tp", "pp", "ep"), int),
    **dict.fromkeys(("batch_invariant", "cuda_graphs", "prefix_caching", "chunked_prefill"), bool),
}

E = TypeVar("E", Role, LogprobSemantics)


def _member(kind: type[E], name: str, value: str) -> E:
    try:
        return kind(value)
    except ValueError as error:
        raise _bad(name, f"is {value!r}, expected one of {', '.join(kind)}") from error


def _bad(name: str, what: str) -> RecordError:
    return RecordError(f"{name} {what}", reason=DecodeProblem.BAD_ATTRIBUTE)
