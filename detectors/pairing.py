"""Pairing: one sequence, two kernels, position by position; what cannot pair is counted by reason.

Sequences leave in start-time cohorts, ordered by start time and id inside a cohort, so that
early finishers do not bias what is tested and the order of arrival changes nothing.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritas.contracts.model import Compare
from paritas.detectors.pairs import PairedTrace, PairOutcome, pair_columns
from paritas.detectors.topk import top_columns
from paritas.records import LogprobSemantics, PairReason, Role, Sampling, TokenTrace, TopK

__all__ = ["Pairer", "PairerLimits", "join_segments", "match"]

NS = 1_000_000_000
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PairerLimits:
    """Bounds of the pairing stage.

    Attributes
    ----------
    cohort_s : float, seconds
        Width of a start-time cohort.
    grace_s : float, seconds
        A cohort with undecided members lets its decided ones go after this long: one lost
        sequence must not hold back the alarm of a thousand others.
    remembered : int
        Finished sequences remembered for telling duplicates and late halves apart.
    waiting : int
        Sequences that may wait at once; beyond it the oldest is given up as unmatched.
    """

    cohort_s: float = 1.0
    grace_s: float = 10.0
    remembered: int = 200_000
    waiting: int = 100_000


@dataclass(slots=True)
class _Waiting:
    """What has arrived of one sequence; `outcome` is set once it is decided."""

    key: Key
    cohort: int
    first_seen_ns: int
    segments: dict[Role, dict[int, TokenTrace]] = field(default_factory=dict)
    outcome: PairOutcome | None = None


@dataclass(slots=True)
class _Cohort:
    """Sequences that started in the same interval."""

    first_seen_ns: int
    undecided: int = 0
    decided: list[PairOutcome] = field(default_factory=list)


class Pairer:
    """Pure pairing stage: traces and time in, outcomes out.

    Parameters
    ----------
    compare : Compare
        The contract's `compare` section.
    limits : PairerLimits
        Bounds of memory and the cohort width.
    """

    def __init__(self, compare: Compare, limits: PairerLimits = PairerLimits()) -> None:
        self._compare = compare
        self._limits = limits
        self._width_ns = max(round(limits.cohort_s * NS), 1)
        self._waiting: OrderedDict[Key, _Waiting] = OrderedDict()
        self._cohorts: dict[int, _Cohort] = {}  # in order of first sight
        self._decided_cohorts: set[int] = set()
        self._groups: OrderedDict[Key, int] = OrderedDict()
        self._done: OrderedDict[Key, str] = OrderedDict()
        self._watermark_ns = -1

    def process(self, trace: TokenTrace, now_ns: int) -> Iterator[PairOutcome]:
        """Take one trace; yield what it cannot be used for, then the cohorts that are over."""
        key = (trace.run_id, trace.sequence_id)
        self._watermark_ns = max(self._watermark_ns, trace.event_ns)
        if key in self._done:
            yield _lost(trace, _reason_after(self._done[key]))
        elif self._known(key, trace):
            yield _lost(trace, PairReason.DUPLICATE)
        else:
            self._take(key, trace, now_ns)
        yield from self._close(now_ns, self._watermark_ns // self._width_ns)

    def tick(self, now_ns: int) -> Iterator[PairOutcome]:
        """Nothing arrived for a while: the newest cohort is over too."""
        yield from self._close(now_ns, self._watermark_ns // self._width_ns + 1)

    def flush(self, now_ns: int) -> Iterator[PairOutcome]:
        """End of input: what is still alone is unmatched."""
        for waiting in list(self._waiting.values()):
            self._decide(waiting, _alone(waiting))
        yield from self.tick(now_ns)

    @property
    def waiting(self) -> int:
        """Sequences that still wait for their other half."""
        return len(self._waiting)

    @property
    def open_cohorts(self) -> int:
        """Cohorts that were not closed yet."""
        return len(self._cohorts)

    def _known(self, key: Key, trace: TokenTrace) -> bool:
        waiting = self._waiting.get(key)
        return waiting is not None and trace.start in waiting.segments.get(trace.kernel.role, {})

    def _take(self, key: Key, trace: TokenTrace, now_ns: int) -> None:
        waiting = self._waiting.get(key) or self._admit(key, trace, now_ns)
        waiting.segments.setdefault(trace.kernel.role, {})[trace.start] = trace
        inference = join_segments(waiting.segments.get(Role.INFERENCE, {}))
        train = join_segments(waiting.segments.get(Role.TRAIN, {}))
        if inference is not None and train is not None:
            self._decide(waiting, match(inference, train, self._compare))

    def _admit(self, key: Key, trace: TokenTrace, now_ns: int) -> _Waiting:
        while len(self._waiting) >= self._limits.waiting:
            oldest = next(iter(self._waiting.values()))
            self._decide(oldest, _alone(oldest))
        waiting = self._waiting[key] = _Waiting(key, self._cohort_of(trace), now_ns)
        self._cohorts.setdefault(waiting.cohort, _Cohort(now_ns)).undecided += 1
        self._decided_cohorts.discard(waiting.cohort)
        return waiting

    def _cohort_of(self, trace: TokenTrace) -> int:
        """Number of the start-time cohort; a group stays together in its first member's."""
        cohort = trace.event_ns // self._width_ns
        if not trace.group_id:
            return cohort
        found = self._groups.setdefault((trace.run_id, trace.group_id), cohort)
        _trim(self._groups, self._limits.remembered)
        return found

    def _decide(self, waiting: _Waiting, outcome: PairOutcome) -> None:
        cohort = self._cohorts[waiting.cohort]
        cohort.undecided -= 1
        cohort.decided.append(outcome)
        if cohort.undecided == 0:
            self._decided_cohorts.add(waiting.cohort)
        del self._waiting[waiting.key]
        self._done[waiting.key] = outcome.reason.value
        _trim(self._done, self._limits.remembered)

    def _close(self, now_ns: int, open_from: int) -> Iterator[PairOutcome]:
        """Yield cohorts that ended before `open_from` and are decided, or whose grace is over."""
        self._expire(now_ns)
        ready = self._decided_cohorts.union(self._overdue(now_ns))
        for number in sorted(n for n in ready if n < open_from):
            cohort = self._cohorts[number]
            yield from sorted(cohort.decided, key=_canonical)
            cohort.decided.clear()
            if cohort.undecided == 0:
                del self._cohorts[number]
                self._decided_cohorts.remove(number)

    def _overdue(self, now_ns: int) -> Iterator[int]:
        """Cohorts whose grace is over; the first seen come first, so a healthy stream looks at one."""
        grace_ns = round(self._limits.grace_s * NS)
        for number, cohort in self._cohorts.items():
            if now_ns - cohort.first_seen_ns <= grace_ns:
                return
            if cohort.decided:
                yield number

    def _expire(self, now_ns: int) -> None:
        """Give up on halves older than `pair_within`; the oldest arrived first."""
        deadline_ns = now_ns - round(self._compare.pair_within_s * NS)
        while self._waiting:
            oldest = next(iter(self._waiting.values()))
            if oldest.first_seen_ns > deadline_ns:
                return
            self._decide(oldest, _alone(oldest))


