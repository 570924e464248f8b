"""From violated verdicts to named causes: which slice, which cause, and whether only one value is hit."""

from collections.abc import Iterator, Sequence

import numpy as np

from paritas.contracts.model import Family
from paritas.detectors.diagnosis import Cause, Features, diagnose
from paritas.detectors.diagnosis.causes import ADVICE, MIN_CONFIDENCE, Scene, ramp
from paritas.detectors.diagnosis.identities import differing
from paritas.detectors.diagnosis.parts import worst_part
from paritas.detectors.evaluate import Evaluator, SliceState
from paritas.records import Finding, State, Verdict

__all__ = ["explain", "explain_slice", "scene_of", "slices_by_evidence"]

BROKEN = ("nonfinite_rate", "missing_rate")
DRIFT = (Family.NUMERICAL, Family.STATISTICAL)
LOSS = "pairing_rate"  # the statistic that lost sequences violate; what they told explains no other
# Statistics that are violated without any token drifting more: a violation is all there is to see.
SIZELESS = frozenset((*BROKEN, "top1_frequency", LOSS, "weights_lag"))
SURE_WITHOUT_SIZE = 0.9


def explain(evaluator: Evaluator, verdicts: Sequence[Verdict]) -> tuple[Finding, ...]:
    """Return the causes of every violated slice: plain slices first, then by evidence.

    Where one value of a `by` slice stands out from its siblings, an `isolated_slice` finding
    follows the cause found in it.
    """
    violated = [v for v in verdicts if v.state is State.VIOLATED]
    names = slices_by_evidence(evaluator, violated)
    causes = [f for name in names for f in explain_slice(evaluator, violated, name)]
    return (*causes, *_isolated(evaluator, violated))


def slices_by_evidence(evaluator: Evaluator, violated: Sequence[Verdict]) -> list[str]:
    """Names of violated slices: plain ones first, then those with the strongest evidence."""
    plain = {s.name for s in evaluator.contract.slices if not s.by}
    return sorted({v.slice for v in violated}, key=lambda n: (n not in plain, -_strength(violated, n), n))


def _strength(violated: Sequence[Verdict], name: str) -> float:
    """Largest evidence in a slice; 0 where only states were compared, which have none."""
    return max((v.log10_e for v in violated if v.slice == name and np.isfinite(v.log10_e)), default=0.0)


def explain_slice(evaluator: Evaluator, violated: Sequence[Verdict], name: str) -> tuple[Finding, ...]:
    """Return the causes of one slice, best first."""
    state = evaluator.states.get(name)
    if state is None:
        return ()
    return diagnose(scene_of(state, [v for v in violated if v.slice == name]), name)


def scene_of(state: SliceState, here: Sequence[Verdict]) -> Scene:
    """Everything the diagnosis looks at: the place that stands out, or the slice where none does."""
    statistics = {v.statistic for v in here}
    places, whole = state.whereabouts.places, Features.of(state.recent.total())
    place = places.likely()
    looked_at = state.recent.total() if place is None else place.fingerprint
    return Scene(
        features=Features.of(looked_at),
        whole=whole,
        part=worst_part(looked_at),
        place=place,
        worst=places.worst(),
        sawtooth=state.whereabouts.rhythm.sawtooth(),
        trend=state.whereabouts.rhythm.growth(),
        inference=state.inference,
        train=state.train,
        lag=max(
            state.lag if LOSS in statistics else 0, state.allowed_lag if "weights_lag" in statistics else 0
        ),
        digests=state.digests if LOSS in statistics else 0,
        other_law=state.other_law if LOSS in statistics else "",
        kernels=differing(*state.kernels) if state.kernels else "",
        broken_clause=not statistics.isdisjoint(BROKEN),
        ratio_clause="mean_ratio" in statistics,
        law_clause="top1_frequency" in statistics,
        shifted_pairs=state.shifted if LOSS in statistics else 0,
        drift_clause=any(v.family in DRIFT for v in here),
    )


def _isolated(evaluator: Evaluator, violated: Sequence[Verdict]) -> Iterator[Finding]:
    """Values of a `by` slice that are violated while most of their siblings are not.

    A bad replica also colours the kinds of prompt it happened to serve: only values whose
    evidence is at least half (in nats) of the strongest one's are named.
    """
    names = {v.slice for v in violated}
    found = [
        (_strength(violated, name), _stands_out(evaluator, name, rest, violated))
        for hit, rest in _minorities(evaluator, names)
        for name in hit
    ]
    strongest = max((strength for strength, _ in found), default=0.0)
    yield from (f for strength, f in found if f.confidence >= MIN_CONFIDENCE and 2 * strength >= strongest)


def _minorities(evaluator: Evaluator, violated: set[str]) -> Iterator[tuple[list[str], list[str]]]:
    """(violated values, other values) of each `by` slice where the violated ones are at most half."""
    for declared in evaluator.contract.slices:
        names = [n for n in evaluator.book.seen.get(declared.name, []) if n in evaluator.states]
        hit, rest = [n for n in names if n in violated], [n for n in names if n not in violated]
        if hit and len(hit) <= len(rest):
            yield hit, rest


def _stands_out(
    evaluator: Evaluator, name: str, siblings: Sequence[str], violated: Sequence[Verdict]
) -> Finding:
    own = _mean_abs(evaluator, name)
    others = float(np.median([_mean_abs(evaluator, n) for n in siblings]))
    times = own / others if others else float("inf")
    facts: dict[str, float | str] = {"mean_abs": round(own, 6), "siblings_mean_abs": round(others, 6)}
    sizeless = {v.statistic for v in violated if v.slice == name} <= SIZELESS
    confidence = max(0.5 + 0.5 * ramp(times, 1.0, 1.5), SURE_WITHOUT_SIZE if sizeless else 0.0)
    return Finding(Cause.ISOLATED.value, name, round(confidence, 3), facts, ADVICE[Cause.ISOLATED])


def _mean_abs(evaluator: Evaluator, name: str) -> float:
    features = Features.of(evaluator.states[name].recent.total())
    return features.mean_abs if np.isfinite(features.mean_abs) else 0.0
