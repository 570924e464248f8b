"""The policy-gradient estimators of D3: how each one weights a token, and with what thresholds."""

import math
from dataclasses import dataclass
from enum import StrEnum

from paritas.contracts.model import Estimator
from paritas.errors import ContractError

__all__ = ["EstimatorKind", "Weighting", "weighting_of"]


class EstimatorKind(StrEnum):
    """How an estimator turns the ratio w into the weight of a token."""

    NONE = "none"  # 1: uncorrected
    TIS = "tis"  # min(w, C): truncated importance sampling
    CLIP = "clip"  # clip(w, 1-c, 1+c)
    MIS = "mis"  # w where low <= w <= C, else 0: masked importance sampling
    PPO_MIN = "ppo_min"  # w, but 0 where the advantage pushes w further out of [1-c, 1+c]
    IS = "is"  # w: full importance sampling


@dataclass(frozen=True, slots=True)
class Weighting:
    """An estimator with every threshold filled in and checked.

    Attributes
    ----------
    kind : EstimatorKind
    low, high : float, ratio
        Band inside which a token keeps its ratio: [0, C], [low, C] or [1-c, 1+c].
    cap : float, ratio
        C at which a statistic is cut to stay bounded.
    clip : float, ratio
        c; infinity where the kind takes none.
    """

    kind: EstimatorKind
    low: float
    high: float
    cap: float
    clip: float = math.inf


def weighting_of(estimator: Estimator) -> Weighting:
    """Check the estimator of a contract and fill in what follows.

    Raises
    ------
    ContractError
        Unknown kind, a cap below 1, a floor outside [0, 1], or a clip range that is missing
        or negative.  The message has no place: the caller knows the line.

    Examples
    --------
    >>> weighting_of(Estimator(kind="clip", clip=0.2)).high
    1.2
    """
    kind = _kind(estimator.kind)
    cap = _ratio(estimator.cap, "cap", low=1.0, high=math.inf)
    if kind in (EstimatorKind.CLIP, EstimatorKind.PPO_MIN):
        return _clipping(kind, estimator.clip, cap)
    if kind is EstimatorKind.MIS:
        return Weighting(kind, _ratio(estimator.low or 0.0, "low", low=0.0, high=1.0), cap, cap)
    return Weighting(kind, 0.0, cap, cap)


def _clipping(kind: EstimatorKind, clip: float | None, cap: float) -> Weighting:
    if clip is None:
        raise ContractError(f"estimator {kind} needs clip", hint="for example clip: 0.2")
    c = _ratio(clip, "clip", low=0.0, high=math.inf)
    return Weighting(kind, max(1.0 - c, 0.0), 1.0 + c, max(cap, 1.0 + c), c)


def _kind(name: str) -> EstimatorKind:
    try:
        return EstimatorKind(name)
    except ValueError:
        known = ", ".join(sorted(EstimatorKind))
        raise ContractError(f"unknown estimator kind {name!r}", hint=f"one of {known}") from None


def _ratio(value: float, name: str, *, low: float, high: float) -> float:
    if not (low <= value <= high) or math.isinf(value):
        wanted = f"between {low:g} and {high:g}" if math.isfinite(high) else f"{low:g} or more"
        raise ContractError(f"estimator {name} must be {wanted}, got {value:g}", hint=_HINTS[name])
    return value


_HINTS = {
    "cap": "cap truncates the importance ratio; below 1 it would also shrink tokens that agree",
    "clip": "clip is the half-width c of [1-c, 1+c]",
    "low": "low is the ratio below which MIS drops a token",
}
