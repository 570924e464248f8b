"""Streams exactly at every limit: sequences from a few kinds of context whose every mean is known.

A sequence is of one kind, all its tokens from that kind's pair of laws over three tokens, so tokens
inside a sequence depend on each other as they do in text.  Its counts of the three tokens decide every
statistic, so all possible sequences are enumerated once, given to the detectors' own per-sequence
statistics, and the exact mean of each statistic becomes the limit of its clause.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lgamma
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritas.commands.experiments.boundary_own import own_streams
from paritas.commands.experiments.result import Floats
from paritas.contracts.catalogue import Test, find
from paritas.contracts.model import Clause
from paritas.detectors.bank import multipliers_of
from paritas.detectors.bets import multipliers
from paritas.detectors.evidence import PairBatch
from paritas.detectors.pairs import PairedTrace, TopColumns
from paritas.detectors.rows import Row
from paritas.detectors.statistics import token_bets, unit_values
from paritas.records import KernelIdentity, Role, Sampling, Timings, TokenStatus

__all__ = ["NOT_SIMULATED", "TOKENS", "Outcomes", "Stream", "outcomes_of", "streams"]

TOKENS = 16  # of a sequence
# kinds of context: share of sequences, inference law, log-ratio of the first two tokens (nats)
KINDS: tuple[tuple[float, tuple[float, float, float], tuple[float, float]], ...] = (
    (0.40, (0.90, 0.07, 0.03), (0.004, -0.03)),
    (0.25, (0.50, 0.30, 0.20), (0.03, -0.05)),
    (0.20, (0.60, 0.39, 0.01), (-0.04, 0.06)),
    (0.12, (0.36, 0.34, 0.30), (-0.08, 0.05)),
    (0.03, (0.70, 0.20, 0.10), (-0.6, 0.69)),  # rare and far off: a heavy tail
)
# Statistics without a stream, and why none can alarm falsely at its limit.
NOT_SIMULATED: Mapping[str, str] = MappingProxyType(
    {
        "kernel_identity": "compared field by field with what the contract declares: nothing is estimated",
        "weights_lag": "a supremum: one lag above the limit refutes it, and none is above it at the limit",
        "silence": "a supremum of time since the last record: above the limit or not",
        "agent_silence": "a supremum of time since an agent's last record: above the limit or not",
    }
)
REWARDS = (1.0, 0.4, 0.0)  # of a sequence: mean over its tokens
MIDDLE = 0.6  # advantage of a sequence: its reward beyond this
MISLOGGED = 0.01  # by how much the log understates the top-1 probability: what the clause allows


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Every possible sequence: its probability and its columns.

    Attributes
    ----------
    probability : shape (m,)
    batch : PairBatch
        The m sequences.
    """

    probability: Floats
    batch: PairBatch

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """Places of `size` sequences."""
        edges = np.cumsum(self.probability)
        return np.asarray(np.minimum(np.searchsorted(edges, rng.random(size) * edges[-1]), len(edges) - 1))

    def draw_alike(self, rng: np.random.Generator, size: int, members: int) -> NDArray[np.int64]:
        """Places of `members` sequences of one kind for each of `size` groups, shape (members, size)."""
        edges = np.cumsum(self.probability)
        each = len(edges) // len(KINDS)
        kind = self.draw(rng, size) // each
        ends = np.concatenate([[0.0], edges[each - 1 :: each]])
        low, high = ends[kind], ends[kind + 1]
        told = np.searchsorted(edges, low + rng.random((members, size)) * (high - low))
        return np.asarray(np.clip(told, kind * each, (kind + 1) * each - 1))

    def mean(self, values: Floats) -> float:
        """Exact mean of a statistic over the sequences that tell it, which are not NaN."""
        known = ~np.isnan(values)
        return float(self.probability[known] @ values[known] / self.probability[known].sum())


def outcomes_of(tokens: int = TOKENS) -> Outcomes:
    """Enumerate the sequences of `tokens` tokens."""
    counts = np.array([(a, b, tokens - a - b) for a in range(tokens + 1) for b in range(tokens + 1 - a)])
    laws = [_laws(q, drift) for _, q, drift in KINDS]
    probability = np.concatenate(
        [share * _multinomial(counts, q) for (share, *_), (q, _) in zip(KINDS, laws, strict=True)]
    )
    return Outcomes(probability, PairBatch.of([pair for law in laws for pair in _pairs(counts, law)]))


def _laws(q: Sequence[float], drift: Sequence[float]) -> tuple[Floats, Floats]:
    """Inference and training law; the third token takes what is left."""
    law = np.array(q)
    p = law[:2] * np.exp(drift)
    return law, np.append(p, 1.0 - p.sum())


def _multinomial(counts: NDArray[np.int64], law: Floats) -> Floats:
    logs = np.array([lgamma(n + 1) for n in range(counts.sum(axis=1).max() + 1)])
    return np.asarray(np.exp(logs[-1] - logs[counts].sum(axis=1) + counts @ np.log(law)))


