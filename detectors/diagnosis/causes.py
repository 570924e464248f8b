"""Causes: each looks at the features and says how much they look like it.

Thresholds were set on the recordings of real engines whose features docs/diagnosis.md lists;
confidences are ramps between "healthy or another cause" and "every
recorded case of this cause".  Below `MIN_CONFIDENCE` the answer is `unknown`.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from math import isfinite
from types import MappingProxyType

from paritas.detectors.diagnosis.features import Features
from paritas.records import Finding, LogprobSemantics, Sampling

__all__ = ["ADVICE", "Cause", "Scene", "diagnose"]

MIN_CONFIDENCE = 0.6  # a wrong name costs an engineer more than `unknown`


class Cause(StrEnum):
    """The closed list of causes."""

    SHIFT = "shift"
    TEMPERATURE = "temperature_mismatch"
    SUPPORT = "support_mismatch"
    WRONG_LAW = "wrong_law"
    STALE = "stale_weights"
    POSITION = "position_drift"
    BROKEN = "broken_values"
    PRECISION = "precision_noise"
    ISOLATED = "isolated_slice"
    UNKNOWN = "unknown"


ADVICE: Mapping[Cause, str] = MappingProxyType(
    {
        Cause.SHIFT: "compare token ids position by position: one side's log-probabilities are rolled by one token",
        Cause.TEMPERATURE: "log processed log-probabilities or scale the trainer's logits by the sampling temperature",
        Cause.SUPPORT: "the sampler renormalises over a truncated set: replay its kept set in the trainer, or sample untruncated",
        Cause.WRONG_LAW: "the logged log-probabilities are not the law tokens are drawn from: switch the engine to processed log-probabilities",
        Cause.STALE: "the sampler's weights are not the trainer's: check the last weight sync of this slice, then its prefix cache",
        Cause.POSITION: "drift grows along the response: compare rotary embedding, context length and sliding window settings",
        Cause.BROKEN: "log-probabilities are NaN, infinite, sentinels or missing: find the first such request in the exemplar traces",
        Cause.PRECISION: "the drift looks like rounding: the kernel is less precise than this contract allows; compare dtypes, or use the preset of that precision",
        Cause.ISOLATED: "only this value of the slice is affected: drain it and compare its identity with its siblings'",
        Cause.UNKNOWN: "no known fingerprint fits: inspect the exemplar traces token by token",
    }
)


@dataclass(frozen=True, slots=True)
class Scene:
    """What is known about a slice besides its features.

    Attributes
    ----------
    inference, train : Sampling
        As reported; unknown fields are None.
    lag : int
        Largest weights lag beyond what the contract allows, 0 when there is none or it is unknown.
    broken_clause : bool
        Whether the violated clause is about broken or missing values.
    ratio_clause : bool
        Whether the mean-one test itself is violated (A21): a proof, where the feature is a hint.
    shifted_pairs : int
        Sequences whose token ids agree after a move by one.
    drift_clause : bool
        Whether a numerical or statistical clause is violated.  Healthy kernels round too, so
        rounding explains nothing where only pairing, latency or identity is at fault.
    """

    features: Features
    inference: Sampling = Sampling()
    train: Sampling = Sampling()
    lag: int = 0
    broken_clause: bool = False
    ratio_clause: bool = False
    shifted_pairs: int = 0
    drift_clause: bool = True


def diagnose(scene: Scene, slice_name: str) -> tuple[Finding, ...]:
    """Return the causes that fit, best first; exactly `unknown` when none reaches `MIN_CONFIDENCE`."""
    scores = {cause: float(score(scene)) for cause, score in _SCORES.items()}
    fitting = {c: s for c, s in scores.items() if s >= MIN_CONFIDENCE}
    if not fitting:
        return (_finding(Cause.UNKNOWN, 1.0 - max(scores.values()), scene, slice_name),)
    ranked = sorted(fitting, key=lambda c: -fitting[c])
    return tuple(_finding(c, fitting[c], scene, slice_name) for c in ranked)


def _finding(cause: Cause, confidence: float, scene: Scene, slice_name: str) -> Finding:
    features = asdict(scene.features)
    facts = {name: round(features[name], 6) for name in _FACTS[cause] if isfinite(features[name])}
    told: dict[str, float | str] = {**facts, **_metadata(cause, scene)}
    return Finding(cause.value, slice_name, round(min(confidence, 1.0), 3), told, ADVICE[cause])


def _metadata(cause: Cause, scene: Scene) -> dict[str, float | str]:
    """Facts from what the engines said rather than from numbers."""
    if cause is Cause.STALE and scene.lag:
        return {"weights_lag": float(scene.lag)}
    if cause in (Cause.TEMPERATURE, Cause.SUPPORT, Cause.WRONG_LAW):
        told = {"temperature": scene.inference.temperature, "top_p": scene.inference.top_p}
        known = {k: float(v) for k, v in told.items() if v is not None}
        return {**known, "semantics": scene.inference.semantics.value}
    return {}


def ramp(value: float, low: float, high: float) -> float:
    """0 at `low`, 1 at `high`, linear between; NaN counts as 0.

    Examples
    --------
    >>> ramp(0.5, 0.0, 1.0), ramp(-1.0, 0.0, 1.0), ramp(float("nan"), 0.0, 1.0)
    (0.5, 0.0, 0.0)
    """
    if not isfinite(value):
        return 0.0
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _shift(scene: Scene) -> float:
    """Log-probabilities correlate one token off, and not in place (healthy: .15 off, > .99 in place)."""
    f = scene.features
    off = max((c for c in (f.back, f.ahead) if isfinite(c)), default=float("nan"))
    return max(ramp(off - f.correlation, 0.2, 0.4) * ramp(off, 0.6, 0.8), 1.0 if scene.shifted_pairs else 0.0)


def _temperature(scene: Scene) -> float:
    """Likely tokens move one way and unlikely ones the other, and log p has a slope on log q."""
    f = scene.features
    if not f.band_high * f.band_low < 0:  # also where a band is empty
        return 0.0
    opposed = ramp(min(abs(f.band_high), abs(f.band_low)) / f.mean_abs, 0.1, 0.4)
    return opposed * ramp(abs(f.slope - 1.0), 0.02, 0.08) * (1.0 - _shift(scene))


def _support(scene: Scene) -> float:
    """One-sided and nearly constant: w equals the kept mass on every sampled token (A12)."""
    f = scene.features
    if not f.mean < 0.0:  # kernels that agree in every bit are not above each other either
        return 0.0
    one_sided = ramp(f.share_not_above, 0.75, 0.9)
    return one_sided * ramp(1.35 - f.spread, 0.0, 0.15) * ramp(f.correlation, 0.95, 0.99)


def _wrong_law(scene: Scene) -> float:
    """The sampled token is the logged top-1 too often or too rarely (A21), or the engine says so itself."""
    told = scene.inference.semantics is LogprobSemantics.RAW and _processes(scene.inference)
    return max(ramp(abs(scene.features.top1_z), 3.5, 5.0), 1.0 if told else 0.0)


def _processes(sampling: Sampling) -> bool:
    """Whether the declared sampling changes the law the token is drawn from."""
    scaled = sampling.temperature not in (None, 1.0)
    cut = sampling.top_p is not None and sampling.top_p < 1.0
    top_k = sampling.top_k is not None and sampling.top_k > 0
    return scaled or cut or top_k or bool(sampling.min_p) or bool(sampling.processors)


def _stale(scene: Scene) -> float:
    """Sampled tokens became likelier (mean ratio above 1), or a few tokens carry the whole drift.

    Recorded: mean-ratio z 11-32 and kurtosis 43-140 from 1 to 8 optimiser steps; healthy kernels
    stay below z 1.5 and kurtosis 20.
    """
    if scene.lag > 0:
        return 1.0
    f = scene.features
    learned = 1.0 if scene.ratio_clause else ramp(f.mean_ratio_z, 3.0, 5.0)
    heavy = ramp(f.kurtosis, 25.0, 40.0) * ramp(f.spread, 1.6, 1.7) * ramp(f.mean, -0.02, 0.0)
    return max(0.95 * learned, 0.7 * heavy) * (1.0 - _temperature(scene)) * (1.0 - _shift(scene))


def _position(scene: Scene) -> float:
    """Later tokens drift more, beyond what chance makes of it."""
    f = scene.features
    return scene.drift_clause * ramp(f.position_growth, 1.2, 1.5) * ramp(f.position_z, 4.0, 7.0)


def _broken(scene: Scene) -> float:
    f = scene.features
    seen = f.broken > 0 or f.missing > 0
    return 1.0 if scene.broken_clause and seen else 0.0


def _precision(scene: Scene) -> float:
    """Two-sided, in place, unscaled, without a few tokens carrying it: rounding, whatever its size."""
    f = scene.features
    others = max(score(scene) for score in (_shift, _temperature, _support, _position, _stale, _wrong_law))
    two_sided = ramp(0.8 - abs(f.share_not_above - 0.5), 0.5, 0.62)
    light = ramp(30.0 - f.kurtosis, 0.0, 10.0)
    looks = two_sided * light * ramp(f.correlation, 0.8, 0.9)
    return scene.drift_clause * 0.9 * looks * (1.0 - others)


_SCORES: Mapping[Cause, Callable[[Scene], float]] = MappingProxyType(
    {
        Cause.SHIFT: _shift,
        Cause.BROKEN: _broken,
        Cause.TEMPERATURE: _temperature,
        Cause.SUPPORT: _support,
        Cause.WRONG_LAW: _wrong_law,
        Cause.STALE: _stale,
        Cause.POSITION: _position,
        Cause.PRECISION: _precision,
    }
)

_COMMON = ("tokens", "units", "mean_abs", "mean_ratio")
_FACTS: Mapping[Cause, tuple[str, ...]] = MappingProxyType(
    {
        Cause.SHIFT: (*_COMMON, "correlation", "back", "ahead"),
        Cause.BROKEN: ("tokens", "units", "broken", "missing"),
        Cause.TEMPERATURE: (*_COMMON, "slope", "band_high", "band_low"),
        Cause.SUPPORT: (*_COMMON, "share_not_above", "spread", "mean"),
        Cause.WRONG_LAW: (*_COMMON, "top1_z"),
        Cause.STALE: (*_COMMON, "mean_ratio_z", "kurtosis", "spread", "up", "down"),
        Cause.POSITION: (*_COMMON, "position_growth", "position_z"),
        Cause.PRECISION: (*_COMMON, "sd", "kurtosis", "spread", "share_not_above", "slope"),
        Cause.ISOLATED: _COMMON,
        Cause.UNKNOWN: (*_COMMON, "sd", "kurtosis", "spread", "share_not_above", "slope"),
    }
)
