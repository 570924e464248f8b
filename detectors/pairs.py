"""One sequence as both kernels saw it, token by token, and how pairing ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from paritas.records import (
    KernelIdentity,
    PairReason,
    Sampling,
    Timings,
    TokenStatus,
    TokenTrace,
)
from paritas.tokens import SENTINEL_NATS, SLACK_NATS, classify

__all__ = ["PairOutcome", "PairedTrace", "TopColumns", "is_reported", "pair_columns", "unreported"]

Floats = NDArray[np.float64]
BAD = (TokenStatus.SENTINEL, TokenStatus.NONFINITE, TokenStatus.POSITIVE)


def unreported(tokens: int) -> Floats:
    """A column nobody reported: NaN for each token, in the memory of one; read-only."""
    return np.broadcast_to(np.float64(np.nan), tokens)


def is_reported(column: Floats) -> bool:
    """Whether a column is anything but `unreported`."""
    return bool(column.size) and (column.strides != (0,) or not np.isnan(column[0]))


@dataclass(frozen=True, slots=True, eq=False)
class TopColumns:
    """Per-token numbers from top-k lists or from whole distributions; NaN where neither is there.

    Attributes
    ----------
    top1_q : shape (m,), float64, probability
        Inference probability of the inference kernel's most likely token.
    is_top1 : shape (m,), float64, 0 or 1
        Whether that token was the sampled one.
    hybrid_tv : shape (m,), float64, probability
        Hybrid estimate of TV (A18).
    oscillation : shape (m,), float64, logits
        max - min of log p - log q over ids in both lists (A1, a lower bound).
    flip : shape (m,), float64, 0 or 1
        Whether the two kernels' most likely tokens differ.
    gap : shape (m,), float64, probability
        q(a) - p(a) for the training kernel's most likely token a; NaN if a is not in the inference list.
    exact_tv : shape (m,), float64, probability
        Total variation from whole distributions; NaN where no scorer held both.
    """

    top1_q: Floats
    is_top1: Floats
    hybrid_tv: Floats
    oscillation: Floats
    flip: Floats
    gap: Floats
    exact_tv: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PairedTrace:
    """Two traces of the same tokens at comparable weights.

    Attributes
    ----------
    log_ratio : shape (m,), float64, nats
        log p_train - log q_inference of tokens that are VALID on both sides.
    logprob_q : shape (m,), float64, nats
        Inference log-probability of the same tokens.
    position : shape (m,), int64
        Position in the response.
    counts : mapping of TokenStatus to int
        Tokens by their worse status of the two sides; sums to the sequence length.
    waited_s : float, seconds
        From the first sight of the sequence to its pairing.
    lag : int or None
        Train weights version minus inference version where both are integers.
    """

    run_id: str
    sequence_id: str
    group_id: str
    trace_id: str
    weights_version: str
    event_ns: int
    attributes: Mapping[str, str]
    log_ratio: Floats
    logprob_q: Floats
    position: NDArray[np.int64]
    counts: Mapping[TokenStatus, int]
    inference: KernelIdentity
    train: KernelIdentity
    sampling: Sampling
    train_sampling: Sampling
    timings: Timings
    itl_mean_s: float
    top: TopColumns
    lag: int | None = None
    waited_s: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens that are valid on both sides."""
        return int(self.log_ratio.shape[0])

    @property
    def complete(self) -> bool:
        """Whether no generated token is missing or broken, so that the sequence ratio exists."""
        return not any(self.counts.get(s, 0) for s in (*BAD, TokenStatus.MISSING))


@dataclass(frozen=True, slots=True, eq=False)
class PairOutcome:
    """How the search for one sequence's two views ended.

    Attributes
    ----------
    pair : PairedTrace or None
        Set exactly when `reason` is PAIRED.
    detail : str
        What differed, for people.
    """

    reason: PairReason
    run_id: str
    sequence_id: str
    group_id: str
    event_ns: int
    attributes: Mapping[str, str]
    pair: PairedTrace | None = None
    detail: str = ""
    facts: Mapping[str, float | str] = field(default_factory=dict)
    semantics_known: bool = True


def pair_columns(
    inference: TokenTrace, train: TokenTrace
) -> tuple[NDArray[np.bool_], Floats, Floats, dict[TokenStatus, int]]:
    """Return the mask of usable tokens, their log-ratio, q and the joint status counts.

    The joint status of a token is the one further from VALID of the two sides; the mask,
    log-ratio (nats, float64) and q (nats) follow from it.  A sender's VALID is believed only
    of what can be a log-probability.
    """
    status = _joint_status(inference.status, train.status)
    mask = status == TokenStatus.VALID
    q, p = (trace.logprob[mask].astype(np.float64) for trace in (inference, train))
    if not _are_logprobs(q, p):
        status[mask] = _joint_status(classify(q), classify(np.maximum(p, -1.0)))
        valid = status[mask] == TokenStatus.VALID
        mask, q, p = status == TokenStatus.VALID, q[valid], p[valid]
    ell = p - q
    tally = np.bincount(status, minlength=len(TokenStatus))
    return mask, ell, q, {s: int(tally[s]) for s in TokenStatus if tally[s]}


def _are_logprobs(q: Floats, p: Floats) -> bool:
    """Whether none is NaN, or above zero by more than rounding, and no q is a sentinel or -inf (`paritas.tokens`).

    A p of -inf is a token that the trainer cannot produce: it shows as drift, and never as a match.
    """
    if not q.size:
        return True
    return bool(q.min() > SENTINEL_NATS and q.max() <= SLACK_NATS and p.max() <= SLACK_NATS)


def _joint_status(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Combine statuses: masked and prompt win (not meant to count), then whatever is broken."""
    skip = [TokenStatus.PROMPT, TokenStatus.MASKED]
    joint = np.maximum(a, b)
    for status in skip:
        joint = np.where((a == status) | (b == status), np.uint8(status), joint)
    return joint.astype(np.uint8)
