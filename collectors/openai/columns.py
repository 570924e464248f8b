"""What was told of one choice → aligned columns; every doubt becomes a status and a counted problem."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.openai.responses import Entry, Spoken
from paritas.records import TopK
from paritas.tokens import SENTINEL_NATS, SLACK_NATS, TokenHasher, as_logged, classify

__all__ = ["Columns", "Doubt", "columns_of", "itl_of"]

NS_PER_S = 1_000_000_000
# Sum of the probabilities of a top-k list: above one by more than rounding, they are no probabilities.
SUM_SLACK = 1e-4
# So many exact zeros at a temperature above zero are no accident: speculative decoding or a
# broken route that reports nothing (a lone survivor of top-p gives a few, not all).
ZERO_TOKENS = 8


class Doubt(StrEnum):
    """What is odd about the tokens of a choice; the label of a counter.  None stops the answer."""

    NO_TOKEN_IDS = "no_token_ids"  # noqa: S105 -- nothing to name tokens by: no trace
    NO_LOGPROBS = "no_logprobs"  # tokens came, their log-probabilities did not
    LENGTH_MISMATCH = "length_mismatch"  # more tokens than log-probabilities, or the reverse
    ID_MISMATCH = "id_mismatch"  # a log-probability of another token than the one emitted
    OUT_OF_STEP = "out_of_step"  # chunks do not add up to what the engine counted
    ALL_ZERO = "all_zero"  # every log-probability is exactly zero at a temperature above zero
    BAD_TOP = "bad_top"  # the probabilities of a top-k list sum to more than one
    DUPLICATE_CHOICES = "duplicate_choices"  # two samples of one prompt are the same
    HIDDEN_TOKENS = "hidden_tokens"  # tokens were sampled that are not told, nobody knows where: no trace
    MIXED_WEIGHTS = "mixed_weights"  # the weights changed while the sequence was sampled
    UNFINISHED = "unfinished"  # the answer ended before the choice did: no trace


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The columns of one trace, and what was odd."""

    ids: NDArray[np.int64]
    logprob: NDArray[np.float32]
    status: NDArray[np.uint8]
    top: TopK | None
    doubts: Counter[Doubt]
    rank: NDArray[np.uint32] | None = None


def columns_of(spoken: Spoken, hasher: TokenHasher, *, top_k: int, echo: bool = False) -> Columns | None:
    """Align ids and log-probabilities; None where no token has an id.

    Parameters
    ----------
    spoken : Spoken
    hasher : TokenHasher
        Names the tokens of the top-k lists.
    top_k : int
        Columns of the top-k lists; 0 for none.
    echo : bool
        The entries begin with those of the prompt, which are left out.
    """
    doubts: Counter[Doubt] = Counter()
    entries = _without_prompt(spoken, doubts) if echo else spoken.entries
    ids = spoken.ids or [-1 if one.token_id is None else one.token_id for one in entries]
    if not ids or max(ids) < 0:
        return None
    placed = _placed(ids, entries, doubts)
    reported = [None if one is None else one.logprob for one in placed]
    logprob = np.array([np.nan if value is None else value for value in reported], np.float64)
    missing = np.array([value is None for value in reported], bool)
    if missing.all():
        doubts[Doubt.NO_LOGPROBS] += 1
    elif len(ids) >= ZERO_TOKENS and not logprob.any():
        doubts[Doubt.ALL_ZERO] += 1
    if spoken.is_out_of_step:
        doubts[Doubt.OUT_OF_STEP] += 1
    top = _top(placed, hasher, top_k, doubts) if top_k else None
    status = classify(logprob, missing=missing)
    return Columns(np.array(ids, np.int64), as_logged(logprob), status, top, doubts, _ranks(placed))


def _ranks(placed: Sequence[Entry | None]) -> NDArray[np.uint32] | None:
    """Ranks of the tokens, 0 where none was told; None where none was told at all."""
    ranks = np.array([0 if one is None else one.rank for one in placed], np.uint32)
    return ranks if ranks.any() else None


