"""Scores: how much a scene looks like each cause, one short rule a cause.

Thresholds lie between what recordings of real engines and drawn cases (`faults`) of this cause show
and what those of every other cause show; docs/diagnosis.md has the numbers.  A score is no
probability: `calibration` says how often it was right.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from types import MappingProxyType

from paritas.detectors.diagnosis.bets import CLEAR
from paritas.detectors.diagnosis.causes import Cause, Scene, ramp
from paritas.records import LogprobSemantics, Sampling

__all__ = ["SCORES", "is_told", "scores_of"]

NAN = float("nan")
OTHER_LAWS = {Cause.TEMPERATURE: "temperature", Cause.SUPPORT: "support"}


def scores_of(scene: Scene) -> dict[Cause, float]:
    """Return the score of every cause, between 0 and 1; 1 where it was told."""
    return {cause: 1.0 if is_told(scene, cause) else float(score(scene)) for cause, score in SCORES.items()}


def is_told(scene: Scene, cause: Cause) -> bool:
    """Whether a cause was reported or counted rather than inferred from how the drift looks."""
    match cause:
        case Cause.SHIFT:
            return scene.shifted_pairs > 0
        case Cause.WRONG_LAW:
            return _says_raw(scene)
        case Cause.STALE:
            return scene.lag > 0 or scene.digests > 0
        case Cause.TEMPERATURE | Cause.SUPPORT:
            return scene.other_law == OTHER_LAWS[cause]
        case Cause.BROKEN:
            return _broken(scene) > 0
        case _:
            return False


def _says_raw(scene: Scene) -> bool:
    """Whether the engine declares raw numbers and a sampling that changes the law."""
    return scene.inference.semantics is LogprobSemantics.RAW and _processes(scene.inference)


def _not(*scores: float) -> float:
    """What is left when none of these explains it."""
    return 1.0 - max(scores, default=0.0)


def _shift(scene: Scene) -> float:
    """Log-probabilities correlate one token off, and not in place (healthy: .2 off, > .99 in place)."""
    f = scene.features
    off = max((c for c in (f.back, f.ahead) if isfinite(c)), default=NAN)
    return max(ramp(off - f.correlation, 0.2, 0.4) * ramp(off, 0.6, 0.8), 1.0 if scene.shifted_pairs else 0.0)


def _temperature(scene: Scene) -> float:
    """Likely tokens move one way and unlikely ones the other; or the log is scaled, and no sampling law."""
    f = scene.features
    scaled = ramp(abs(f.slope - 1.0), 0.04, 0.08) * ramp(abs(f.mean_ratio_z), 6.0, 10.0)
    suspected = max(_foreign(scene), float(_declares_temperature(scene)))
    apart = max(ramp(f.opposed, 0.25, 0.4), ramp(f.opposed, 0.1, 0.2) * suspected)
    return max(apart, scaled * _foreign(scene)) * _not(_shift(scene))


def _declares_temperature(scene: Scene) -> bool:
    """Whether a side says that it samples or scores at a temperature, and the other does not say the same."""
    told = [s.temperature for s in (scene.inference, scene.train)]
    return told[0] != told[1] and any(t not in (None, 1.0) for t in told)


def _declares_cut(scene: Scene) -> bool:
    """Whether the sampler says that it truncates, and the trainer does not say the same."""
    return _cut(scene.inference) not in (_cut(Sampling()), _cut(scene.train))


def _cut(sampling: Sampling) -> tuple[float, int, float]:
    """What truncation keeps, in canonical form."""
    top_p = 1.0 if sampling.top_p is None else sampling.top_p
    return top_p, max(sampling.top_k or 0, 0), sampling.min_p or 0.0


def _foreign(scene: Scene) -> float:
    """The tokens were not drawn from the logged law: its top-1 was sampled too often or too rarely (A21)."""
    z = max(
        abs(f.top1_z) if isfinite(f.top1_z) else 0.0 for f in (scene.features, scene.whole or scene.features)
    )
    return 1.0 if scene.law_clause else ramp(z, 3.5, 5.0)


def _support(scene: Scene) -> float:
    """One-sided, and E w is below 1 by about the drift: w is the kept mass of each token (A12)."""
    f = scene.features
    if not f.mean < 0.0:  # kernels that agree in every bit are not above each other either
        return 0.0
    missing = (1.0 - f.mean_ratio) / f.mean_abs
    one_sided = ramp(f.share_not_above, 0.62, 0.72)
    if _declares_cut(scene):
        one_sided = ramp(f.share_not_above, 0.56, 0.62)
    return one_sided * ramp(missing, 0.35, 0.5) * _not(_shift(scene), _temperature(scene))


def _wrong_law(scene: Scene) -> float:
    """The sampled token is the logged top-1 too often or too rarely (A21), or the engine says so itself."""
    if _says_raw(scene):
        return 1.0
    return _foreign(scene) * _not(_temperature(scene), _shift(scene))


def _processes(sampling: Sampling) -> bool:
    """Whether the declared sampling changes the law the token is drawn from."""
    scaled = sampling.temperature not in (None, 1.0)
    return scaled or _cut(sampling) != _cut(Sampling()) or bool(sampling.processors)


def _broken(scene: Scene) -> float:
    f = scene.whole or scene.features
    seen = f.broken > 0 or f.missing > 0
    return 1.0 if scene.broken_clause and seen else 0.0


def _defined(scene: Scene) -> float:
    """Best score of the causes that make the two numbers two different things."""
    return max(rule(scene) for rule in (_shift, _temperature, _support, _wrong_law, _broken))


def _ending(scene: Scene) -> float:
    """The last token of a response drifts several times more than the others."""
    f = scene.features
    return (
        scene.drift_clause
        * ramp(f.last_growth, 2.5, 4.0)
        * ramp(f.last_log10_e, 1.0, 2.0)
        * _not(_defined(scene))
    )


def _context(scene: Scene) -> float:
    """The first tokens drift most, and some sequences much more than others (a coarse prefill is even)."""
    f = scene.features
    uneven = max(ramp(f.clustering, 0.12, 0.16), ramp(f.dispersion, 0.3, 0.4))
    first = ramp(f.position_fall, 1.9, 2.4) * ramp(f.early_log10_e, 1.3, 2.3)
    others = (_defined(scene), _ending(scene), _learned(scene), _cached(scene))
    return scene.drift_clause * first * uneven * _not(*others)


def _position(scene: Scene) -> float:
    """Later tokens drift more, beyond what chance and a few tokens that jump make of it."""
    f = scene.features
    leans = max(ramp(f.lean_z, 2.0, 2.8) * _not(_jumps(scene)), ramp(f.lean_z, 3.5, 5.0))
    grows = ramp(f.position_growth, 1.25, 1.5) * max(leans, ramp(f.late_log10_e, 1.0, 2.0))
    grows = max(grows, 0.9 * _grows_slightly(scene))
    return scene.drift_clause * grows * _not(_defined(scene), _ending(scene), _learned(scene))


def _grows_slightly(scene: Scene) -> float:
    """Later tokens drift a little more, by clear evidence, and it does not look like rounding.

    Rounding may grow by a tenth along a response by nature (llama.cpp's does), with a kurtosis of 6.
    """
    f = scene.features
    odd = ramp(f.kurtosis, 14.0, 19.0) * ramp(f.clustering, 0.1, 0.125)
    return (
        ramp(f.position_growth, 1.03, 1.08) * ramp(f.late_log10_e, 1.5, 2.5) * ramp(f.lean_z, 1.5, 2.5) * odd
    )


def _clear_place(scene: Scene, attribute: str) -> float:
    """One value of an attribute drifts more than its siblings."""
    if scene.place is None or scene.place.attribute != attribute:
        return 0.0
    return scene.drift_clause * ramp(scene.place.log10_e, CLEAR - 0.5, CLEAR + 0.5)


def _cached(scene: Scene) -> float:
    """It is the responses whose prompt was in the prefix cache."""
    cached = scene.place is not None and scene.place.value != "none"
    return _clear_place(scene, "prefix_cache") if cached else 0.0


def _prefix_cache(scene: Scene) -> float:
    """Only responses to cached prompts drift, whether most at their beginning or not."""
    return _cached(scene) * _not(_defined(scene), _ending(scene), _position(scene))


def _adapter(scene: Scene) -> float:
    """Only one adapter's responses drift, and their drift has no shape that explains it better."""
    shaped = (_defined(scene), _ending(scene), _context(scene), _position(scene))
    return _clear_place(scene, "adapter") * _not(*shaped)


def _learned(scene: Scene) -> float:
    """Sampled tokens became likelier: the trainer took steps on them (A21)."""
    learned = 1.0 if scene.ratio_clause else ramp(scene.features.mean_ratio_z, 3.0, 5.0)
    return learned * _not(_temperature(scene), _shift(scene))


def _stale(scene: Scene) -> float:
    """Sampled tokens became likelier; or drift comes in stretches; or it depends on the content.

    Recorded: mean-ratio z 11 to 32, clustering .19 to .26, tail 13 to 18 from 1 to 8 optimiser steps;
    healthy kernels stay below 1.5, .13 and 10.5.
    """
    f = scene.features
    if scene.lag > 0:
        return 1.0
    stretches = max(
        ramp(f.clustering, 0.23, 0.28) * ramp(f.tail, 12.0, 16.0),
        ramp(f.clustering, 0.18, 0.25) * ramp(f.tail, 22.0, 29.0),
    )
    waves = ramp(scene.sawtooth, CLEAR, CLEAR + 1.0)
    looks = max(_learned(scene), 0.9 * stretches, 0.9 * _content(scene), waves)
    shaped = (_defined(scene), _ending(scene), _context(scene), _position(scene))
    return looks * _not(*shaped, _prefix_cache(scene), _adapter(scene))


def _content(scene: Scene) -> float:
    """Drift depends on what a sequence is about, most at its first tokens, and no few tokens carry it.

    Recorded: first/rest 1.4 to 1.7 and dispersion .65 to .75 where weights moved; coarse kernels have one
    of the two.
    """
    f = scene.features
    first = min(max(f.position_fall - 1.0, 0.0), 0.5) if isfinite(f.position_fall) else 0.0
    depends = ramp(f.dispersion + 0.5 * first, 0.36, 0.46) * ramp(24.0 - f.tail, 0.0, 7.0)
    return max(depends, ramp(f.dispersion, 0.5, 0.6)) * ramp(f.clustering, 0.09, 0.125)


def _jumps(scene: Scene) -> float:
    """A few tokens carry the drift, and they do not stand together."""
    f = scene.features
    few = max(ramp(f.tail, 13.0, 17.0), ramp(f.kurtosis, 25.0, 40.0))
    return few * ramp(0.13 - f.clustering, 0.0, 0.04)


def _rounds(scene: Scene) -> float:
    """Two-sided, in place, evenly spread, without a few tokens carrying it."""
    f = scene.features
    two_sided = ramp(0.8 - abs(f.share_not_above - 0.5), 0.5, 0.62)
    light = ramp(16.5 - f.tail, 0.0, 3.0) * ramp(24.0 - f.kurtosis, 0.0, 8.0)
    most = 0.185 + 0.05 * ramp(
        10.5 - f.tail, 0.0, 1.5
    )  # of e4m3 in few sequences: .17 to .22, and a tail of 9
    even = ramp(most - f.clustering, 0.0, 0.04) * ramp(0.36 - f.dispersion, 0.0, 0.06)
    unscaled = ramp(0.25 - f.opposed, 0.0, 0.1) if isfinite(f.opposed) else 1.0
    return two_sided * light * even * unscaled * ramp(f.correlation, 0.6, 0.75)


def _routing(scene: Scene) -> float:
    """Single tokens jump, one here and one there, while the rest agree as well as ever."""
    others = (_defined(scene), _ending(scene), _context(scene), _position(scene), _stale(scene))
    return scene.drift_clause * _jumps(scene) * _not(*others, _prefix_cache(scene), _adapter(scene))


def _precision(scene: Scene) -> float:
    """It looks like rounding, whatever its size, and nothing else explains it."""
    others = [rule(scene) for cause, rule in SCORES.items() if cause is not Cause.PRECISION]
    return scene.drift_clause * _rounds(scene) * _not(*others)


SCORES: Mapping[Cause, Callable[[Scene], float]] = MappingProxyType(
    {
        Cause.BROKEN: _broken,
        Cause.SHIFT: _shift,
        Cause.TEMPERATURE: _temperature,
        Cause.SUPPORT: _support,
        Cause.WRONG_LAW: _wrong_law,
        Cause.ENDING: _ending,
        Cause.CONTEXT: _context,
        Cause.POSITION: _position,
        Cause.PREFIX_CACHE: _prefix_cache,
        Cause.ADAPTER: _adapter,
        Cause.STALE: _stale,
        Cause.ROUTING: _routing,
        Cause.PRECISION: _precision,
    }
)
