"""What `null_streams.py` draws: streams exactly at their limits, in every way that makes a test's life hard.

Sequences are those of the experiment `false-alarms` (`paritas.commands.experiments.boundary`): a few kinds of
context, one in thirty far off, every mean known exactly.  Here they come in groups of one kind, are lost, are
recorded with a probability that depends on what is watched, or share the load of their second.
"""

from dataclasses import dataclass, replace

import numpy as np

from paritas.commands.experiments.boundary import outcomes_of, streams
from paritas.contracts.model import Clause, Family
from paritas.detectors.pairing import Pairer
from paritas.detectors.pairs import PairOutcome
from paritas.detectors.sampling import LABEL
from paritas.histograms import ExponentialHistogram
from paritas.records import KernelIdentity, PairReason, Role, Timings, TokenTrace
from paritas.records.timing import TimingPoint

NS = 1_000_000_000
STEP_NS, LATE_STEPS = 10 * NS, 6  # between two units of a stream; from its rollouts to their scoring
TOKENS = 8  # of a sequence
LOST = 0.01  # share of sequences without a partner, exactly what `pairing_rate` allows
RARELY = 0.2  # least probability with which a sequence is recorded
PAIRED = Clause("paired", Family.OBSERVABILITY, "pairing_rate", at_least=1.0 - LOST)
STATISTICS = ("tv", "ratio_tail", "mean_ratio", "top1_frequency", "sequence_tv", "kl_k3", "ess")
SECOND = 10  # requests that share their load
BAD, SLOW = 0.4, 0.5  # share of seconds that are bad, and of their requests that are slow
ON_BOUND_S, INSIDE_S = 0.5, 0.6  # limits on a bound of a bucket at every scale, and inside a bucket
SCALES = (3, 5)  # of the histograms of two agents
PARETO = 1.5  # tail index of how much slower than the limit a slow request is: its mean is known, no variance


@dataclass(frozen=True, eq=False)
class Law:
    """Every possible sequence, and the clauses whose limits are its exact means.

    Attributes
    ----------
    odd : shape (m,), bool
        Whether a sequence looks odd to a sampler: the half of all with the larger total variation.
    up : shape (m,), bool
        Whether its tokens are likelier to the trainer than to the sampler, on average.
    """

    told: object
    clauses: tuple
    odd: np.ndarray
    up: np.ndarray

    @classmethod
    def of(cls):
        """Enumerate once."""
        told = outcomes_of(TOKENS)
        by_name = {stream.clause.id: stream for stream in streams(told)}
        tv = by_name["tv"].values
        order = np.argsort(tv)
        half = np.searchsorted(np.cumsum(told.probability[order]), 0.5)
        ell = np.array([pair.log_ratio.mean() for pair in told.batch.pairs])
        clauses = (*(by_name[name].clause for name in STATISTICS), PAIRED)
        return cls(told, clauses, tv > tv[order[half]], ell > 0.0)

    def outcome(self, place, name, *, stream, event_ns, group="", probability=None):
        """Return the sequence at a place of the law, or, below zero, a loss."""
        label = {} if probability is None else {LABEL: repr(probability)}
        attributes = {"stream": stream, **label}
        if place < 0:
            return PairOutcome(PairReason.UNMATCHED, "null", name, group, event_ns, attributes)
        pair = replace(
            self.told.batch.pairs[place],
            run_id="null",
            sequence_id=name,
            group_id=group,
            event_ns=event_ns,
            attributes=attributes,
        )
        return PairOutcome(PairReason.PAIRED, "null", name, group, event_ns, attributes, pair=pair)

    def views(self, outcome):
        """Return what both kernels reported of a paired sequence, and one of a lost one."""
        pair = outcome.pair or self.told.batch.pairs[0]
        roles = ((Role.INFERENCE, pair.logprob_q), (Role.TRAIN, pair.logprob_q + pair.log_ratio))
        n = pair.tokens
        told = {name: getattr(outcome, name) for name in ("group_id", "event_ns", "attributes")}
        columns = {"token": np.arange(1, n + 1, dtype=np.uint64), "status": np.zeros(n, np.uint8)}
        return tuple(
            TokenTrace(
                "null",
                outcome.sequence_id,
                logprob=logp.astype(np.float32),
                kernel=KernelIdentity(role),
                **columns,
                **told,
            )
            for role, logp in (roles if outcome.pair else roles[:1])
        )


def groups_of(law, rng, count):
    """Draw `count` groups of two to five sequences of one kind, some lost: a list of lists of places."""
    places = law.told.draw_alike(rng, count, 5)
    sizes = rng.integers(2, 6, count)
    lost = rng.random(places.shape) < LOST
    told = np.where(lost, -1, places).T
    return [row[:size].tolist() for row, size in zip(told, sizes, strict=True)]


def singles_of(law, rng, count):
    """Draw `count` sequences, some lost."""
    lost = rng.random(count) < LOST
    return [[place] for place in np.where(lost, -1, law.told.draw(rng, count)).tolist()]