def _pairs(counts: NDArray[np.int64], law: tuple[Floats, Floats]) -> list[PairedTrace]:
    """Every sequence of one kind; its tokens stand in the order of the vocabulary."""
    q, p = law
    drift, tops = np.log(p) - np.log(q), _top(q, p)
    return [_pair(np.repeat(np.arange(3), row), drift, np.log(q), tops) for row in counts]


def _pair(ids: NDArray[np.int64], drift: Floats, logq: Floats, tops: Sequence[Floats]) -> PairedTrace:
    size = len(ids)
    reward = np.take(REWARDS, ids).mean()
    return PairedTrace(
        run_id="boundary",
        sequence_id="",
        group_id="",
        trace_id="",
        weights_version="",
        event_ns=0,
        attributes={"reward": repr(float(reward)), "advantage": repr(float(reward) - MIDDLE)},
        log_ratio=drift[ids],
        logprob_q=logq[ids],
        position=np.arange(size, dtype=np.int64),
        counts={TokenStatus.VALID: size},
        inference=KernelIdentity(Role.INFERENCE),
        train=KernelIdentity(Role.TRAIN),
        sampling=Sampling(),
        train_sampling=Sampling(),
        timings=Timings(),
        itl_mean_s=np.nan,
        top=TopColumns(*(column[ids] for column in tops)),
    )


def _top(q: Floats, p: Floats) -> tuple[Floats, ...]:
    """Columns by token from complete lists of both kernels, in the order of `TopColumns`."""
    best, trained = int(q.argmax()), int(p.argmax())
    constants = (
        np.maximum(q - p, 0.0).sum(),
        np.ptp(np.log(p) - np.log(q)),
        float(best != trained),
        q[trained] - p[trained],
        np.nan,  # TV is left to be estimated
    )
    logged = np.full(3, q[best] - MISLOGGED)
    return logged, (np.arange(3) == best).astype(np.float64), *(np.full(3, value) for value in constants)


@dataclass(frozen=True, eq=False)
class Stream:
    """One clause whose limit is the exact mean of what it sees.

    Attributes
    ----------
    clause : Clause
    values : shape (m,) or None
        Of each possible sequence, NaN where it tells nothing; None where values are drawn on their own.
    own : callable or None
        Generator and size in, values of units that have a law of their own out.
    """

    clause: Clause
    values: Floats | None
    own: Callable[[np.random.Generator, int], Floats] | None = None

    def factors(self, row: Row, told: Outcomes) -> tuple[Floats, Floats, Floats]:
        """Scaled values (m,) and factors of the bets (m, k) up and down of each possible sequence."""
        assert self.values is not None
        scaled = row.scale.down(self.values)
        up, down = multipliers(row, scaled)
        if row.entry.test is Test.CONDITIONAL_MEAN:
            up = multipliers_of(token_bets(told.batch, self.clause, None, row.up))
        return np.where(np.isnan(scaled), row.tau, scaled), up, down

    def drawn(self, rng: np.random.Generator, size: int) -> Floats:
        """Values of `size` units that have a law of their own."""
        assert self.own is not None
        return self.own(rng, size)


def streams(told: Outcomes) -> tuple[Stream, ...]:
    """Return a stream of every kind of test and statistic, each exactly at its limit."""
    ratio = [Stream(_at_mean(clause, told), unit_values(told.batch, clause)) for clause in _clauses()]
    return (*ratio, *(Stream(clause, None, draw) for clause, draw in own_streams()))


def _clauses() -> tuple[Clause, ...]:
    """Clauses on what the ratio says, limits to be filled in."""
    options: dict[str, dict[str, Any]] = {
        "ratio_tail": {"above": 1.5},
        "gradient_bias": {"cap": 1.05},
        "phantom_clip_rate": {"clip": 0.05},
        "ppo_clip_rate": {"clip": 0.05, "clip_high": 0.06},
        "gspo_clip_rate": {"clip": 0.03},
        "mean_ratio": {"cap": 2.0},
        "confidence_drift": {"temperature": 1.5, "smoothing": 0.1},
    }
    names = (
        *("tv", "tv_topk", "logit_oscillation", "argmax_flip_rate", "logprob_abs_diff", "probability_gap"),
        *("ratio_tail", "mean_ratio", "top1_frequency", "sequence_tv", "gradient_bias", "phantom_clip_rate"),
        *("calibration_gap", "kl_k3", "chi_square", "ess", "trust_region_kl", "distillation_drift"),
        *("reward_loss", "reward_gain", "ppo_clip_rate", "gspo_clip_rate", "confidence_drift"),
    )
    return tuple(
        Clause(name, find(name).family, name, at_most=0.0, **options.get(name, {})) for name in names
    )


def _at_mean(clause: Clause, told: Outcomes) -> Clause:
    """Return the clause with the exact mean as its limit; nulls that hold by law keep theirs."""
    mean = told.mean(unit_values(told.batch, clause))
    match clause.statistic:
        case "top1_frequency":
            return replace(clause, at_most=MISLOGGED)
        case "mean_ratio":
            return replace(clause, at_most=1.0)
        case "calibration_gap":
            return replace(clause, at_most=abs(mean))
        case "ess":
            return replace(clause, at_most=None, at_least=1.0 / mean)
        case _:
            return replace(clause, at_most=mean)
