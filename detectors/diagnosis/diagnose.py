"""Diagnose: from a scene to named causes with a confidence, or to `unknown`."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import isfinite
from types import MappingProxyType

from paritas.detectors.diagnosis.bets import CLEAR
from paritas.detectors.diagnosis.calibration import confidence
from paritas.detectors.diagnosis.causes import ADVICE, MIN_CONFIDENCE, Cause, Scene
from paritas.detectors.diagnosis.scores import is_told, scores_of
from paritas.records import Finding

__all__ = ["FACTS", "diagnose"]


def diagnose(scene: Scene, slice_name: str) -> tuple[Finding, ...]:
    """Return the causes that fit, best first; exactly `unknown` when none reaches `MIN_CONFIDENCE`.

    The confidence of a cause is how often it was right at such a score (`calibration`), and 1 where
    the engines said it themselves; of `unknown`, what is missing to the best one.
    """
    scores = scores_of(scene)
    found = {c: 1.0 if is_told(scene, c) else confidence(c, s) for c, s in scores.items()}
    ranked = sorted(found, key=lambda c: (-found[c], -scores[c]))
    fitting = [c for c in ranked if found[c] >= MIN_CONFIDENCE]
    if not fitting:
        return (_finding(Cause.UNKNOWN, 1.0 - found[ranked[0]], scene, slice_name),)
    return tuple(_finding(c, found[c], scene, slice_name) for c in fitting)


def _finding(cause: Cause, sureness: float, scene: Scene, slice_name: str) -> Finding:
    features = asdict(scene.features)
    facts = {name: round(features[name], 6) for name in FACTS[cause] if isfinite(features[name])}
    told: dict[str, float | str] = {**facts, **_metadata(cause, scene), **dict(_whereabouts(scene))}
    return Finding(cause.value, slice_name, round(sureness, 3), told, ADVICE[cause])


def _metadata(cause: Cause, scene: Scene) -> dict[str, float | str]:
    """Facts from what the engines said rather than from numbers."""
    if cause is Cause.STALE:
        counts = {"weights_lag": float(scene.lag), "other_digests": float(scene.digests)}
        return {name: count for name, count in counts.items() if count}
    if cause in (Cause.TEMPERATURE, Cause.SUPPORT, Cause.WRONG_LAW):
        told = {"temperature": scene.inference.temperature, "top_p": scene.inference.top_p}
        known = {k: float(v) for k, v in told.items() if v is not None}
        law = {"laws_differ_in": scene.other_law} if scene.other_law else {}
        return {**known, **law, "semantics": scene.inference.semantics.value}
    if cause in (Cause.PRECISION, Cause.POSITION, Cause.ROUTING, Cause.UNKNOWN) and scene.kernels:
        return {"kernels_differ": scene.kernels}
    return {}


def _whereabouts(scene: Scene) -> Iterator[tuple[str, float | str]]:
    """Where the drift is worst and how it moves, where the evidence is clear."""
    if scene.worst is not None:
        yield "worst", f"{scene.worst.attribute}={scene.worst.value}"
        yield "worst_times", round(scene.worst.times, 3)
        yield "worst_log10_e", round(scene.worst.log10_e, 2)
    if scene.part is not None:
        yield "worst_part", scene.part.name
        yield "worst_part_times", round(scene.part.times, 3)
        yield "worst_part_log10_e", round(scene.part.log10_e, 2)
    for name, log10_e in (("sawtooth_log10_e", scene.sawtooth), ("trend_log10_e", scene.trend)):
        if log10_e >= CLEAR:
            yield name, round(log10_e, 2)


COMMON = ("tokens", "units", "mean_abs", "mean_ratio")
FACTS: Mapping[Cause, tuple[str, ...]] = MappingProxyType(
    {
        Cause.SHIFT: (*COMMON, "correlation", "back", "ahead"),
        Cause.BROKEN: ("tokens", "units", "broken", "missing"),
        Cause.TEMPERATURE: (*COMMON, "opposed", "slope", "band_high", "band_low"),
        Cause.SUPPORT: (*COMMON, "share_not_above", "spread", "mean"),
        Cause.WRONG_LAW: (*COMMON, "top1_z"),
        Cause.STALE: (*COMMON, "mean_ratio_z", "clustering", "coherence", "tail", "dispersion"),
        Cause.PREFIX_CACHE: (*COMMON, "clustering", "tail"),
        Cause.ADAPTER: (*COMMON, "clustering", "tail"),
        Cause.POSITION: (*COMMON, "position_growth", "position_z", "lean_z", "late_log10_e"),
        Cause.CONTEXT: (*COMMON, "position_fall", "early_log10_e", "dispersion"),
        Cause.ENDING: (*COMMON, "last_growth", "last_log10_e"),
        Cause.ROUTING: (*COMMON, "tail", "clustering", "up", "down"),
        Cause.PRECISION: (*COMMON, "sd", "kurtosis", "spread", "tail", "share_not_above", "slope"),
        Cause.ISOLATED: COMMON,
        Cause.UNKNOWN: (
            *COMMON,
            "sd",
            "kurtosis",
            "spread",
            "share_not_above",
            "slope",
            "tail",
            "clustering",
        ),
    }
)
