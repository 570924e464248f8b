"""The fields of a recorded line beside its columns: who, how, when and how fast."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.dumps.fields import (
    Row,
    check_lengths,
    clean_text,
    flag,
    floats,
    integer,
    number,
    text,
    wrong_type,
)
from paritas.collectors.dumps.problem import LineError, ProblemReason
from paritas.exact import ExactDrift
from paritas.records import KernelIdentity, LogprobSemantics, Role, Sampling, Timings

__all__ = ["EXACT_COLUMNS", "RESERVED", "event_ns_of", "exact_of", "kernel_of", "sampling_of", "timings_of"]

KERNEL_TEXTS = (
    "engine",
    "engine_version",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "attention_backend",
    "lm_head_dtype",
    "speculative",
    "gpu",
)
KERNEL_SIZES = ("tp", "pp", "ep")
KERNEL_FLAGS = ("batch_invariant", "cuda_graphs", "prefix_caching", "chunked_prefill")
# What recorders say about the program beyond the named fields.
KERNEL_EXTRAS = ("kernel", "device", "torch_version", "fp8_mode", "int4")

# Fields with a meaning of their own; every other short scalar becomes a label.
RESERVED = frozenset(
    {
        *KERNEL_TEXTS,
        *KERNEL_SIZES,
        *KERNEL_FLAGS,
        *KERNEL_EXTRAS,
        "extra",
        *("sample_id", "group_id", "role", "weights_version", "weights_digest"),
        *("temperature", "top_p", "top_k", "min_p", "processors", "logprobs_mode"),
        *("event_ns", "timestamp", "metrics", "advantages", "rewards"),
        *("token_ids", "prompt_token_ids", "logprobs", "top_logprobs", "exact"),
    }
)

SEMANTICS: Mapping[str, LogprobSemantics] = {
    "raw_logprobs": LogprobSemantics.RAW,
    "processed_logprobs": LogprobSemantics.PROCESSED,
    **{semantics.value: semantics for semantics in LogprobSemantics},
}
# vLLM can be asked for logits instead; they look like log-probabilities where negative.
LOGITS = frozenset({"raw_logits", "processed_logits"})

# Names in `exact` of the columns of `ExactDrift`, in its order.
EXACT_COLUMNS = ("tv", "oscillation", "flip", "confidence_gap")

NS_PER_S = 1_000_000_000
LATEST_NS = (1 << 63) - 1


def kernel_of(row: Row, role: Role) -> KernelIdentity:
    """Return which program the line says it comes from; what it does not say stays empty."""
    told: dict[str, Any] = {name: text(row, name) for name in KERNEL_TEXTS}
    told |= {name: integer(row, name) for name in KERNEL_SIZES}
    told |= {name: flag(row, name) for name in KERNEL_FLAGS}
    extra = _extra(row) | {name: value for name in KERNEL_EXTRAS if (value := text(row, name))}
    return KernelIdentity(role, extra=extra, **told)


def _extra(row: Row) -> dict[str, str]:
    """Return what ``extra`` tells beyond every named field: an object of texts."""
    told = row.get("extra")
    if told is None:
        return {}
    if not isinstance(told, dict):
        raise wrong_type("extra", told, "an object")
    return {clean_text("a field name", str(name)): text(told, name) for name in told}


def sampling_of(row: Row, declared: LogprobSemantics) -> Sampling:
    """Return how the tokens were drawn; `declared` is the law where the line names none.

    Raises
    ------
    LineError
        NOT_LOGPROBS when the line says that its numbers are logits.
    """
    return Sampling(
        temperature=number(row, "temperature"),
        top_p=number(row, "top_p"),
        top_k=integer(row, "top_k"),
        min_p=number(row, "min_p"),
        processors=text(row, "processors"),
        semantics=semantics_of(text(row, "logprobs_mode"), declared),
    )


def semantics_of(mode: str, declared: LogprobSemantics) -> LogprobSemantics:
    """Return the law that ``logprobs_mode`` names."""
    if mode in LOGITS:
        raise LineError(
            ProblemReason.NOT_LOGPROBS,
            f"'logprobs_mode' is {mode}: these are logits",
            hint="record with logprobs_mode processed_logprobs or raw_logprobs",
        )
    return SEMANTICS.get(mode, LogprobSemantics.UNKNOWN) if mode else declared


def event_ns_of(row: Row, otherwise: int) -> int:
    """Return when the sequence started, Unix ns.

    ``event_ns`` (integer, ns), else ``timestamp`` (seconds as a number, or ISO 8601 with an
    offset), else `otherwise`.  ``metrics.arrival_time`` is not used: only the serving side
    has it, and both files of a pair must give a sequence the same time.
    """
    exact = integer(row, "event_ns")
    if exact is None:
        stamp = row.get("timestamp")
        exact = otherwise if stamp is None else ns_of_stamp(row, stamp)
    if not 0 <= exact <= LATEST_NS:
        raise LineError(
            ProblemReason.BAD_VALUE, "the time of the line is out of range", hint="Unix time is meant"
        )
    return exact


def ns_of_stamp(row: Row, stamp: object) -> int:
    """Return ``timestamp`` in Unix ns."""
    if not isinstance(stamp, str):
        told_ns = (number(row, "timestamp") or 0.0) * NS_PER_S
        return round(max(-1.0, min(told_ns, 2.0 * LATEST_NS)))  # infinity is no integer
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        message = "'timestamp' is no ISO 8601 time with an offset"
        raise LineError(ProblemReason.BAD_VALUE, message, hint="such as 2026-11-27T12:00:00+00:00")
    return round(moment.timestamp() * NS_PER_S)


def timings_of(row: Row) -> Timings:
    """Return durations from vLLM's request metrics.

    The ``*_ts`` readings are of the engine's monotonic clock and are subtracted from each
    other only; ``first_token_latency`` was measured from the arrival at the front end.
    """
    metrics = row.get("metrics")
    if metrics is None:
        return Timings()
    if not isinstance(metrics, dict):
        raise wrong_type("metrics", metrics, "an object")
    return Timings(
        queue_s=between(metrics, "queued_ts", "scheduled_ts"),
        ttft_s=positive(metrics, "first_token_latency"),
        prefill_s=between(metrics, "scheduled_ts", "first_token_ts"),
        decode_s=between(metrics, "first_token_ts", "last_token_ts"),
    )


def exact_of(row: Row, n: int) -> ExactDrift | None:
    """Return the comparison of whole distributions, if the line holds one: four columns of numbers."""
    told = row.get("exact")
    if told is None:
        return None
    if not isinstance(told, dict):
        raise wrong_type("exact", told, "an object")
    columns = {name: floats(f"exact.{name}", told.get(name))[0] for name in EXACT_COLUMNS}
    check_lengths({"token_ids": n, **{f"exact.{name}": column.size for name, column in columns.items()}})
    return ExactDrift(*map(_float32, columns.values()))


def _float32(column: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round a column; what float32 cannot hold becomes infinite, without a word of numpy's."""
    with np.errstate(over="ignore"):
        return column.astype(np.float32)


def between(metrics: Row, start: str, end: str) -> float | None:
    """Return a difference of two readings, s; None where one was not taken (0) or they run backwards."""
    first, last = positive(metrics, start), positive(metrics, end)
    return last - first if first is not None and last is not None and last >= first else None


def positive(metrics: Row, name: str) -> float | None:
    """Return a number above zero; the engine leaves 0.0 where it measured nothing."""
    value = number(metrics, name)
    return value if value is not None and value > 0 else None
