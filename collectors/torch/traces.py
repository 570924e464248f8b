"""Host arrays of a batch become training traces: the pure last step of the capture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from paritas.records import KernelIdentity, Role, Sampling, TokenTrace
from paritas.tokens import TokenHasher, as_logged, classify

__all__ = ["HostBatch", "Names", "Stamp", "Weighed", "extents", "traces_of"]


@dataclass(frozen=True, slots=True)
class Names:
    """Which sequences a batch holds, row by row.

    Attributes
    ----------
    sequence_ids : sequence of str
        The same text that the inference side gave its trace, such as the trainer's unique id.
    group_ids : sequence of str
        Prompt group of each row; empty when there are none.
    """

    sequence_ids: Sequence[str]
    group_ids: Sequence[str] = ()


def _unread() -> KernelIdentity:
    return KernelIdentity(Role.TRAIN)


class Weighed(Protocol):
    """A digest of weights that is on its way from the device."""

    def text(self) -> str:
        """Return the digest; empty where it is not known, or not yet."""
        ...


@dataclass(frozen=True, slots=True)
class Stamp:
    """What all traces of a step share; the fields are those of `paritas.records.TokenTrace`.

    `weighed` tells the digest later, where `weights_digest` tells none.
    """

    run_id: str
    kernel: KernelIdentity = field(default_factory=_unread)
    weights_version: str = ""
    weights_digest: str = ""
    sampling: Sampling = Sampling()
    attributes: Mapping[str, str] = field(default_factory=dict)
    weighed: Weighed | None = None

    def settled(self) -> "Stamp":
        """Return the stamp with the digest that has arrived, asked for once a batch."""
        if self.weighed is None:
            return self
        return replace(self, weights_digest=self.weights_digest or self.weighed.text(), weighed=None)


@dataclass(frozen=True, slots=True, eq=False)
class HostBatch:
    """A batch on the host, nothing of it shared with the trainer.

    Attributes
    ----------
    logprob : shape (b, t), float32, nats
    token : shape (b, t), int64
        A negative token has no name and no log-probability.
    mask : shape (b, t), bool
        True where a token of the response stands; what is before its first and after its last
        is padding or prompt, whichever side it is on.
    loss_mask : shape (b, t), bool, or None
        True where a token enters the loss; None when all of the response does.
    rank : shape (b, t), int32, or None
        As of `RowScores`; 0 where a token was not scored.
    """

    logprob: NDArray[np.float32]
    token: NDArray[np.int64]
    mask: NDArray[np.bool_]
    loss_mask: NDArray[np.bool_] | None = None
    rank: NDArray[np.int32] | None = None


def traces_of(
    batch: HostBatch, names: Names, stamp: Stamp, *, hasher: TokenHasher, event_ns: int
) -> list[TokenTrace]:
    """Return one trace a row that holds a response; a hole in the mask is a masked token.

    Raises
    ------
    ValueError
        There are not as many names as rows.

    Examples
    --------
    >>> batch = HostBatch(np.array([[0, -1.5, -2, 0]], np.float32), np.array([[9, 7, 7, 9]]),
    ...                   np.array([[False, True, True, False]]))
    >>> hasher = TokenHasher(b"an example key, not a secret one")
    >>> [trace] = traces_of(batch, Names(["a"]), Stamp("run"), hasher=hasher, event_ns=0)
    >>> trace.logprob.tolist(), trace.status.tolist()
    ([-1.5, -2.0], [0, 0])
    """
    _check(batch, names)
    inside = batch.mask if batch.loss_mask is None else batch.mask & batch.loss_mask
    logprob = batch.logprob.astype(np.float64)
    status = classify(logprob, missing=batch.token < 0, masked=~inside)
    spans = extents(batch.mask)
    token = hasher.hash(np.where(_within(spans, batch.mask.shape[1]), batch.token, -1))
    rank = None if batch.rank is None else batch.rank.astype(np.uint32)
    columns = Columns(as_logged(logprob), token, status, rank)
    return [
        _trace(names, stamp, row, columns.cut(row, first, end), event_ns)
        for row, (first, end) in enumerate(spans)
        if end > first
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What a trace carries of each token, for a batch (b, t) or one row (n,)."""

    logprob: NDArray[np.float32]
    token: NDArray[np.uint64]
    status: NDArray[np.uint8]
    rank: NDArray[np.uint32] | None = None

    def cut(self, row: int, first: int, end: int) -> "Columns":
        """Return the columns of one response, copied: what waits holds no padding."""
        here = (row, slice(first, end))
        rank = None if self.rank is None else self.rank[here].copy()
        return Columns(self.logprob[here].copy(), self.token[here].copy(), self.status[here].copy(), rank)


def _check(batch: HostBatch, names: Names) -> None:
    rows = batch.mask.shape[0]
    told = {len(names.sequence_ids), len(names.group_ids) or rows}
    if told != {rows}:
        raise ValueError(f"{rows} rows, {len(names.sequence_ids)} ids, {len(names.group_ids)} groups")


def extents(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return first and end of each row's response; (0, 0) where there is none.

    Examples
    --------
    >>> extents(np.array([[0, 1, 0, 1, 0], [0, 0, 0, 0, 0]], bool))
    [(1, 4), (0, 0)]
    """
    if not mask.shape[1]:
        return [(0, 0)] * mask.shape[0]
    first = mask.argmax(axis=1)
    end = mask.shape[1] - mask[:, ::-1].argmax(axis=1)
    some = mask.any(axis=1)
    return list(zip(np.where(some, first, 0).tolist(), np.where(some, end, 0).tolist(), strict=True))


def _within(spans: list[tuple[int, int]], length: int) -> NDArray[np.bool_]:
    """Mark everything from the first to the last token of each response."""
    first, end = np.array(spans, np.int64).reshape(-1, 2).T
    place = np.arange(length)
    marked: NDArray[np.bool_] = (place >= first[:, None]) & (place < end[:, None])
    return marked


def _trace(names: Names, stamp: Stamp, row: int, columns: Columns, event_ns: int) -> TokenTrace:
    return TokenTrace(
        run_id=stamp.run_id,
        sequence_id=names.sequence_ids[row],
        kernel=stamp.kernel,
        logprob=columns.logprob,
        token=columns.token,
        status=columns.status,
        group_id=names.group_ids[row] if names.group_ids else "",
        weights_version=stamp.weights_version,
        weights_digest=stamp.weights_digest,
        sampling=stamp.sampling,
        attributes=stamp.attributes,
        event_ns=event_ns,
        rank=columns.rank,
    )