def _without_prompt(spoken: Spoken, doubts: Counter[Doubt]) -> list[Entry]:
    """Leave out the echoed prompt: by the number of emitted tokens, else by the length of the prompt."""
    if spoken.ids:
        return spoken.entries[-len(spoken.ids) :]
    if spoken.prompt_tokens is None:
        doubts[Doubt.LENGTH_MISMATCH] += 1
        return []
    return spoken.entries[spoken.prompt_tokens :]


def _placed(ids: Sequence[int], entries: Sequence[Entry], doubts: Counter[Doubt]) -> list[Entry | None]:
    """Give each token its entry; None where it has none, or one of another token."""
    if len(ids) == len(entries):
        placed = [
            one if one.token_id in (None, token) else None for token, one in zip(ids, entries, strict=True)
        ]
        if None in placed:
            doubts[Doubt.ID_MISMATCH] += 1
        return placed
    if entries:
        doubts[Doubt.LENGTH_MISMATCH] += 1
    return _by_id(ids, entries)


def _by_id(ids: Sequence[int], entries: Sequence[Entry]) -> list[Entry | None]:
    """Match in order by id, each entry once; without ids nothing can be matched.

    An entry is looked for among the next few only, so that one that never comes costs its own
    token and not all that follow.
    """
    placed: list[Entry | None] = [None] * len(ids)
    at = 0
    for entry in entries:
        if entry.token_id is None:
            return [None] * len(ids)
        try:
            found = ids.index(entry.token_id, at)
        except ValueError:
            continue
        placed[found] = entry
        at = found + 1
    return placed


def _top(
    placed: Sequence[Entry | None], hasher: TokenHasher, top_k: int, doubts: Counter[Doubt]
) -> TopK | None:
    """The k most likely tokens, best first; the sampled one only where it is among them.

    Engines put the sampled token first and add or cut one for it; sorted and cut to the k that
    are sure to be there, the list no longer depends on what was sampled.
    """
    if not any(one is not None and one.top for one in placed):
        return None
    token = np.full((len(placed), top_k), -1, np.int64)
    logprob = np.full((len(placed), top_k), np.nan, np.float32)
    for row, entry in enumerate(placed):
        best = _best(entry, top_k)
        for column, (token_id, value) in enumerate(best):
            token[row, column], logprob[row, column] = token_id, value
    with np.errstate(over="ignore"):
        sums = np.exp(np.nan_to_num(logprob, nan=-np.inf)).sum(axis=1)
    if (sums > 1 + SUM_SLACK).any():
        doubts[Doubt.BAD_TOP] += 1
    return TopK(hasher.hash(token), logprob)


def _best(entry: Entry | None, top_k: int) -> list[tuple[int, float]]:
    """The best k of a list, each id once; sentinels and NaN are not in it."""
    if entry is None:
        return []
    # What `classify` calls valid; a call of numpy for each entry would hold up every stream of a proxy.
    unique = {token: value for token, value in entry.top if SENTINEL_NATS < value <= SLACK_NATS}
    return sorted(unique.items(), key=lambda row: (-row[1], row[0]))[:top_k]


def itl_of(arrivals: Sequence[tuple[int, int]], tokens: int) -> NDArray[np.float32] | None:
    """Inter-token latencies in seconds as they arrived; None where everything came at once.

    Tokens of one chunk arrive together: the first of them waited for the chunk, the rest did not.

    Examples
    --------
    >>> itl_of([(0, 1), (2_000_000_000, 3)], 3).tolist()
    [nan, 2.0, 0.0]
    """
    if len(arrivals) < 2 or not tokens:
        return None
    gaps = np.zeros(tokens, np.float32)
    gaps[0] = np.nan
    for (before_ns, known), (now_ns, _) in pairwise(arrivals):
        if known < tokens:
            gaps[known] = (now_ns - before_ns) / NS_PER_S
    return gaps
