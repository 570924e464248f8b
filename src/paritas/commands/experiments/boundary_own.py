"""Streams at the limit whose units are no single sequences: windows, pairs of answers, and what is counted.

Their means are exact too: of mixtures by arithmetic, of preference pairs by enumerating both answers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paritas.commands.experiments.result import Floats
from paritas.contracts.model import Clause, Family
from paritas.detectors.evidence import PairBatch
from paritas.detectors.pairs import PairedTrace, TopColumns
from paritas.detectors.statistics import unit_values
from paritas.records import KernelIdentity, Role, Sampling, Timings, TokenStatus

__all__ = ["own_streams"]

Draw = Callable[[np.random.Generator, int], Floats]

LENGTH = 16  # tokens of a sequence and requests of a window: what shares are shares of
PARETO = 2.5  # tail index of a latency whose mean is bound
# prompts of a preference pair: share, and the log-ratio of an answer by kind with its probability
PROMPTS: tuple[tuple[float, tuple[float, ...], tuple[float, ...]], ...] = (
    (0.6, (-0.4, 0.0, 0.3), (0.2, 0.5, 0.3)),
    (0.3, (-2.0, 0.1, 1.0), (0.1, 0.6, 0.3)),
    (0.1, (-9.0, 0.5, 4.0), (0.05, 0.9, 0.05)),  # rare and far off
)
BETA = 0.5
DISTANCE, USUAL = 0.1, (0.75, 0.5, 0.25, 0.1, 0.05, 0.01)  # Kolmogorov distance; usual shares above quantiles


def own_streams() -> tuple[tuple[Clause, Draw], ...]:
    """Clauses with their limit, and what draws their units."""
    observability, runtime = Family.OBSERVABILITY, Family.RUNTIME
    slow = _Shares((0.0, 0.08), (0.75, 0.25))
    lost = _Shares((0.0, 0.2), (0.95, 0.05))
    broken = _Shares((0.0, 0.5), (0.998, 0.002))
    preferences = _Preferences.of(
        Clause("dpo_margin_drift", Family.STATISTICAL, "dpo_margin_drift", at_most=0.0, beta=BETA)
    )
    latency = Clause("latency", runtime, "inter_token_latency", at_most=0.02)
    return (
        (Clause("paired", observability, "pairing_rate", at_least=0.995), _yes(0.995)),
        (Clause("semantics", observability, "logprob_semantics_known", at_least=0.98), _yes(0.98)),
        (Clause("missing", observability, "missing_rate", at_most=lost.mean), lost),
        (Clause("finite", observability, "nonfinite_rate", at_most=broken.mean), broken),
        (_quantile("slow-share", "time_to_first_token", slow.mean), slow),
        (_quantile("slow-tokens", "inter_token_latency", slow.mean), slow),
        (latency, _pareto(0.02)),
        (_shape("first-shape", "time_to_first_token_shape"), _differences),
        (_shape("token-shape", "inter_token_latency_shape"), _differences),
        (preferences.clause, preferences),
    )


def _quantile(name: str, statistic: str, share: float) -> Clause:
    """A clause that lets this share of the requests of a window be slow."""
    return Clause(name, Family.RUNTIME, statistic, at_most=0.5, quantile=1.0 - share)


def _shape(name: str, statistic: str) -> Clause:
    return Clause(name, Family.RUNTIME, statistic, at_most=DISTANCE)


def _differences(rng: np.random.Generator, size: int) -> Floats:
    """Shares above a reference quantile less the usual one: at every quantile exactly `DISTANCE` too many."""
    usual = rng.choice(USUAL, size)  # whichever quantile the windows before pointed to
    return np.asarray(rng.binomial(LENGTH, usual + DISTANCE) / LENGTH - usual)


def _yes(share: float) -> Draw:
    return lambda rng, size: (rng.random(size) < share).astype(np.float64)


def _pareto(mean: float) -> Draw:
    return lambda rng, size: mean * (PARETO - 1.0) / PARETO * (1.0 + rng.pareto(PARETO, size))


@dataclass(frozen=True, slots=True)
class _Shares:
    """Shares of `LENGTH` tokens or requests that depend on each other: each unit has a rate of its own."""

    rates: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Exact mean share."""
        return float(np.dot(self.rates, self.weights))

    def __call__(self, rng: np.random.Generator, size: int, /) -> Floats:
        """Draw units."""
        rate = rng.choice(self.rates, size, p=self.weights)
        return np.asarray(rng.binomial(LENGTH, rate) / LENGTH)


@dataclass(frozen=True, slots=True, eq=False)
class _Preferences:
    """Every pair of a chosen and a rejected answer to one prompt, by the detectors' own statistic.

    Attributes
    ----------
    values, edges : shape (g,)
        Of each pair: its value, and its probability added to those before it.
    """

    clause: Clause
    values: Floats
    edges: Floats

    @classmethod
    def of(cls, clause: Clause) -> "_Preferences":
        """Enumerate the pairs; the exact mean becomes the limit."""
        groups = [
            (share * a * b, x, y)
            for share, drift, p in PROMPTS
            for x, a in zip(drift, p, strict=True)
            for y, b in zip(drift, p, strict=True)
        ]
        batch = PairBatch.of([one for i, (_, *both) in enumerate(groups) for one in _answers(str(i), both)])
        values, weight = unit_values(batch, clause)[::2], np.array([told[0] for told in groups])
        return cls(replace(clause, at_most=float(weight @ values)), values, np.cumsum(weight))

    def __call__(self, rng: np.random.Generator, size: int, /) -> Floats:
        """Draw pairs, each of which is one unit."""
        place = np.searchsorted(self.edges, rng.random(size) * self.edges[-1])
        return np.asarray(self.values[np.minimum(place, len(self.values) - 1)])


def _answers(group: str, drifts: Sequence[float]) -> list[PairedTrace]:
    """Chosen and rejected answer of one group, one token each with these log-ratios."""
    kinds = zip(("chosen", "rejected"), drifts, strict=True)
    return [_answer(group, kind, drift) for kind, drift in kinds]


def _answer(group: str, kind: str, drift: float) -> PairedTrace:
    unknown = np.full(1, np.nan)
    return PairedTrace(
        run_id="boundary",
        sequence_id=kind,
        group_id=group,
        trace_id="",
        weights_version="",
        event_ns=0,
        attributes={"preference": kind},
        log_ratio=np.array([drift]),
        logprob_q=np.array([-10.0]),
        position=np.zeros(1, dtype=np.int64),
        counts={TokenStatus.VALID: 1},
        inference=KernelIdentity(Role.INFERENCE),
        train=KernelIdentity(Role.TRAIN),
        sampling=Sampling(),
        train_sampling=Sampling(),
        timings=Timings(),
        itl_mean_s=np.nan,
        top=TopColumns(*(unknown for _ in TopColumns.__slots__)),
    )
