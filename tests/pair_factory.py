"""Traces, pairs, outcomes and contracts in a few words, for the tests of the detectors."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from paritas.contracts.model import (
    Clause,
    Compare,
    Contract,
    Escalation,
    FalseAlarms,
    Family,
    Level,
    Promotion,
    Slice,
    Stage,
    When,
)
from paritas.detectors.evaluate import Evaluator
from paritas.detectors.evidence import PairBatch
from paritas.detectors.pairs import PairedTrace, PairOutcome, TopColumns
from paritas.records import (
    KernelIdentity,
    PairReason,
    Role,
    Sampling,
    Severity,
    Timings,
    TokenStatus,
    TokenTrace,
    TopK,
    trace_id_of,
)

NS = 1_000_000_000
INFERENCE, TRAIN = KernelIdentity(Role.INFERENCE), KernelIdentity(Role.TRAIN)
SEEDS = st.integers(0, 2**32 - 1)
LENGTHS = st.lists(st.integers(0, 9), max_size=7)
SPECIAL = np.array([-np.inf, -1e4, -60.0, -1.0, -1e-9, 0.0, 1e-9, 0.7, 60.0, 1e4])
EVERYTHING = Slice("all")
BY_REPLICA = Slice("replica", by=("replica",), at_most=4)


def trace(role, name="s-0", logprob=(-1.0, -2.0, -0.5), **more):
    """Return a trace of one kernel; tokens are 1, 2, 3 … and all valid unless told otherwise."""
    n = len(logprob)
    columns = {
        "token": np.arange(1, n + 1, dtype=np.uint64),
        "status": np.zeros(n, np.uint8),
        "kernel": KernelIdentity(Role(role)),
        **more,
    }
    columns["token"] = np.asarray(columns["token"], np.uint64)
    columns["status"] = np.asarray(columns["status"], np.uint8)
    return TokenTrace("run", name, logprob=np.asarray(logprob, np.float32), **columns)


def both(name="s-0", q=(-1.0, -2.0, -0.5), p=None, **more):
    """Return the two traces of one sequence."""
    return trace("inference", name, q, **more), trace("train", name, q if p is None else p, **more)


def segments(role, cuts, n=6, name="s-0", **more):
    """Cut one view into segments at the given positions."""
    edges = [0, *cuts, n]
    values = -np.arange(1, n + 1, dtype=np.float32)
    return [
        trace(role, name, values[a:b], token=np.arange(a, b) + 1, start=a, final=b == n, **more)
        for a, b in pairwise(edges)
    ]


def top_k(tokens, logprob):
    """Return top-k lists from rows of tokens and log-probabilities."""
    return TopK(np.asarray(tokens, np.uint64), np.asarray(logprob, np.float32))


def no_lists(n):
    """Return top columns of a trace without lists."""
    return TopColumns(*(np.full(n, np.nan) for _ in TopColumns.__slots__))


def pair(log_ratio, q=None, **more):
    """Return a paired sequence with these log-ratios."""
    ell = np.asarray(log_ratio, np.float64)
    name, n = more.pop("name", "s-0"), len(ell)
    known = {
        "run_id": "run",
        "sequence_id": name,
        "group_id": "",
        "trace_id": trace_id_of("run", name),
        "weights_version": "",
        "event_ns": 0,
        "attributes": {},
        "log_ratio": ell,
        "logprob_q": np.full(n, -1.0) if q is None else np.asarray(q, np.float64),
        "position": np.arange(n),
        "counts": {TokenStatus.VALID: n} if n else {},
        "inference": INFERENCE,
        "train": TRAIN,
        "sampling": Sampling(),
        "train_sampling": Sampling(),
        "timings": Timings(),
        "itl_mean_s": float("nan"),
        "top": no_lists(n),
    }
    return PairedTrace(**{**known, **more})


def paired(one):
    """Return the outcome of a sequence that paired."""
    names = ("run_id", "sequence_id", "group_id", "event_ns", "attributes")
    return PairOutcome(PairReason.PAIRED, **{name: getattr(one, name) for name in names}, pair=one)


def lost(reason=PairReason.UNMATCHED, name="s-0", **more):
    """Return the outcome of a sequence that did not pair."""
    known = {"group_id": "", "event_ns": 0, "attributes": {}}
    return PairOutcome(PairReason(reason), "run", name, **{**known, **more})


def clause(statistic, at_most=None, family=Family.NUMERICAL, **more):
    """Return a clause called like its statistic."""
    return Clause(more.pop("id", statistic), family, statistic, at_most=at_most, **more)


def contract(*clauses, slices=(EVERYTHING,), escalation=None, **more):
    """Return a contract with these clauses; every violation fires at once unless told otherwise."""
    rules = (fires_now(),) if escalation is None else escalation
    whole = Contract(
        name="c",
        version="1",
        owner="",
        policy="p",
        kernels={},
        compare=Compare(),
        slices=tuple(slices),
        false_alarms=FalseAlarms(),
        budget=None,
        clauses=tuple(clauses),
        escalation=rules,
        on_controller_loss="hold",
        promotion=Promotion(),
        tests=(),
        digest="d",
    )
    return replace(whole, **more)


def fires_now():
    """Return a rule that answers everything at once."""
    return Escalation(When(), (Level(Severity.CRITICAL),), keep_firing_for_s=0.0)


def random_top(rng, n):
    """Return top columns with gaps."""
    columns = {
        "top1_q": rng.random(n),
        "is_top1": rng.integers(0, 2, n).astype(float),
        "hybrid_tv": rng.random(n),
        "oscillation": rng.exponential(size=n),
        "flip": rng.integers(0, 2, n).astype(float),
        "gap": rng.uniform(-1, 1, n),
    }
    gaps = {name: np.where(rng.random(n) < 0.2, np.nan, column) for name, column in columns.items()}
    gaps["is_top1"] = np.where(np.isnan(gaps["top1_q"]), np.nan, columns["is_top1"])
    exact_tv = np.where(rng.random(n) < 0.5, np.nan, rng.random(n))
    return TopColumns(**gaps, exact_tv=exact_tv)


def random_pair(rng, n, name="s-0"):
    """Return a pair with ordinary, extreme and impossible ratios, gaps and losses."""
    ell = np.where(rng.random(n) < 0.3, rng.choice(SPECIAL, n), rng.normal(0, 0.3, n))
    skipped = int(rng.integers(0, 3))
    broken = {
        s: int(k) for s, k in zip(TokenStatus, rng.integers(-3, 3, len(TokenStatus)), strict=True) if k > 0
    }
    return pair(
        ell,
        -rng.exponential(size=n),
        name=name,
        position=np.arange(n) + skipped,
        counts={**broken, **({TokenStatus.VALID: n} if n else {})},
        top=random_top(rng, n),
        timings=Timings(ttft_s=rng.choice([None, 0.1, 3.0])),
        itl_mean_s=float(rng.choice([np.nan, 0.01, 2.0])),
        lag=rng.choice([None, -1, 0, 2]),
        attributes={"turn": str(rng.integers(0, 3)), "replica": f"r{rng.integers(0, 3)}"},
    )


@st.composite
def ragged_pairs(draw, lengths=LENGTHS):
    """Pairs of random lengths, empty ones among them."""
    rng = np.random.default_rng(draw(SEEDS))
    return [random_pair(rng, n, f"s-{i}") for i, n in enumerate(draw(lengths))]


@st.composite
def ragged_batches(draw):
    """Return a batch of `ragged_pairs` and a token mask, or None for all tokens."""
    batch = PairBatch.of(draw(ragged_pairs()))
    rng = np.random.default_rng(draw(SEEDS))
    mask = rng.random(len(batch.log_ratio)) < 0.6 if draw(st.booleans()) else None
    return batch, mask


def kept_of(batch, mask, i):
    """Whether each token of pair `i` is kept; without a mask all are."""
    low, high = batch.offsets[i : i + 2]
    return [True] * int(high - low) if mask is None else mask[low:high].tolist()


def evaluated(whole, outcomes, *, recover=False, stage=Stage.FULL):
    """Return the evaluator of a contract after these outcomes."""
    evaluator = Evaluator(whole, stage=stage, recover=recover)
    for _ in evaluator.observe(outcomes):
        pass  # what changed on the way is not asked for here
    return evaluator


def units(values, **more):
    """Return one paired one-token sequence a value, whose tv is that value."""
    ells = np.log1p(-np.minimum(np.asarray(values, np.float64), 1.0 - 1e-12))
    return [
        paired(pair([ell], name=f"s-{i:05}", event_ns=i * NS, **more)) for i, ell in enumerate(ells.tolist())
    ]
