"""Registry: every fault that can be drawn, what it is called, and how bad it gets."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from paritas.detectors.diagnosis.causes import Cause
from paritas.detectors.diagnosis.faults import makers
from paritas.detectors.diagnosis.faults.makers import Maker
from paritas.records import TokenStatus

__all__ = ["FAULTS", "HEALTHY", "Fault"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to make one cause.

    Attributes
    ----------
    severities : tuple of float
        From mild to bad, in the maker's unit.
    place : str
        Attribute whose value is affected, for faults that are of one place by nature; else empty.
    """

    cause: Cause
    make: Maker
    severities: tuple[float, ...]
    place: str = ""


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "rolled": Fault(Cause.SHIFT, makers.rolled, (1.0, -1.0)),
        "warm_sampler": Fault(Cause.TEMPERATURE, makers.warm_sampler, (0.85, 0.7, 0.5, 1.2, 1.5)),
        "warm_trainer": Fault(Cause.TEMPERATURE, makers.warm_trainer, (0.85, 0.7, 0.5)),
        "cut_top_p": Fault(Cause.SUPPORT, makers.cut_top_p, (0.95, 0.9, 0.8)),
        "cut_top_k": Fault(Cause.SUPPORT, makers.cut_top_k, (16.0, 8.0, 4.0)),
        "cut_min_p": Fault(Cause.SUPPORT, makers.cut_min_p, (0.05, 0.1, 0.2)),
        "raw_at_temperature": Fault(Cause.WRONG_LAW, makers.raw_at_temperature, (0.9, 0.8, 0.6, 1.2)),
        "raw_at_top_p": Fault(Cause.WRONG_LAW, makers.raw_at_top_p, (0.95, 0.9, 0.8)),
        "told_raw": Fault(Cause.WRONG_LAW, makers.told_raw, (0.8, 0.6)),
        "learned": Fault(Cause.STALE, makers.learned, (0.1, 0.3, 0.8)),
        "moved": Fault(Cause.STALE, makers.moved, (0.4, 0.8, 1.6)),
        "retrained": Fault(Cause.STALE, makers.retrained, (0.2, 0.4, 0.8)),
        "declared_lag": Fault(Cause.STALE, makers.declared_lag, (1.0, 8.0)),
        "cached_prefix": Fault(Cause.PREFIX_CACHE, makers.cached_prefix, (0.4, 0.8, 1.6), "prefix_cache"),
        "other_adapter": Fault(Cause.ADAPTER, makers.other_adapter, (0.4, 0.8, 1.6), "adapter"),
        "growing": Fault(Cause.POSITION, makers.growing, (4.0, 8.0, 16.0)),
        "after_tile": Fault(Cause.POSITION, makers.after_tile, (3.0, 6.0, 12.0)),
        "other_context": Fault(Cause.CONTEXT, makers.other_context, (1.0, 2.0, 4.0)),
        "other_ending": Fault(Cause.ENDING, makers.other_ending, (1.0, 3.0, 8.0)),
        "flipped": Fault(Cause.ROUTING, makers.flipped, (0.01, 0.03, 0.06)),
        "coarse": Fault(Cause.PRECISION, makers.coarse, (3.0, 6.0, 12.0)),
        "quantised": Fault(Cause.PRECISION, makers.quantised, (4.0, 8.0, 16.0)),
        "uneven": Fault(Cause.UNKNOWN, makers.uneven, (2.5, 5.0, 10.0)),
        "nonfinite": Fault(Cause.BROKEN, makers.broken(TokenStatus.NONFINITE), (0.002, 0.02, 0.2)),
        "sentinel": Fault(Cause.BROKEN, makers.broken(TokenStatus.SENTINEL), (0.002, 0.02, 0.2)),
        "positive": Fault(Cause.BROKEN, makers.broken(TokenStatus.POSITIVE), (0.002, 0.02)),
        "missing": Fault(Cause.BROKEN, makers.broken(TokenStatus.MISSING), (0.02, 0.2)),
    }
)

HEALTHY = Fault(Cause.UNKNOWN, makers.healthy, (0.0,))
