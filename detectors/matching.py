"""Matching: two whole views of one sequence, compared position by position.

Pure functions of traces; a difference is named by the first thing that makes the rest meaningless.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from paritas.contracts.model import Compare
from paritas.detectors.pairs import PairedTrace, PairOutcome, pair_columns
from paritas.detectors.topk import top_columns
from paritas.exact import join_drifts
from paritas.records import LogprobSemantics, PairReason, Sampling, Timings, TokenTrace, TopK

__all__ = ["join_segments", "lost", "lost_views", "match", "semantics_agree", "weights_lag"]

LARGEST_LAG = 2**53  # exact as a float; what is further apart counts no versions


def join_segments(parts: Mapping[int, TokenTrace]) -> TokenTrace | None:
    """Join the segments of one kernel's view; None while any part is missing.

    Segments are contiguous from position 0 and the last one is `final`.
    """
    if not parts:
        return None
    ordered = [parts[start] for start in sorted(parts)]
    ends = np.cumsum([len(t) for t in ordered])
    starts = [t.start for t in ordered]
    if starts != [0, *ends[:-1].tolist()] or not ordered[-1].final:
        return None
    return ordered[0] if len(ordered) == 1 else _joined(ordered)


def _joined(parts: Sequence[TokenTrace]) -> TokenTrace:
    first = parts[0]
    tops = [t.top for t in parts if t.top is not None]
    itls = [t.itl_s for t in parts if t.itl_s is not None]
    exacts = [t.exact for t in parts if t.exact is not None]
    ranks = [t.rank for t in parts if t.rank is not None]
    return replace(
        first,
        logprob=np.concatenate([t.logprob for t in parts]),
        token=np.concatenate([t.token for t in parts]),
        status=np.concatenate([t.status for t in parts]),
        top=_joined_top(tops) if len(tops) == len(parts) else None,
        itl_s=np.concatenate(itls) if len(itls) == len(parts) else None,
        exact=join_drifts(exacts) if len(exacts) == len(parts) else None,
        rank=np.concatenate(ranks) if len(ranks) == len(parts) else None,
        final=True,
    )


def _joined_top(tops: Sequence[TopK]) -> TopK:
    k = min(t.token.shape[1] for t in tops)
    columns = ([t.token[:, :k] for t in tops], [t.logprob[:, :k] for t in tops])
    return TopK(np.concatenate(columns[0]), np.concatenate(columns[1]))


def match(inference: TokenTrace, train: TokenTrace, compare: Compare) -> PairOutcome:
    """Compare two whole views of one sequence and pair them, or say why not.

    Checked in the order in which a difference makes the next check meaningless: weights,
    semantics, length, tokens.
    """
    lag = weights_lag(inference.weights_version, train.weights_version)
    if not _weights_agree(inference, train, lag, compare.weights_within):
        return _other_weights(inference, train, lag)
    views = (inference, train)
    if not semantics_agree(inference.sampling, train.sampling):
        detail = f"inference {inference.sampling.semantics.value}, train {train.sampling.semantics.value}"
        law = {"law": _law_difference(inference.sampling, train.sampling)}
        return replace(lost_views(views, PairReason.SEMANTICS_MISMATCH), detail=detail, facts=law)
    if len(inference) != len(train):
        detail = f"inference has {len(inference)} tokens, train has {len(train)}"
        return replace(lost_views(views, PairReason.LENGTH_MISMATCH), detail=detail)
    differing = np.flatnonzero(inference.token != train.token)
    if differing.size:
        facts = {"differing": float(differing.size), "shift": float(_shift_of(inference, train))}
        detail = f"first at position {int(differing[0])}, {differing.size} of {len(train)} tokens differ"
        return replace(lost_views(views, PairReason.TOKEN_MISMATCH), detail=detail, facts=facts)
    return _paired(inference, train, lag)


def _paired(inference: TokenTrace, train: TokenTrace, lag: int | None) -> PairOutcome:
    mask, ell, q, counts = pair_columns(inference, train)
    timings = _measured(inference.timings)
    itl = np.nan if inference.itl_s is None else _mean_s(inference.itl_s)
    pair = PairedTrace(
        inference.run_id,
        inference.sequence_id,
        inference.group_id or train.group_id,
        inference.trace_id,
        inference.weights_version or train.weights_version,
        inference.event_ns,
        {**train.attributes, **inference.attributes},
        ell,
        q,
        np.flatnonzero(mask),
        counts,
        inference.kernel,
        train.kernel,
        inference.sampling,
        train.sampling,
        timings,
        _itl_s(timings, len(inference), itl),
        top_columns(inference, train, mask),
        lag,
    )
    return PairOutcome(
        PairReason.PAIRED,
        pair.run_id,
        pair.sequence_id,
        pair.group_id,
        pair.event_ns,
        pair.attributes,
        pair=pair,
    )


def _measured(timings: Timings) -> Timings:
    """Durations without those that are none: NaN, or below zero because a clock went back."""
    told = (timings.queue_s, timings.ttft_s, timings.prefill_s, timings.decode_s)
    if all(s is None or s >= 0.0 for s in told):
        return timings
    return Timings(*(s if s is not None and s >= 0.0 else None for s in told))


def _mean_s(itl_s: NDArray[np.float32]) -> float:
    known = itl_s[np.isfinite(itl_s) & (itl_s >= 0.0)]
    return float(known.mean()) if known.size else float("nan")


def _itl_s(timings: Timings, tokens: int, measured: float) -> float:
    """Mean inter-token latency: measured, else decode time over the tokens after the first."""
    if np.isfinite(measured) or timings.decode_s is None or tokens < 2:
        return float(measured)
    return timings.decode_s / (tokens - 1)


def weights_lag(inference: str, train: str) -> int | None:
    """Train version minus inference version; None unless both are integers, and not digests of digits.

    Examples
    --------
    >>> weights_lag("7", "8"), weights_lag("step-7", "8"), weights_lag("", "8")
    (1, None, None)
    """
    try:
        lag = int(train) - int(inference)
    except ValueError:
        return None
    return lag if abs(lag) <= LARGEST_LAG else None


def _other_weights(inference: TokenTrace, train: TokenTrace, lag: int | None) -> PairOutcome:
    """Refuse a pair of other weights; ``digest`` is a fact where they claim to be the same and are not."""
    detail = f"inference {inference.weights_version!r}, train {train.weights_version!r}"
    facts: dict[str, float | str] = {} if lag is None else {"lag": float(lag)}
    if _differ(inference.weights_digest, train.weights_digest):
        detail += f", digests {inference.weights_digest!r} and {train.weights_digest!r}"
        if not _differ(inference.weights_version, train.weights_version):
            facts["digest"] = "differs"
    return replace(lost_views((inference, train), PairReason.WEIGHTS_MISMATCH), detail=detail, facts=facts)


def _differ(one: str, other: str) -> bool:
    """Whether both were reported, and not the same."""
    return bool(one and other) and one != other


def _weights_agree(inference: TokenTrace, train: TokenTrace, lag: int | None, within: int) -> bool:
    """Equal or near enough; what was not reported cannot disagree."""
    if _differ(inference.weights_digest, train.weights_digest) and within == 0:
        return False
    if not _differ(inference.weights_version, train.weights_version):
        return True
    return lag is not None and abs(lag) <= within


def semantics_agree(a: Sampling, b: Sampling) -> bool:
    """Whether two log-probabilities can be of the same law; what was not reported may be.

    Without any processing all semantics coincide.
    """
    if LogprobSemantics.UNKNOWN in (a.semantics, b.semantics):
        return True
    return _law(a) == _law(b)


def _law(s: Sampling) -> tuple[object, ...]:
    """The law in canonical form: (temperature, top_p, top_k, min_p, processors) that count."""
    neutral: tuple[object, ...] = (1.0, 1.0, 0, 0.0, "")
    told = (s.temperature, s.top_p, s.top_k, s.min_p, s.processors)
    full = tuple(n if t is None else t for t, n in zip(told, neutral, strict=True))
    if s.semantics is LogprobSemantics.RAW:
        return neutral
    if s.semantics is LogprobSemantics.TEMPERATURE_ONLY:
        return (full[0], *neutral[1:])
    return (full[0], full[1], max(int(str(full[2])), 0), full[3], full[4])


def _law_difference(a: Sampling, b: Sampling) -> str:
    """What makes two laws two: ``temperature``, ``support`` (what sampling keeps) or ``processors``."""
    names = ("temperature", *["support"] * 3, "processors")
    return next(name for name, one, other in zip(names, _law(a), _law(b), strict=True) if one != other)


def _shift_of(inference: TokenTrace, train: TokenTrace) -> int:
    """1 or -1 where the train tokens are the inference tokens moved by one; else 0."""
    if len(train) > 1 and np.array_equal(train.token[:-1], inference.token[1:]):
        return 1
    if len(train) > 1 and np.array_equal(train.token[1:], inference.token[:-1]):
        return -1
    return 0


def lost(trace: TokenTrace, reason: PairReason) -> PairOutcome:
    """Return the outcome of a trace that pairs with nothing."""
    return PairOutcome(
        reason,
        trace.run_id,
        trace.sequence_id,
        trace.group_id,
        trace.event_ns,
        trace.attributes,
        detail=f"{trace.kernel.role.value} trace at position {trace.start}",
    )


def lost_views(views: Sequence[TokenTrace], reason: PairReason) -> PairOutcome:
    """Return the outcome of views of one sequence that are no pair: labels of all, the first one's word counts.

    As in a pair: start and id are the first view's, the group is the first that is told.
    """
    attributes: dict[str, str] = {}
    for view in reversed(views):
        attributes |= view.attributes
    group_id = next((view.group_id for view in views if view.group_id), "")
    return replace(lost(views[0], reason), group_id=group_id, attributes=attributes)
