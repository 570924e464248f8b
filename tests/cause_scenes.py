"""Synthetic pairs of kernels with one known fault each, from softmax laws token by token.

The policy has power-law logits over a small vocabulary; the sampler draws from `q`, the trainer
scores with `p`, and every fault is made where it happens in reality: in the logits, in the
sampling law, in the log, or in the alignment.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from pair_factory import no_lists, pair

from paritas.detectors.diagnosis import Cause
from paritas.records import LogprobSemantics, Sampling, TokenStatus

SEQUENCES, LENGTH, VOCABULARY = 64, 96, 48
RAW_WARM = Sampling(0.6, 1.0, semantics=LogprobSemantics.RAW)


def softmax(logits):
    mass = np.exp(logits - logits.max(1, keepdims=True))
    return mass / mass.sum(1, keepdims=True)


def policy(rng, tokens):
    """Logits of one random policy, from nearly certain to nearly flat positions."""
    sharpness = rng.uniform(0.5, 4.0, (tokens, 1))
    ranks = np.log(1.0 + rng.permuted(np.tile(np.arange(VOCABULARY), (tokens, 1)), axis=1))
    return -sharpness * ranks


def heavy(rng, shape, spread):
    """Noise whose scale differs from token to token: kurtosis 3 exp(4 spread^2)."""
    scale = np.exp(spread * rng.normal(size=(shape[0], 1)) - spread**2)
    return scale * rng.normal(size=shape)


def draw(rng, law):
    """Draw one token of each row."""
    return (law.cumsum(1) < rng.random((len(law), 1))).sum(1).clip(0, law.shape[1] - 1)


@dataclass(frozen=True)
class Log:
    """What both kernels logged of all tokens, end to end."""

    q: np.ndarray  # log-probability, inference
    p: np.ndarray  # log-probability, train
    top1_q: np.ndarray
    is_top1: np.ndarray
    sampling: Sampling = Sampling()
    broken: tuple[TokenStatus, float] | None = None


def logged(rng, p_law, q_law, drawn_from=None, **more):
    """Log what `p_law` and `q_law` say of tokens drawn from `q_law`, or from another law."""
    tokens = draw(rng, q_law if drawn_from is None else drawn_from)
    rows, best = np.arange(len(tokens)), q_law.argmax(1)
    with np.errstate(divide="ignore"):
        q, p = np.log(q_law[rows, tokens]), np.log(p_law[rows, tokens])
    return Log(q, p, q_law[rows, best], (best == tokens).astype(float), **more)


def precision(rng, size, spread):
    z = policy(rng, SEQUENCES * LENGTH)
    return logged(rng, softmax(z + size * heavy(rng, z.shape, spread)), softmax(z))


def temperature(rng, warmth):
    z = policy(rng, SEQUENCES * LENGTH)
    z_train = z + 0.03 * rng.normal(size=z.shape)
    return logged(rng, softmax(z_train), softmax(z / warmth))


def support(rng, top_p):
    z = policy(rng, SEQUENCES * LENGTH)
    law = softmax(z)
    order = np.argsort(-law, axis=1)
    ranked = np.take_along_axis(law, order, 1)
    kept = np.zeros_like(law)
    np.put_along_axis(kept, order, (ranked.cumsum(1) - ranked < top_p).astype(float), 1)
    cut = law * kept
    p_law = softmax(z + 0.01 * rng.normal(size=z.shape))
    return logged(rng, p_law, cut / cut.sum(1, keepdims=True))


def wrong_law(rng, warmth, *, told):
    z = policy(rng, SEQUENCES * LENGTH)
    p_law = softmax(z + 0.03 * rng.normal(size=z.shape))
    more = {"sampling": RAW_WARM if told else Sampling(1.0, 1.0, semantics=LogprobSemantics.RAW)}
    return logged(rng, p_law, softmax(z), softmax(z / warmth), **more)


def learned(rng, step):
    """Return a trainer that has learned the sampled tokens: their probability went up."""
    log = precision(rng, 0.03, 0.5)
    gain = step * rng.exponential(size=len(log.q)) * (1.0 - np.exp(log.q))
    return replace(log, p=np.minimum(log.p + gain, -1e-6))


def moved(rng, share, step):
    """Return a trainer whose weights moved elsewhere: a few tokens carry the whole drift, E w = 1."""
    z = policy(rng, SEQUENCES * LENGTH)
    hit = rng.random((len(z), 1)) < share
    return logged(rng, softmax(z + np.where(hit, step, 0.012) * rng.normal(size=z.shape)), softmax(z))


def growing(rng, factor):
    """Noise that grows along the response."""
    z = policy(rng, SEQUENCES * LENGTH)
    place = np.tile(np.arange(LENGTH), SEQUENCES)[:, None] / LENGTH
    return logged(rng, softmax(z + 0.05 * (1 + factor * place) * rng.normal(size=z.shape)), softmax(z))


def shifted(rng, by):
    log = precision(rng, 0.03, 0.5)
    rows = log.p.reshape(SEQUENCES, LENGTH)
    return replace(log, p=np.roll(rows, by, axis=1).reshape(-1))


def broken(rng, status, share):
    return replace(precision(rng, 0.03, 0.5), broken=(status, share))


def lopsided(rng, size):
    """Return a drift that no cause makes: mostly downwards, of uneven size, not heavy."""
    log = precision(rng, 0.001, 0.1)
    return replace(log, p=log.q - size * rng.exponential(size=len(log.q)) ** 1.5)


@dataclass(frozen=True)
class Case:
    """One way to make one fault."""

    cause: Cause
    make: Callable
    arguments: tuple
    options: tuple = ()

    def __str__(self):
        told = [str(a) for a in self.arguments] + [f"{k}={v}" for k, v in self.options]
        return f"{self.cause.value}-{self.make.__name__}-{'-'.join(told)}"

    def log(self, seed):
        return self.make(np.random.default_rng(seed), *self.arguments, **dict(self.options))


CASES = (
    *(Case(Cause.PRECISION, precision, (s, h)) for s in (0.005, 0.05, 0.2, 0.5) for h in (0.0, 0.25, 0.45)),
    *(Case(Cause.TEMPERATURE, temperature, (t,)) for t in (0.6, 0.8, 1.25, 1.5)),
    *(Case(Cause.SUPPORT, support, (t,)) for t in (0.8, 0.9, 0.95)),
    *(
        Case(Cause.WRONG_LAW, wrong_law, (t,), (("told", told),))
        for t in (0.6, 0.8)
        for told in (True, False)
    ),
    *(Case(Cause.STALE, learned, (s,)) for s in (0.05, 0.2, 0.5)),
    *(Case(Cause.STALE, moved, (s, 0.6)) for s in (0.01, 0.02)),
    *(Case(Cause.POSITION, growing, (f,)) for f in (2.0, 4.0)),
    *(Case(Cause.SHIFT, shifted, (b,)) for b in (1, -1)),
    *(
        Case(Cause.BROKEN, broken, (s, 0.01))
        for s in (TokenStatus.NONFINITE, TokenStatus.SENTINEL, TokenStatus.MISSING, TokenStatus.POSITIVE)
    ),
    *(Case(Cause.UNKNOWN, lopsided, (s,)) for s in (0.05, 0.3)),
)


def pairs_of(log, rng, **more):
    """Cut a log into paired sequences."""
    ends = np.arange(LENGTH, len(log.q) + 1, LENGTH)
    return [_pair(log, slice(end - LENGTH, end), rng, i, more) for i, end in enumerate(ends)]


def _pair(log, span, rng, number, more):
    kept = np.ones(LENGTH, bool)
    counts = {}
    if log.broken is not None:
        status, share = log.broken
        kept = rng.random(LENGTH) >= share
        counts = {status: int(LENGTH - kept.sum())}
    q, ell = log.q[span][kept], (log.p - log.q)[span][kept]
    top = replace(no_lists(kept.sum()), top1_q=log.top1_q[span][kept], is_top1=log.is_top1[span][kept])
    counts = {TokenStatus.VALID: int(kept.sum()), **{s: n for s, n in counts.items() if n}}
    return pair(
        ell,
        q,
        name=f"s-{number:03}",
        position=np.flatnonzero(kept),
        counts=counts,
        top=top,
        sampling=log.sampling,
        event_ns=number * 1_000_000,
        **more,
    )