def _trim(table: OrderedDict[Key, Any], size: int) -> None:
    while len(table) > size:
        table.popitem(last=False)


def _canonical(outcome: PairOutcome) -> tuple[str, str, int, str]:
    """Order inside a cohort: groups together, then start time, then id."""
    return outcome.run_id, outcome.group_id, outcome.event_ns, outcome.sequence_id


def _reason_after(ended: str) -> PairReason:
    """Something of a finished sequence came again: late if its other half was given up."""
    return PairReason.LATE if ended == PairReason.UNMATCHED else PairReason.DUPLICATE


def _lost(trace: TokenTrace, reason: PairReason) -> PairOutcome:
    return PairOutcome(
        reason,
        trace.run_id,
        trace.sequence_id,
        trace.group_id,
        trace.event_ns,
        trace.attributes,
        detail=f"{trace.kernel.role.value} trace at position {trace.start}",
    )


def _alone(waiting: _Waiting) -> PairOutcome:
    """The outcome of a sequence whose other half, or a segment, never came."""
    trace = next(t for parts in waiting.segments.values() for t in parts.values())
    have = ", ".join(sorted(role.value for role in waiting.segments))
    return replace(_lost(trace, PairReason.UNMATCHED), detail=f"only {have} was reported")


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
    return replace(
        first,
        logprob=np.concatenate([t.logprob for t in parts]),
        token=np.concatenate([t.token for t in parts]),
        status=np.concatenate([t.status for t in parts]),
        top=_joined_top(tops) if len(tops) == len(parts) else None,
        itl_s=np.concatenate(itls) if len(itls) == len(parts) else None,
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
        detail = f"inference {inference.weights_version!r}, train {train.weights_version!r}"
        return replace(_lost(inference, PairReason.WEIGHTS_MISMATCH), detail=detail, facts=_lag_fact(lag))
    if not semantics_agree(inference.sampling, train.sampling):
        detail = f"inference {inference.sampling.semantics.value}, train {train.sampling.semantics.value}"
        return replace(_lost(inference, PairReason.SEMANTICS_MISMATCH), detail=detail)
    if len(inference) != len(train):
        detail = f"inference has {len(inference)} tokens, train has {len(train)}"
        return replace(_lost(inference, PairReason.LENGTH_MISMATCH), detail=detail)
    differing = np.flatnonzero(inference.token != train.token)
    if differing.size:
        facts = {"differing": float(differing.size), "shift": float(_shift_of(inference, train))}
        detail = f"first at position {int(differing[0])}, {differing.size} of {len(train)} tokens differ"
        return replace(_lost(inference, PairReason.TOKEN_MISMATCH), detail=detail, facts=facts)
    return _paired(inference, train, lag)


def _paired(inference: TokenTrace, train: TokenTrace, lag: int | None) -> PairOutcome:
    mask, ell, q, counts = pair_columns(inference, train)
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
        inference.timings,
        _itl_s(inference, itl),
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


def _mean_s(itl_s: NDArray[np.float32]) -> float:
    known = itl_s[np.isfinite(itl_s)]
    return float(known.mean()) if known.size else float("nan")


def _itl_s(trace: TokenTrace, measured: float) -> float:
    """Mean inter-token latency: measured, else decode time over the tokens after the first."""
    if np.isfinite(measured) or trace.timings.decode_s is None or len(trace) < 2:
        return float(measured)
    return trace.timings.decode_s / (len(trace) - 1)


def weights_lag(inference: str, train: str) -> int | None:
    """Train version minus inference version; None unless both are integers.

    Examples
    --------
    >>> weights_lag("7", "8"), weights_lag("step-7", "8"), weights_lag("", "8")
    (1, None, None)
    """
    try:
        return int(train) - int(inference)
    except ValueError:
        return None


def _lag_fact(lag: int | None) -> dict[str, float | str]:
    return {} if lag is None else {"lag": float(lag)}


def _weights_agree(inference: TokenTrace, train: TokenTrace, lag: int | None, within: int) -> bool:
    """Equal or near enough; what was not reported cannot disagree."""
    digests = {t.weights_digest for t in (inference, train) if t.weights_digest}
    if len(digests) > 1 and within == 0:
        return False
    versions = {t.weights_version for t in (inference, train) if t.weights_version}
    return len(versions) < 2 or (lag is not None and abs(lag) <= within)


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


def _shift_of(inference: TokenTrace, train: TokenTrace) -> int:
    """1 or -1 where the train tokens are the inference tokens moved by one; else 0."""
    if len(train) > 1 and np.array_equal(train.token[:-1], inference.token[1:]):
        return 1
    if len(train) > 1 and np.array_equal(train.token[1:], inference.token[:-1]):
        return -1
    return 0
