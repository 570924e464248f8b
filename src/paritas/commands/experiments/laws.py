"""Small exact policies: two kernels, scores and advantages decoded from plain numbers, many cases at once.

A case is a vector of standard-normal numbers, so that drawing cases is drawing numbers and a search
moves in them.  Contexts are states of a bandit, or the prefixes of a tree of responses.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from paritas.commands.experiments.result import Floats

__all__ = ["BANDIT", "TREE", "Laws", "Size", "decode", "log_softmax", "norm", "responses"]

DROPPED_BELOW = -1.6  # standard deviations: about one token in eighteen is cut from the sampler
ADVANTAGE_SLOPE = 1.5
LARGEST_LOGIT = 30.0  # a search that runs away still has laws without a zero


@dataclass(frozen=True, slots=True)
class Size:
    """Contexts, actions in each, and dimension of the parameters."""

    contexts: int
    actions: int
    parameters: int = 2

    def blocks(self) -> dict[str, tuple[int, ...]]:
        """Shape of each named part of a case."""
        table = (self.contexts, self.actions)
        return {
            "weight": (self.contexts,),
            "logits": table,
            "drift": table,
            "scales": (2,),
            "features": (*table, self.parameters),
            "advantage": table,
            "other": table,
            "mask": table,
        }

    @property
    def width(self) -> int:
        """Numbers that make a case."""
        return sum(int(np.prod(shape)) for shape in self.blocks().values())


BANDIT = Size(contexts=2, actions=4)
TREE = Size(contexts=7, actions=2)  # every prefix of responses of three tokens over two


@dataclass(frozen=True)
class Laws:
    """Cases decoded: n of them, s contexts, v actions, d parameters.

    Attributes
    ----------
    weight : shape (n, s)
        How often each context comes.
    p, q : shape (n, s, v)
        Training and inference kernel; q may lack mass that p has.
    full : shape (n, s, v)
        q before its mask.
    score : shape (n, s, v, d)
        Gradient of log p: features minus their mean under p.
    advantage, other : shape (n, s, v)
        In [-1, 1]; free logits for whatever else a statement needs.
    drift : shape (n, s, v), logits
    """

    weight: Floats
    p: Floats
    q: Floats
    full: Floats
    score: Floats
    advantage: Floats
    other: Floats
    drift: Floats

    @cached_property
    def log_ratio(self) -> Floats:
        """Log p - log q, nats; 0 where q is 0, which is never sampled."""
        safe = np.where(self.q > 0.0, self.q, 1.0)
        return np.where(self.q > 0.0, np.log(self.p) - np.log(safe), 0.0)

    @cached_property
    def ratio(self) -> Floats:
        """W."""
        return np.exp(self.log_ratio)

    @cached_property
    def missing(self) -> NDArray[np.bool_]:
        """Whether a case has mass under p that q lacks, shape (n,)."""
        return np.asarray((self.q == 0.0).any(axis=(1, 2)))

    @cached_property
    def score_norm(self) -> Floats:
        """G: largest norm of a score, shape (n,)."""
        return np.asarray(norm(self.score).max(axis=(1, 2)))

    @cached_property
    def largest_advantage(self) -> Floats:
        """A_max, shape (n,)."""
        return np.asarray(np.abs(self.advantage).max(axis=(1, 2)))

    @cached_property
    def tv(self) -> Floats:
        """Total variation in each context, shape (n, s)."""
        return np.asarray(np.minimum(0.5 * np.abs(self.p - self.q).sum(axis=-1), 1.0))

    def mean(self, values: Floats) -> Floats:
        """Mean over contexts and sampled actions of values of shape (n, s, v)."""
        return np.asarray(np.einsum("ns,nsv,nsv->n", self.weight, self.q, values))


def decode(case: Floats, size: Size, *, masked: bool = True) -> Laws:
    """Decode cases of shape (n, width); without `masked` both kernels have one support."""
    part = _parts(case, size)
    drift_scale, logit_scale = np.exp(part["scales"] * (1.5, 0.5) + (-1.5, 0.3)).T[:, :, None, None]
    drift, logits = (
        np.clip(part[name] * scale, -LARGEST_LOGIT, LARGEST_LOGIT)
        for name, scale in (("drift", drift_scale), ("logits", logit_scale))
    )
    full, p = np.exp(log_softmax(logits)), np.exp(log_softmax(logits + drift))
    score = part["features"] - np.einsum("nsv,nsvd->nsd", p, part["features"])[:, :, None]
    return Laws(
        np.exp(log_softmax(part["weight"])),
        p,
        _masked(full, part["mask"]) if masked else full,
        full,
        score,
        np.tanh(ADVANTAGE_SLOPE * part["advantage"]),
        part["other"],
        drift,
    )


def _parts(case: Floats, size: Size) -> dict[str, Floats]:
    shapes = size.blocks()
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
    pieces = np.split(case, ends[:-1], axis=1)
    return {name: x.reshape(-1, *shape) for (name, shape), x in zip(shapes.items(), pieces, strict=True)}


def _masked(full: Floats, mask: Floats) -> Floats:
    kept = (mask > DROPPED_BELOW) | (full == full.max(axis=-1, keepdims=True))
    q = np.where(kept, full, 0.0)
    return np.asarray(q / q.sum(axis=-1, keepdims=True))


def log_softmax(logits: Floats) -> Floats:
    """Log of the softmax over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def norm(vectors: Floats) -> Floats:
    """Euclidean norm over the last axis."""
    return np.asarray(np.sqrt(np.square(vectors).sum(axis=-1)))


def responses(horizon: int = 3, actions: int = 2) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Contexts and tokens along every response, each of shape (responses, horizon).

    Examples
    --------
    >>> contexts, tokens = responses(2)
    >>> tokens.tolist(), contexts.tolist()
    ([[0, 0], [0, 1], [1, 0], [1, 1]], [[0, 1], [0, 1], [0, 2], [0, 2]])
    """
    tokens = np.array(list(product(range(actions), repeat=horizon)), dtype=np.int64)
    contexts = np.zeros_like(tokens)
    for step in range(1, horizon):
        code = tokens[:, :step] @ actions ** np.arange(step - 1, -1, -1)
        contexts[:, step] = (actions**step - 1) // (actions - 1) + code
    return contexts, tokens
