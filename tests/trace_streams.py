"""A stream of traces in which one replica goes stale, for the tests of the whole detector."""

from dataclasses import replace

import numpy as np
from pair_factory import BY_REPLICA, EVERYTHING, NS, both, clause, contract

from paritas.contracts.model import Escalation, Family, Level, When
from paritas.records import Action, KernelIdentity, Role, Severity

REPLICAS, TOKENS = 3, 24
STALE_FROM, NEW_WEIGHTS_FROM, LOST = 60, 150, (5, 145)
KERNELS = {"kernels": {Role.INFERENCE: {"engine": "vllm"}}}
RULES = (
    Escalation(When(family=(Family.STATISTICAL,)), (Level(Severity.CRITICAL, (Action("page"),)),), for_s=0.5),
    Escalation(
        When(), (Level(Severity.WARNING), Level(Severity.CRITICAL, after_s=2.0)), keep_firing_for_s=1.0
    ),
)


def watched():
    """Return the contract the stream is judged by."""
    clauses = (
        clause("tv", 0.05),
        clause("mean_ratio", 1.002, Family.STATISTICAL),
        clause("kl_k3", 0.05, Family.STATISTICAL),
        clause("nonfinite_rate", 0.0, Family.OBSERVABILITY),
        clause("pairing_rate", None, Family.OBSERVABILITY, at_least=0.8),
        clause("kernel_identity", family=Family.RUNTIME),
    )
    return contract(*clauses, slices=(EVERYTHING, BY_REPLICA), escalation=RULES, **KERNELS)


def sequence(rng, i, *, stale):
    """Return both views of sequence i; a stale sampler's tokens are likelier to its trainer."""
    q = -rng.exponential(size=TOKENS)
    p = np.minimum(q + rng.normal(0, 0.03, TOKENS), 0.0)
    if stale:
        p = np.minimum(p + rng.exponential(0.4, TOKENS), -1e-6)
    inference, train = both(f"s-{i:04}", q=q, p=p, event_ns=i * NS // 20)
    told = {
        "attributes": {"replica": f"r{i % REPLICAS}"},
        "weights_version": "1" if i < NEW_WEIGHTS_FROM else "2",
    }
    kernel = KernelIdentity(Role.INFERENCE, engine="vllm")
    return replace(inference, kernel=kernel, **told), replace(train, weights_version=told["weights_version"])


def stream(n=220, seed=3):
    """Return traces in order of arrival: train views come seven sequences late, some never."""
    rng = np.random.default_rng(seed)
    views = [sequence(rng, i, stale=i >= STALE_FROM and i % REPLICAS == 1) for i in range(n)]
    arrivals = [(i, inference) for i, (inference, _) in enumerate(views)]
    arrivals += [(i + 7.5, train) for i, (_, train) in enumerate(views) if i not in LOST]
    return [trace for _, trace in sorted(arrivals, key=lambda arrival: arrival[0])]
