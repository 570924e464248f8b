"""Random pairs of kernels, exact to rounding, for the property tests of the bounds.

A row is one prefix: inference logits, a drift, and what follows from them.  The Hypothesis
strategies choose sizes, scales and shapes; a seed fills the rows, so that one example
checks many rows at once.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from hypothesis import strategies as st
from scipy.special import expit

RELATIVE = 1e-6  # rounding allowed above a bound
ABSOLUTE = 1e-12  # rounding of the quantity itself, which is a sum of terms of order one
ROWS = 24

SHAPES = ("gaussian", "blocks", "one_hot", "heavy", "uniform")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Rows of two kernels with one support; q is sampled from, p is trained."""

    logits: np.ndarray  # (rows, n), inference kernel
    drift: np.ndarray  # (rows, n), train minus inference
    temperature: np.ndarray  # (rows,)

    @cached_property
    def q(self):
        scaled = self.logits / self.temperature[:, None]
        mass = np.exp(scaled - scaled.max(1, keepdims=True))
        return mass / mass.sum(1, keepdims=True)

    @cached_property
    def log_ratio(self):
        """log p - log q; small drifts go through expm1 and log1p so that nothing cancels."""
        x = self.drift / self.temperature[:, None]
        x = x - x.max(1, keepdims=True)
        far = np.log((self.q * np.exp(x)).sum(1, keepdims=True))
        near = np.log1p(np.maximum((self.q * np.expm1(x)).sum(1, keepdims=True), -0.9))
        return x - np.where(np.abs(x).max(1, keepdims=True) < 0.5, near, far)

    @cached_property
    def p(self):
        return self.q * np.exp(self.log_ratio)

    @cached_property
    def w(self):
        return np.exp(self.log_ratio)

    @cached_property
    def oscillation(self):
        return np.ptp(self.drift, axis=1) / self.temperature


def pairs_of(logits, drift, temperature=1.0):
    """Rows from lists; one temperature for all."""
    z, d = np.atleast_2d(np.asarray(logits, float)), np.atleast_2d(np.asarray(drift, float))
    return Pairs(z, d, np.full(len(z), float(temperature)))


def coin(log_odds, oscillation):
    """Two tokens: logit of q(first) is `log_odds`, of p(first) `log_odds + oscillation`."""
    return pairs_of([log_odds, 0.0], [oscillation, 0.0])


def symmetric_coin(oscillation):
    """Return the pair that reaches A2, A5, A7: q(A) = sigmoid(-D/2), p(A) = sigmoid(D/2)."""
    return coin(-oscillation / 2, oscillation)


def two_valued(drift, lowest):
    """Return the pair whose ratio takes the values m and m e^D, m = `lowest`."""
    raised = (1 - lowest) / (lowest * np.expm1(drift))
    return coin(np.log(raised) - np.log1p(-raised), drift)


def blocks(log_odds, oscillation, sizes=(3, 4)):
    """`coin` with each side split evenly into several tokens."""
    left, right = sizes
    logits = [log_odds - np.log(left)] * left + [-np.log(right)] * right
    return pairs_of(logits, [oscillation] * left + [0.0] * right)


def four_tokens(oscillation):
    """Return p, q, score and advantage of D2: E_p g = E_p A = 0, A g aligned with p - q."""
    x, y = float(expit(oscillation / 2)), float(expit(-oscillation / 2))
    p, q = np.array([x, x, 1 - x, 1 - x]) / 2, np.array([y, y, 1 - y, 1 - y]) / 2
    return p, q, np.array([1.0, -1.0, 1.0, -1.0]), np.array([1.0, -1.0, -1.0, 1.0])


def drift_rows(rng, shape, rows, n):
    match shape:
        case "gaussian":
            return rng.normal(size=(rows, n))
        case "blocks":
            return np.where(rng.random((rows, n)) < rng.random((rows, 1)), 1.0, -1.0)
        case "one_hot":
            return np.eye(n)[rng.integers(0, n, rows)]
        case "heavy":
            return np.clip(rng.standard_cauchy((rows, n)), -30, 30)
        case _:
            return rng.uniform(-1, 1, (rows, n))


def random_pairs(rng, n, rows=ROWS, *, shape="gaussian", drift_scale=0.1, logit_scale=2.0):
    """Rows with one drift shape and scale, temperatures between 0.3 and 3."""
    temperature = np.exp(rng.uniform(np.log(0.3), np.log(3.0), rows))
    drift = drift_rows(rng, shape, rows, n) * drift_scale
    return Pairs(rng.normal(size=(rows, n)) * logit_scale, drift, temperature)


SEEDS = st.integers(0, 2**32 - 1)
VOCABULARIES = st.sampled_from((2, 3, 5, 17, 64))
DRIFT_SCALES = st.floats(-3.5, 0.7).map(lambda e: 10.0**e)
LOGIT_SCALES = st.sampled_from((0.01, 0.3, 1.0, 3.0, 6.0))


@st.composite
def softmax_pairs(draw, vocabularies=VOCABULARIES):
    """Rows of random pairs on one support."""
    rng = np.random.default_rng(draw(SEEDS))
    shape, scale = draw(st.sampled_from(SHAPES)), draw(DRIFT_SCALES)
    return random_pairs(
        rng, draw(vocabularies), shape=shape, drift_scale=scale, logit_scale=draw(LOGIT_SCALES)
    )