def kept_odd(law, places):
    """Tail-based sampling: what looks odd, or is lost, is kept for certain, the rest rarely."""
    return 1.0 if any(place < 0 or law.odd[place] for place in places) else RARELY


def kept_even(law, places):
    """The other way round: what looks odd is kept rarely."""
    return RARELY if any(place < 0 or law.odd[place] for place in places) else 1.0


def kept_mixed(law, places):
    """Groups of one mind are kept rarely, as where a trainer drops groups of equal rewards."""
    minds = {bool(law.up[place]) for place in places if place >= 0}
    return 1.0 if len(minds) > 1 else RARELY


def seconds_of(rng, count):
    """Draw the requests of one second of each of `count` streams: whether it is bad, and who is slow."""
    is_bad = rng.random(count) < BAD
    return is_bad, (rng.random((count, SECOND)) < SLOW) & is_bad[:, None]


# With which probability a request is recorded, by whether its second is bad and whether it is slow.
LOADS = {
    "less under load": lambda is_bad, is_slow: np.where(is_bad[:, None] & np.ones_like(is_slow), RARELY, 1.0),
    "more under load": lambda is_bad, is_slow: np.where(is_bad[:, None] & np.ones_like(is_slow), 1.0, RARELY),
    "the slow ones": lambda _, is_slow: np.where(is_slow, 1.0, RARELY),
}


def request(law, name, *, stream, event_ns, is_slow, probability):
    """Return a request that was slow, or not."""
    told = law.outcome(0, name, stream=stream, event_ns=event_ns, probability=probability)
    timings = Timings(ttft_s=2.0 * ON_BOUND_S if is_slow else ON_BOUND_S / 2.0)
    return replace(told, pair=replace(told.pair, timings=timings))


def points_of(rng, *, stream, event_ns, limit_s):
    """Return what the histograms of two agents say of one second; a bad one has more requests, slow ones a heavy tail."""
    is_bad = rng.random() < BAD
    for scale in SCALES:
        size = int(rng.integers(1, SECOND) * (3 if is_bad else 1))
        is_slow = rng.random(size) < (SLOW if is_bad else 0.0)
        slow = limit_s * (1.0 + 1e-6 + rng.pareto(PARETO, size))
        durations = np.where(is_slow, slow, limit_s * (1.0 - rng.random(size)))
        histogram = ExponentialHistogram.of(durations, scale=scale)
        yield TimingPoint("time_to_first_token", event_ns, histogram, attributes={"stream": stream})


# ---- sources: one list a step, with at most one unit of each stream


def sequences(law, rng, streams, steps, *, draw, kept=None):
    """Yield the sequences, or groups, that are recorded."""
    for step in range(steps):
        outcomes = []
        for stream, places in enumerate(draw(law, rng, streams)):
            probability = None if kept is None else kept(law, places)
            if probability is None or rng.random() < probability:
                told = {"stream": f"s{stream}", "event_ns": step * STEP_NS, "probability": probability}
                name = f"{stream}-{step}"
                told |= {"group": name if draw is groups_of else ""}
                outcomes += [law.outcome(p, f"{name}-{i}", **told) for i, p in enumerate(places)]
        yield outcomes


def scored_late(law, rng, streams, steps, *, compare):
    """Yield groups as the pairing lets them go: all members infer, a minute later all are scored, in any order."""
    pairer, waiting = Pairer(compare), {}
    for step, outcomes in enumerate(sequences(law, rng, streams, steps, draw=groups_of)):
        views = [law.views(outcome) for outcome in outcomes]
        waiting[step + LATE_STEPS] = [view for _, *rest in views for view in rest]
        yield processed(pairer, rng, [first for first, *_ in views], waiting.pop(step, []), step * STEP_NS)
    for step in sorted(waiting):
        yield processed(pairer, rng, [], waiting[step], step * STEP_NS)
    yield list(pairer.flush((steps + LATE_STEPS) * STEP_NS))


def processed(pairer, rng, ones, others, now_ns):
    """Give views to the pairing, the late ones in any order; return what leaves it."""
    shuffled = [others[i] for i in rng.permutation(len(others))]
    return [outcome for view in (*ones, *shuffled) for outcome in pairer.process(view, now_ns)]


def requests(law, rng, streams, steps, *, load):
    """Yield the requests of one second of each stream that are recorded."""
    for step in range(steps):
        is_bad, is_slow = seconds_of(rng, streams)
        probability = LOADS[load](is_bad, is_slow)
        is_kept = rng.random(is_slow.shape) < probability
        yield [
            request(
                law,
                f"{stream}-{step}-{i}",
                stream=f"s{stream}",
                event_ns=step * STEP_NS,
                is_slow=is_slow[stream, i],
                probability=float(probability[stream, i]),
            )
            for stream, i in zip(*(places.tolist() for places in np.nonzero(is_kept)), strict=True)
        ]


def points(_, rng, streams, steps, *, limit_s):
    """Yield the histograms of one second of each stream."""
    for step in range(steps):
        told = {"event_ns": step * STEP_NS, "limit_s": limit_s}
        yield [point for i in range(streams) for point in points_of(rng, stream=f"s{i}", **told)]
