"""From a note to a trace: the pure last step."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paritas.collectors.openai.columns import ZERO_TOKENS, Doubt
from paritas.collectors.prefix_cache import cache_attributes
from paritas.collectors.vllm.note import Note, Source
from paritas.records import Timings, TokenTrace, TopK
from paritas.tokens import TokenHasher, classify

__all__ = ["Ended", "itl_of", "timings_of", "timings_seen", "trace_of", "weights_in"]

LONGEST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Ended:
    """What the front end knows of a sequence when it ends.

    Attributes
    ----------
    kept : int
        Tokens that are in the answer; a stop string may have cut some.
    weights : tuple of str
        Versions of the weights, in order of appearance; empty when not told.
    timings : Timings
    prompt_tokens, cached_tokens : int or None
        Length of the prompt, and how much of it the prefix cache held.
    """

    kept: int
    weights: tuple[str, ...] = ()
    timings: Timings = Timings()
    prompt_tokens: int | None = None
    cached_tokens: int | None = None


def trace_of(note: Note, ended: Ended, source: Source) -> tuple[TokenTrace, Counter[Doubt]]:
    """Return the trace of a sequence and what was odd about it."""
    doubts: Counter[Doubt] = Counter()
    ids = np.frombuffer(note.ids, np.int64)[: ended.kept]
    named, values = note.columns()
    named, values = named[: ended.kept], values[: ended.kept]
    logprob = values[:, 0].copy()
    missing = named[:, 0] != ids
    _doubt(note, named[:, 0], missing, logprob, doubts)
    if len(ended.weights) > 1:
        doubts[Doubt.MIXED_WEIGHTS] += 1
    names, declared = note.identity.names, source.declared
    cached = cache_attributes(ended.cached_tokens, ended.prompt_tokens)
    trace = TokenTrace(
        run_id=names.run_id or declared.run_id,
        sequence_id=note.identity.sequence_id,
        group_id=note.identity.group_id,
        kernel=source.kernel,
        # Both versions in one label: such a sequence must meet no trace of either alone.
        weights_version="+".join(ended.weights) or names.weights_version or source.weights_version,
        weights_digest=source.weights_digest,
        sampling=note.asked.sampling,
        attributes={**declared.attributes, **names.attributes, **cached},
        event_ns=note.event_ns,
        logprob=logprob,
        token=source.hasher.hash(ids),
        status=classify(logprob.astype(np.float64), missing=missing),
        top=_top(note, named, values, source.hasher),
        timings=ended.timings,
        itl_s=itl_of(note.stamps, note.counts, ended.kept),
        traceparent=note.traceparent,
        rank=_rank(note, missing),
    )
    return trace, doubts


def _rank(note: Note, missing: NDArray[np.bool_]) -> NDArray[np.uint32] | None:
    """Ranks as the engine counted them, 0 for a token of which nothing was told; None for none at all."""
    told = np.frombuffer(note.rank, np.int64)[: missing.size].clip(0, 2**32 - 1)
    ranks = np.where(missing, 0, told).astype(np.uint32)
    return ranks if ranks.any() else None


def _doubt(
    note: Note,
    named: NDArray[np.int64],
    missing: NDArray[np.bool_],
    logprob: NDArray[np.float32],
    doubts: Counter[Doubt],
) -> None:
    if note.is_short:
        doubts[Doubt.LENGTH_MISMATCH] += 1
    if missing.any() and (named[missing] >= 0).any():
        doubts[Doubt.ID_MISMATCH] += 1
    if missing.all():
        doubts[Doubt.NO_LOGPROBS] += 1
    elif len(logprob) >= ZERO_TOKENS and not logprob.any() and _is_random(note):
        doubts[Doubt.ALL_ZERO] += 1


def _is_random(note: Note) -> bool:
    sampling = note.asked.sampling
    return sampling.temperature != 0.0 and sampling.top_k != 1


def _top(
    note: Note, named: NDArray[np.int64], values: NDArray[np.float32], hasher: TokenHasher
) -> TopK | None:
    """vLLM's columns after the first are its most likely tokens, whatever was sampled."""
    top = note.asked.top
    if not top:
        return None
    logprob = values[:, 1 : top + 1].copy()
    token = np.where(np.isfinite(logprob), named[:, 1 : top + 1], -1)
    logprob[token < 0] = np.nan
    return TopK(hasher.hash(token), logprob)


def itl_of(stamps: ArrayLike, counts: ArrayLike, kept: int) -> NDArray[np.float32]:
    """Return inter-token latencies, shape (kept,), seconds, from the ends of the engine's steps.

    Tokens of one step come together: the first of them waited for the step, the rest did not.

    Examples
    --------
    >>> itl_of([5.0, 7.0], [1, 3], 4).tolist()
    [nan, 2.0, 0.0, 0.0]
    """
    sizes, ends = np.asarray(counts, np.int64), np.asarray(stamps, np.float64)
    gaps = np.zeros(int(sizes.sum()), np.float32)
    gaps[np.cumsum(sizes[:-1])] = np.diff(ends)
    gaps[:1] = np.nan
    return gaps[:kept]


def timings_of(stats: Any) -> Timings:
    """Read vLLM's `RequestStateStats`; a stamp it has not set is 0.

    Time to first token is counted from arrival and by the wall clock, the others by the clock of the
    engine core.
    """
    queued, scheduled, first, last = (
        getattr(stats, name, 0.0) for name in ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
    )
    return Timings(
        queue_s=_between(queued, scheduled),
        ttft_s=getattr(stats, "first_token_latency", 0.0) or None,
        prefill_s=_between(scheduled, first),
        decode_s=_between(first, last),
    )


def timings_seen(note: Note) -> Timings:
    """Return what the stamps of the steps say where vLLM keeps no statistics, as a library does.

    Steps are stamped in the engine core's process by the machine's monotonic clock; on another
    machine that is another clock, and a time to first token that cannot be is not told.
    """
    if not note.stamps:
        return Timings()
    ttft_s = note.stamps[0] - note.began_s
    return Timings(
        ttft_s=ttft_s if 0.0 <= ttft_s < LONGEST_S else None, decode_s=note.stamps[-1] - note.stamps[0]
    )


def _between(start: float, end: float) -> float | None:
    return end - start if start and end and end >= start else None


def weights_in(starts: Any) -> tuple[str, ...]:
    """Return the versions in vLLM's list of (version, first token); "default" is none.

    Examples
    --------
    >>> weights_in([("default", 0)]), weights_in([("3", 0), ("4", 9), ("3", 12)])
    ((), ('3', '4'))
    """
    names = [str(version) for version, _ in starts or ()]
    return tuple(dict.fromkeys(name for name in names if name not in ("", "default")))
