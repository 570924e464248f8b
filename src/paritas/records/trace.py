"""One kernel's view of one sequence: columns, one row a token."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from paritas.exact import ExactDrift
from paritas.records.kernel import KernelIdentity, Sampling

__all__ = ["Timings", "TokenStatus", "TokenTrace", "TopK", "trace_id_of"]

UNTOLD = Sampling()


class TokenStatus(IntEnum):
    """Where one token ends; each token ends in exactly one, and the counts sum to the total."""

    VALID = 0
    PROMPT = 1
    MASKED = 2  # forced or tool token, or masked from the loss
    MISSING = 3  # no log-probability was reported
    SENTINEL = 4  # a stand-in such as -9999
    NONFINITE = 5  # NaN or infinity
    POSITIVE = 6  # a log-probability above zero


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations of one request in seconds; None means not reported."""

    queue_s: float | None = None
    ttft_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TopK:
    """The k most likely tokens of one kernel at each position, best first.

    Attributes
    ----------
    token : shape (n, k), uint64
        Token identities as in `TokenTrace.token`; 0 where the list is shorter.
    logprob : shape (n, k), float32, nats
        NaN where the list is shorter.
    """

    token: NDArray[np.uint64]
    logprob: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class TokenTrace:
    """One kernel's view of one sequence segment.

    Attributes
    ----------
    run_id, sequence_id : str
        Together the identity of the sequence; both kernels use the same.
    group_id : str
        Prompt group (rollouts that share a prompt); empty when there is none.
    weights_version : str
        Version of the weights this kernel held; empty when not reported.
    attributes : mapping
        Slice dimensions (``slice``, ``replica``, ``environment`` …).
    start : int
        Position in the response of the first token of this segment.
    event_ns : int
        Unix ns at which the sequence was started.
    logprob : shape (n,), float32, nats
        As reported; only entries whose status is VALID may be computed with.
    token : shape (n,), uint64
        Keyed hash of the token id (`paritas.tokens`), or the raw id where opted in.
    status : shape (n,), uint8
        `TokenStatus` of each token.
    top : TopK or None
        Top-k list of this kernel; must not depend on the sampled token.
    itl_s : shape (n,), float32, seconds, or None
        Inter-token latencies; NaN for the first token.
    final : bool
        Whether this segment ends the sequence.
    traceparent : str
        W3C trace context of the engine's own spans of this sequence, to link to; empty when there is none.
    exact : ExactDrift or None
        Whole distributions of both kernels compared, where this kernel's scorer held both (offline only).
    rank : shape (n,), uint32, or None
        How many tokens of the vocabulary this kernel finds at least as likely, the sampled one included:
        1 is the most likely; 0 where it was not reported.
    """

    run_id: str
    sequence_id: str
    kernel: KernelIdentity
    logprob: NDArray[np.float32]
    token: NDArray[np.uint64]
    status: NDArray[np.uint8]
    group_id: str = ""
    weights_version: str = ""
    weights_digest: str = ""
    sampling: Sampling = UNTOLD
    attributes: Mapping[str, str] = field(default_factory=dict)
    start: int = 0
    event_ns: int = 0
    top: TopK | None = None
    timings: Timings = Timings()
    itl_s: NDArray[np.float32] | None = None
    final: bool = True
    traceparent: str = ""
    exact: ExactDrift | None = None
    rank: NDArray[np.uint32] | None = None

    def __post_init__(self) -> None:
        """Check once, at the edge: columns are one-dimensional and aligned."""
        shapes = {self.logprob.shape, self.token.shape, self.status.shape}
        if len(shapes) != 1 or self.logprob.ndim != 1:
            msg = f"columns of {self.sequence_id!r} must be 1-d and aligned, got {sorted(map(str, shapes))}"
            raise ValueError(msg)

    def __len__(self) -> int:
        return int(self.logprob.shape[0])

    @property
    def trace_id(self) -> str:
        """BLAKE2b-128 of run and sequence, 32 lowercase hex characters: one trace a sequence."""
        return trace_id_of(self.run_id, self.sequence_id)

    def counts(self) -> dict[TokenStatus, int]:
        """Tokens by status; the values sum to ``len(self)``."""
        tally = np.bincount(self.status, minlength=len(TokenStatus))
        return {status: int(tally[status]) for status in TokenStatus}


def trace_id_of(run_id: str, sequence_id: str) -> str:
    """Return the trace id both kernels' spans of one sequence share.

    Examples
    --------
    >>> len(trace_id_of("run", "seq-1"))
    32
    >>> trace_id_of("a", "bc") == trace_id_of("ab", "c")
    False
    """
    text = f"{len(run_id)}:{run_id}{sequence_id}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
