"""How a dump is read: names for the run and its tokens, and what the file itself leaves out."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from paritas.records import LogprobSemantics, Role
from paritas.tokens import TokenHasher

__all__ = ["ReadOptions"]

# 64 MiB: a sequence of 131 072 tokens with its top-20 lists takes 48 MB (measured: 369 bytes
# a token).  A longer line is far more likely to be a file without line ends.
LINE_LIMIT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reader must be told because no dump carries it.

    Attributes
    ----------
    hasher : TokenHasher
        Names the tokens; not used where `raw_token_ids` is set.
    run_id : str
        Run of every trace read.
    base_ns, step_ns : int
        A line without a time gets ``base_ns + index * step_ns`` (Unix ns, index from 0), so
        that the two files of a pair, which hold the same lines, get the same times.
    raw_token_ids : bool
        Carry raw ids in place of hashes: user data, for local use.
    top_k : int or None
        How many top entries to keep; None keeps as many as the lists certainly hold.  Also
        read as a promise that the lists hold that many, where they alone cannot show it.
    semantics : mapping of Role to LogprobSemantics
        Law of the log-probabilities where the file does not say.
    limit_line_bytes : int
        Longer lines become a problem; bounds the memory of a reader.
    """

    hasher: TokenHasher
    run_id: str = "recording"
    base_ns: int = 0
    step_ns: int = 1_000_000_000
    raw_token_ids: bool = False
    top_k: int | None = None
    semantics: Mapping[Role, LogprobSemantics] = field(default_factory=dict)
    limit_line_bytes: int = LINE_LIMIT_BYTES

    def identify(self, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the token identities of non-negative ids, in the same shape."""
        return ids.astype(np.uint64) if self.raw_token_ids else self.hasher.hash(ids)

    def event_ns(self, index: int) -> int:
        """Return the time of the line `index` (from 0) of a file without times, Unix ns."""
        return self.base_ns + index * self.step_ns

    def semantics_of(self, role: Role) -> LogprobSemantics:
        """Return what was declared for `role`, else UNKNOWN."""
        return self.semantics.get(role, LogprobSemantics.UNKNOWN)
