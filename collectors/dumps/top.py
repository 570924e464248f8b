"""Top-k lists as engines write them, made independent of the sampled token.

An engine asked for k entries writes, at each position, its k most likely tokens and the
sampled token: first the sampled one, then the others, best first.  So a list holds k entries
where the sampled token is among the best k, and k + 1 where it is not.  Statistics over
"the list" would then depend on what was sampled; `TopK` may not.  Two steps remove it:

1. `depth_of`: how many best tokens the lists certainly hold (k);
2. `top_k`: where a list is longer than that, the sampled entry is the extra one and goes.

Sorting alone would not do: with ties at the border (common in bfloat16, whose steps are
coarse) the sampled token could push out the one that the engine ranked k-th.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.dumps.fields import check_lengths, floats, sequence, token_ids
from paritas.collectors.dumps.problem import LineError, ProblemReason
from paritas.records import TokenStatus, TopK
from paritas.tokens import as_logged, classify

__all__ = ["Depth", "TopLists", "depth_of", "parse_top", "top_k"]


@dataclass(frozen=True, slots=True, eq=False)
class TopLists:
    """The lists of one line, flat.

    Attributes
    ----------
    token : shape (m,), int64
        Ids of all entries, position by position, in the order of the file.
    logprob : shape (m,), float64, nats
    length : shape (n,), int64
        Entries at each position.
    sampled : shape (n,), int64
        Id of the sampled token at each position.
    """

    token: NDArray[np.int64]
    logprob: NDArray[np.float64]
    length: NDArray[np.int64]
    sampled: NDArray[np.int64]

    @property
    def position(self) -> NDArray[np.int64]:
        """Position of each entry, shape (m,), int64."""
        return np.repeat(np.arange(self.length.size), self.length)

    @property
    def first(self) -> NDArray[np.int64]:
        """Index of each position's first entry, shape (n,), int64."""
        return np.cumsum(self.length) - self.length


@dataclass(frozen=True, slots=True)
class Depth:
    """How many most likely tokens the lists hold, and whether the lists themselves show it.

    Attributes
    ----------
    shortest, longest : int
        Lengths met; 0 when there is no list.
    certain : bool
        Whether `shortest` is the depth.  Else each list might be the depth and the sampled
        token, that is, `shortest` minus one.
    """

    shortest: int = 0
    longest: int = 0
    certain: bool = False

    @property
    def entries(self) -> int:
        """Entries that are the best ones whatever was sampled."""
        return self.shortest if self.certain else max(self.shortest - 1, 0)

    def join(self, other: "Depth") -> "Depth":
        """Return what lists of one depth d show together, each of which has d or d + 1 entries.

        Lengths further apart come from requests of different depths, which show nothing of
        each other: then `self` is returned.
        """
        if not self.shortest:
            return other
        if not other.shortest or abs(self.shortest - other.shortest) > 1:
            return self
        shortest, longest = min(self.shortest, other.shortest), max(self.longest, other.longest)
        return Depth(shortest, longest, self.certain or other.certain or longest > shortest)


def parse_top(value: object, sampled: NDArray[np.int64]) -> TopLists:
    """Check ``top_logprobs``: for each token null or a list of ``[token id, log-probability]``.

    Parameters
    ----------
    value : object
        The JSON value.
    sampled : shape (n,), int64
        Ids of the sampled tokens.

    Raises
    ------
    LineError
        BAD_TYPE, BAD_VALUE, BAD_TOKEN_ID or LENGTH_MISMATCH.
    """
    lists: list[Any] = [[] if entry is None else entry for entry in sequence("top_logprobs", value)]
    check_lengths({"token_ids": sampled.size, "top_logprobs": len(lists)})
    if not set(map(type, lists)) <= {list}:
        raise LineError(ProblemReason.BAD_TYPE, "'top_logprobs' holds something that is no list")
    pairs: list[Any] = list(chain.from_iterable(lists))
    if not set(map(type, pairs)) <= {list} or not set(map(len, pairs)) <= {2}:
        raise LineError(
            ProblemReason.BAD_VALUE, "'top_logprobs' holds an entry that is no [id, logprob] pair"
        )
    token = token_ids("top_logprobs ids", [pair[0] for pair in pairs])
    logprob, _ = floats("top_logprobs logprobs", [pair[1] for pair in pairs])
    return TopLists(token, logprob, np.fromiter(map(len, lists), np.int64, len(lists)), sampled)


def depth_of(top: TopLists) -> Depth:
    """Return how many most likely tokens the lists of one line hold.

    With lists of two lengths the shorter is the depth.  With one length it is the depth as
    soon as one list shows that its sampled token is among the best: some other entry is less
    likely, or the sampled token is not in front, or not there (a plain top-k list).

    Examples
    --------
    >>> lists = [[[7, -2.0], [5, -0.5]], [[5, -0.1], [7, -3.0]]]
    >>> depth_of(parse_top(lists, np.array([7, 5]))).entries
    2
    >>> depth_of(parse_top(lists[:1], np.array([7]))).entries
    1
    """
    listed = top.length > 0
    if not listed.any():
        return Depth()
    shortest, longest = int(top.length[listed].min()), int(top.length.max())
    shows = listed & (top.length == shortest) & ~might_be_extra(top)
    return Depth(shortest, longest, longest > shortest or bool(shows.any()))


def might_be_extra(top: TopLists) -> NDArray[np.bool_]:
    """Return where the list starts with the sampled token and nothing in it is less likely.

    Returns
    -------
    shape (n,), bool
    """
    listed = top.length > 0
    first = top.first[listed]
    logprob = np.where(np.isnan(top.logprob), -np.inf, top.logprob)
    least = np.minimum.reduceat(logprob, first) if first.size else logprob
    extra = np.zeros(top.length.size, np.bool_)
    extra[listed] = (top.token[first] == top.sampled[listed]) & (logprob[first] <= least)
    return extra


def top_k(
    top: TopLists,
    depth: int,
    *,
    keep: int,
    identify: Callable[[NDArray[np.int64]], NDArray[np.uint64]],
) -> TopK | None:
    """Return the `keep` best of the `depth` best tokens, the same whatever was sampled.

    Entries outside the support (-inf, or the stand-in -9999, which processed lists hold
    after top-p) and entries that are no log-probability are left out: the list is shorter
    there.  Equal log-probabilities are ordered by token id, so that no order of the file
    remains.

    Returns
    -------
    TopK of shape (n, min(keep, depth)), or None when that is 0
    """
    k = min(keep, depth)
    if k <= 0:
        return None
    kept = np.flatnonzero((classify(top.logprob) == TokenStatus.VALID) & ~extra_entries(top, depth))
    position, logprob = top.position[kept], as_logged(top.logprob[kept])
    order = np.lexsort((top.token[kept], -logprob, position))
    counts = np.bincount(position, minlength=top.length.size)
    rank = np.arange(kept.size) - np.repeat(np.cumsum(counts) - counts, counts)
    best, rank = order[rank < k], rank[rank < k]
    rows = TopK(np.zeros((top.length.size, k), np.uint64), np.full((top.length.size, k), np.nan, np.float32))
    rows.token[position[best], rank] = identify(top.token[kept][best])
    rows.logprob[position[best], rank] = logprob[best]
    return rows


def extra_entries(top: TopLists, depth: int) -> NDArray[np.bool_]:
    """Return the entries, shape (m,), that stand in a list only because they were sampled."""
    positions = np.flatnonzero(might_be_extra(top) & (top.length > depth))
    extra = np.zeros(top.token.size, np.bool_)
    extra[top.first[positions]] = True
    return extra
