"""Families of kernel pairs over 64 tokens in many contexts, and what is true of each pair."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.commands.experiments.laws import log_softmax
from paritas.commands.experiments.result import Floats
from paritas.contracts.bounds import reward_drift_statistics

__all__ = [
    "CAP",
    "FAMILIES",
    "Drawn",
    "Drift",
    "Pair",
    "bias",
    "confidence",
    "drawn_from",
    "gain",
    "pair_of",
    "reward",
    "tv",
]

TOKENS, CAP, ROUNDING = 64, 2.0, 1e-14
Drawn = tuple[NDArray[np.int64], NDArray[np.int64]]

Drift = Callable[[np.random.Generator, Floats], Floats]


def _rounded(_: np.random.Generator, logits: Floats) -> Floats:
    """Logits with eight significant bits, as bfloat16 has: relative error, so large logits move more."""
    step = 2.0 ** (np.floor(np.log2(np.abs(logits) + 1e-12)) - 7.0)
    return 16.0 * (np.round(logits / step) * step - logits)


FAMILIES: dict[str, Drift] = {
    "noise": lambda rng, z: rng.normal(size=z.shape),
    "rounded logits": _rounded,
    "two blocks": lambda rng, z: np.where(rng.random(z.shape) < 0.5, 1.0, -1.0),
    "one token": lambda rng, z: 3.0 * np.eye(z.shape[1])[rng.integers(0, z.shape[1], len(z))],
    "temperature": lambda _, z: 0.3 * z,
    "rare contexts": lambda rng, z: 8.0 * rng.normal(size=z.shape) * (rng.random((len(z), 1)) < 0.02),
}


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Laws of both kernels in many contexts, shape (contexts, tokens), and what they are judged by.

    Advantage and reward go with the drift: what a bound must cover, not what usually happens.

    Attributes
    ----------
    advantage, reward : shape (contexts, tokens)
        -1 or 1, and in [0, 1].
    score : shape (contexts, tokens)
        Of one parameter, with mean zero under p.
    """

    p: Floats
    q: Floats
    advantage: Floats
    reward: Floats
    score: Floats

    @property
    def log_ratio(self) -> Floats:
        """Log p - log q."""
        return np.log(self.p) - np.log(self.q)

    def mean(self, values: Floats) -> float:
        """Mean over contexts and sampled tokens."""
        return float((self.q * values).sum(axis=1).mean())


def pair_of(rng: np.random.Generator, drift: Drift, scale: float, contexts: int) -> Pair:
    """Draw a pair of one family."""
    logits = 2.0 * rng.normal(size=(contexts, TOKENS))
    p, q = np.exp(log_softmax(logits + scale * drift(rng, logits))), np.exp(log_softmax(logits))
    feature, towards = rng.choice([-1.0, 1.0], p.shape), np.sign(p - q)
    score = feature - (p * feature).sum(axis=1, keepdims=True)
    reward = 0.5 * (1.0 + towards * rng.uniform(0.2, 1.0, p.shape))
    return Pair(p, q, feature * towards, reward, score)


def drawn_from(pair: Pair, rng: np.random.Generator, samples: int) -> Drawn:
    """Contexts and tokens drawn from q."""
    context = rng.integers(0, len(pair.q), samples)
    edges = np.cumsum(pair.q, axis=1)[context]
    token = (rng.random((samples, 1)) * edges[:, -1:] > edges).sum(axis=1)
    return context, token


def tv(pair: Pair) -> float:
    """Mean total variation."""
    return float(0.5 * np.abs(pair.p - pair.q).sum(axis=1).mean())


def bias(pair: Pair, cap: float) -> float:
    """Norm of the bias in units of A_max G: without weights, or with min(w, 2)."""
    weight = np.ones_like(pair.q) if cap == 1.0 else np.minimum(np.exp(pair.log_ratio), CAP)
    bias = ((pair.q * weight - pair.p) * pair.advantage * pair.score).sum(axis=1).mean()
    return _visible(abs(float(bias)) / float(np.abs(pair.score).max()))


def _visible(value: float) -> float:
    """0 for what is rounding of a sum of terms of order one."""
    return value if value > ROUNDING else 0.0


def reward(pair: Pair) -> float:
    """Drift of the mean reward."""
    return float(((pair.p - pair.q) * pair.reward).sum(axis=1).mean())


def gain(pair: Pair) -> Floats:
    """Statistic whose mean bounds it (C6)."""
    return np.asarray(reward_drift_statistics(pair.log_ratio, pair.reward, CAP).upper)


def confidence(pair: Pair) -> float:
    """Drift of the mean top-1 confidence."""
    return float(abs((pair.p.max(axis=1) - pair.q.max(axis=1)).mean()))