@dataclass(frozen=True, eq=False)
class Mismatched:
    """Rows of two laws whose supports differ both ways."""

    p: np.ndarray
    q: np.ndarray

    @cached_property
    def log_ratio(self):
        """log p - log q where q > 0, minus infinity where p = 0, and 0 where q = 0 (never sampled)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.q > 0, np.log(self.p) - np.log(self.q), 0.0)

    @cached_property
    def missing(self):
        """Missing mass: p where q = 0."""
        return (self.p * (self.q == 0)).sum(1)


@st.composite
def mismatched_pairs(draw):
    """Rows of random pairs, each side truncated to its own random set."""
    pairs = draw(softmax_pairs())
    rng = np.random.default_rng(draw(SEEDS))
    return Mismatched(
        restrict(pairs.p, random_sets(rng, pairs.p)), restrict(pairs.q, random_sets(rng, pairs.q))
    )


def random_sets(rng, like, share=0.7):
    """Random non-empty token sets, one a row."""
    kept = rng.random(like.shape) < share
    kept[np.arange(len(kept)), rng.integers(0, kept.shape[1], len(kept))] = True
    return kept


def restrict(law, kept):
    """Renormalise `law` on `kept`."""
    inside = law * kept
    return inside / inside.sum(1, keepdims=True)


def total_variation(p, q):
    return 0.5 * np.abs(p - q).sum(-1)


def kl_inference_to_train(pairs):
    """KL(q, p) as a sum of non-negative terms."""
    return (pairs.q * (np.expm1(pairs.log_ratio) - pairs.log_ratio)).sum(1)


def kl_train_to_inference(pairs):
    return (pairs.p * (np.expm1(-pairs.log_ratio) + pairs.log_ratio)).sum(1)


def chi_square(pairs):
    return (pairs.q * np.expm1(pairs.log_ratio) ** 2).sum(1)


def assert_holds(quantity, bound):
    """Fail where a quantity exceeds its bound by more than rounding."""
    quantity, bound = np.broadcast_arrays(np.asarray(quantity, float), np.asarray(bound, float))
    assert not np.isnan(quantity).any()
    assert not np.isnan(bound).any()
    worst = np.argmax(quantity - (bound * (1 + RELATIVE) + ABSOLUTE))
    assert (quantity <= bound * (1 + RELATIVE) + ABSOLUTE).all(), (quantity.flat[worst], bound.flat[worst])


def assert_reached(quantity, bound, *, share=0.99):
    """Fail unless the quantity comes within `share` of its bound, from below, everywhere."""
    assert_holds(quantity, bound)
    ratio = np.asarray(quantity, float) / np.asarray(bound, float)
    assert (ratio >= share).all(), ratio


def random_scores(rng, p, dimension=3):
    """Score vectors with E_p g = 0 and largest norm 1, as (rows, n, dimension)."""
    g = rng.normal(size=(*p.shape, dimension))
    g = g - (p[..., None] * g).sum(-2, keepdims=True)
    return g / np.linalg.norm(g, axis=-1).max(-1)[..., None, None]


@dataclass(frozen=True, eq=False)
class Tree:
    """Prefix-dependent kernels over every response of a fixed length, enumerated.

    `p`, `q`: one array a step, (rows, prefixes, n).  `before_p`, `before_q`: laws of the
    prefixes before each step, and of the whole response last, (rows, prefixes).
    """

    p: list
    q: list
    oscillation: list  # (rows, prefixes) a step
    kl: list  # KL(q, p), (rows, prefixes) a step
    before_p: list
    before_q: list

    @property
    def horizon(self):
        return len(self.p)

    @property
    def sup_oscillation(self):
        """(rows, horizon)."""
        return np.stack([d.max(1) for d in self.oscillation], 1)

    @property
    def sequence_tv(self):
        return total_variation(self.before_p[-1], self.before_q[-1])

    @property
    def sequence_log_ratio(self):
        return np.log(self.before_p[-1]) - np.log(self.before_q[-1])


def random_tree(rng, n, horizon, rows=ROWS):
    steps = []
    for t in range(horizon):
        scale = np.repeat(10.0 ** rng.uniform(-2.5, 0.3, rows), n**t)[:, None]
        shape = SHAPES[rng.integers(len(SHAPES))]
        one = random_pairs(rng, n, rows * n**t, shape=shape, drift_scale=scale, logit_scale=1.5)
        steps.append(one)
    return tree_of(steps, rows, n)


def tree_of(steps, rows, n):
    grid = [(len(s.q) // rows, s) for s in steps]
    p = [s.p.reshape(rows, m, n) for m, s in grid]
    q = [s.q.reshape(rows, m, n) for m, s in grid]
    oscillation = [s.oscillation.reshape(rows, m) for m, s in grid]
    kl = [kl_inference_to_train(s).reshape(rows, m) for m, s in grid]
    return Tree(p, q, oscillation, kl, prefix_laws(p), prefix_laws(q))


def prefix_laws(steps):
    laws = [np.ones((len(steps[0]), 1))]
    for step in steps:
        laws.append((laws[-1][:, :, None] * step).reshape(len(step), -1))
    return laws


@st.composite
def trees(draw):
    """Random trees of 2 to 4 steps over 2 or 3 tokens."""
    n, horizon = draw(st.sampled_from(((2, 2), (2, 4), (3, 3), (2, 3))))
    return random_tree(np.random.default_rng(draw(SEEDS)), n, horizon)
