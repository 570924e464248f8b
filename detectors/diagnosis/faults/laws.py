"""Softmax policies over a small vocabulary: what sequences are drawn from and scored with.

The sampler draws each token from its own law, so E_q[w] = 1 holds wherever both laws have the same
support (A21), as it must between real kernels.  Float32 inside: thousands of cases are drawn.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from paritas.records import Sampling, TokenStatus

__all__ = ["Log", "Matrix", "Workload", "draw", "log_softmax", "truncated", "wander", "workload"]

Matrix = NDArray[np.float32]
Vector = NDArray[np.float64]
VOCABULARY, HIDDEN = 96, 8
SHORTEST, LONGEST = 12, 256  # tokens of a response


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Positions of some sequences, end to end, before anybody scored them.

    Attributes
    ----------
    lengths : shape (n,), int64, tokens
    hidden : shape (m, HIDDEN), float32
        What the model makes of the context; neighbours are alike.
    logits : shape (m, VOCABULARY), float32
        Of the exact policy.
    """

    lengths: NDArray[np.int64]
    hidden: Matrix
    logits: Matrix

    @property
    def sequence(self) -> NDArray[np.int64]:
        """Index of each token's sequence, shape (m,)."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def position(self) -> NDArray[np.int64]:
        """Position of each token in its response, shape (m,)."""
        ends = np.cumsum(self.lengths)
        return np.arange(int(self.lengths.sum())) - np.repeat(ends - self.lengths, self.lengths)

    def only(self, kept: NDArray[np.bool_]) -> "Workload":
        """Return some of the sequences, `kept` of shape (n,)."""
        rows = np.repeat(kept, self.lengths)
        return Workload(self.lengths[kept], self.hidden[rows], self.logits[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """What both kernels logged of a workload's tokens.

    Attributes
    ----------
    q, p : shape (m,), float64, nats
        Of the sampled token, by the sampler and by the trainer.
    top1_q : shape (m,), float64, probability; is_top1 : shape (m,), 0 or 1
        Of the most likely token of the logged law.
    broken : shape (m,), uint8
        Joint `TokenStatus` of each token.
    lag : int
        Updates the sampler's declared weights are behind; such sequences do not pair.
    """

    q: Vector
    p: Vector
    top1_q: Vector
    is_top1: Vector
    broken: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    sampling: Sampling = Sampling()
    lag: int = 0

    @classmethod
    def of(cls, tokens: NDArray[np.int64], logged: Matrix, train: Matrix) -> "Log":
        """Read both log laws, shape (m, VOCABULARY), at the sampled tokens."""
        rows, best = np.arange(len(tokens)), logged.argmax(axis=1)
        q, p, top = (law[rows, at].astype(np.float64) for law, at in _read(logged, train, tokens, best))
        is_top1 = (best == tokens).astype(np.float64)
        return cls(q, p, np.exp(top), is_top1, np.zeros(len(q), np.uint8))

    def with_status(self, where: NDArray[np.bool_], status: TokenStatus) -> "Log":
        """Return the log with a status at some tokens, shape (m,)."""
        return replace(self, broken=np.where(where, np.uint8(status), self.broken).astype(np.uint8))


def _read(
    logged: Matrix, train: Matrix, tokens: NDArray[np.int64], best: NDArray[np.int64]
) -> tuple[tuple[Matrix, NDArray[np.int64]], ...]:
    return (logged, tokens), (train, tokens), (logged, best)


def workload(rng: np.random.Generator, sequences: int, mean_tokens: float, sharpness: float) -> Workload:
    """Return random contexts of one random policy.

    Parameters
    ----------
    sharpness : float
        1 is as undecided as a base model of 135M parameters, 2.5 as sure as a tuned model.
    """
    lengths = rng.lognormal(np.log(mean_tokens), 0.5, sequences).round().clip(SHORTEST, LONGEST)
    bare = Workload(lengths.astype(np.int64), np.zeros((0, 0), np.float32), np.zeros((0, 0), np.float32))
    hidden = wander(rng, bare, 0.7, HIDDEN)
    head = rng.standard_normal((HIDDEN, VOCABULARY), np.float32)
    scale = sharpness * rng.lognormal(-0.1, 0.7, len(hidden)).astype(np.float32)
    return replace(bare, hidden=hidden, logits=scale[:, None] * (hidden @ head))


def wander(rng: np.random.Generator, work: Workload, memory: float, width: int = 1) -> Matrix:
    """Return standard normal walks that forget, started anew with each sequence, shape (m, width), float32."""
    steps = rng.standard_normal((int(work.lengths.max(initial=0)), len(work.lengths), width), np.float32)
    rest = np.float32(np.sqrt(1.0 - memory**2))
    for i in range(1, len(steps)):
        steps[i] = np.float32(memory) * steps[i - 1] + rest * steps[i]
    return steps[work.position, work.sequence]


def log_softmax(logits: Matrix) -> Matrix:
    """Log law of each row."""
    top = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(top - np.log(np.exp(top).sum(axis=1, keepdims=True)), np.float32)


def draw(rng: np.random.Generator, law: Matrix) -> NDArray[np.int64]:
    """Draw a token from each row of a log law, shape (m,)."""
    mass = np.exp(law).cumsum(axis=1)
    at = rng.random((len(law), 1), np.float32) * mass[:, -1:]
    return np.asarray((mass < at).sum(axis=1).clip(0, law.shape[1] - 1), np.int64)


def truncated(law: Matrix, *, top_p: float = 1.0, top_k: int = 0, min_p: float = 0.0) -> Matrix:
    """Return the log law renormalised over what sampling keeps; the rest is at -inf (A11)."""
    ranked = -np.sort(-law, axis=1)
    mass = np.exp(ranked)
    kept = (mass.cumsum(axis=1) - mass < top_p) & (mass >= min_p * mass[:, :1])
    if top_k:
        kept[:, top_k:] = False
    floor = np.where(kept, ranked, np.inf).min(axis=1, keepdims=True)
    cut = np.where(law >= floor, law, -np.inf)
    return np.asarray(cut - np.log(np.exp(cut).sum(axis=1, keepdims=True)), np.float32)
