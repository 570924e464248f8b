"""What is kept of a sequence while it is sampled: bytes that grow, no object a token."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.vllm.asking import Asked, Declared, Identity
from paritas.records import KernelIdentity
from paritas.tokens import TokenHasher

__all__ = ["Note", "Source"]


@dataclass(frozen=True, slots=True)
class Source:
    """What all traces of an engine share until its weights change."""

    declared: Declared
    kernel: KernelIdentity
    hasher: TokenHasher
    weights_version: str = ""
    weights_digest: str = ""


class Note:
    """One observed sequence; lives and dies with vLLM's own state of the request.

    Parameters
    ----------
    identity : Identity
    asked : Asked
    event_ns : int
        Unix ns at which the request arrived.
    traceparent : str
        Trace context that the request came with.
    may_stop : bool
        It has stop strings: the front end may end it and drop tokens again.
    """

    __slots__ = (
        "asked",
        "began_s",
        "counts",
        "event_ns",
        "identity",
        "ids",
        "is_broken",
        "is_injected",
        "is_short",
        "logprob",
        "may_stop",
        "named",
        "rank",
        "source",
        "stamps",
        "traceparent",
        "width",
    )

    def __init__(
        self,
        identity: Identity,
        asked: Asked,
        *,
        event_ns: int,
        traceparent: str = "",
        may_stop: bool = False,
    ) -> None:
        self.identity, self.asked, self.event_ns = identity, asked, event_ns
        self.traceparent, self.may_stop = traceparent, may_stop
        self.is_injected, self.width = asked.inject is not None, asked.width
        self.is_broken = self.is_short = False
        self.source: Source | None = None
        self.began_s = 0.0
        self.ids, self.named, self.logprob = array("q"), array("q"), array("f")
        self.rank = array("q")  # one a token; 0 where none was told
        self.stamps, self.counts = array("d"), array("q")

    def take(self, output: Any, stamp: float) -> None:
        """Add what one engine step gave: vLLM's `EngineCoreOutput`, and when the step ended.

        The numbers are copied: vLLM's arrays are views of a message that holds the whole batch.
        """
        ids, lists = output.new_token_ids, output.new_logprobs
        if lists is not None and self.width == 1 and len(ids) == 1 and len(lists[1]) == 1:
            # Nearly every step of nearly every sequence; a neighbour may have asked for more columns.
            token, logprob, rank = _first(lists[0]), _first(lists[1]), _first_rank(lists[2])
            self.ids.append(ids[0])
            self.named.append(token)
            self.logprob.append(logprob)
            self.rank.append(rank)
        elif ids:
            self._take_rows(ids, lists)
        else:
            return
        self.stamps.append(stamp)
        self.counts.append(len(ids))

    def _take_rows(self, ids: Sequence[int], lists: Any) -> None:
        named = np.full((len(ids), self.width), -1, np.int64)
        values = np.full((len(ids), self.width), np.nan, np.float32)
        token, logprob = (named[:0], values[:0]) if lists is None else map(np.asarray, lists[:2])
        if logprob.ndim != 2 or token.shape != logprob.shape:
            token, logprob = named[:0], values[:0]
        rows, columns = min(len(ids), logprob.shape[0]), min(self.width, logprob.shape[1])
        self.is_short |= rows < len(ids)
        named[:rows, :columns], values[:rows, :columns] = token[:rows, :columns], logprob[:rows, :columns]
        ranks = np.zeros(len(ids), np.int64)
        if rows and lists[2] is not None:
            told = np.asarray(lists[2]).reshape(-1)[:rows]
            ranks[: told.size] = told
        self.rank.frombytes(ranks.tobytes())
        self.ids.extend(ids)
        self.named.frombytes(named.tobytes())
        self.logprob.frombytes(values.tobytes())

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return ids and log-probabilities, shape (n, width); -1 and NaN where nothing was reported."""
        shape = (-1, self.width)
        return np.frombuffer(self.named, np.int64).reshape(shape), np.frombuffer(
            self.logprob, np.float32
        ).reshape(shape)


def _first_rank(ranks: Any) -> int:
    if ranks is None:
        return 0
    return int(ranks[0]) if isinstance(ranks, list) else int(ranks.item(0))


def _first(rows: Any) -> Any:
    """The number of the sampled token: vLLM has arrays, before 0.12 it had lists of lists."""
    return rows[0][0] if isinstance(rows, list) else rows.item(0)
