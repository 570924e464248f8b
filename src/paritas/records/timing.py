"""Durations that came as a histogram rather than one by one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paritas.histograms import ExponentialHistogram

__all__ = ["TimingPoint"]


@dataclass(frozen=True, slots=True, eq=False)
class TimingPoint:
    """What one data point says of the requests of its interval.

    Attributes
    ----------
    statistic : str
        Name in the catalogue: ``time_to_first_token`` or ``inter_token_latency``.
    event_ns : int
        Unix ns at which the interval ended.
    histogram : ExponentialHistogram
        Durations, in units of `unit_s` seconds.
    attributes : mapping
        Slice dimensions, as of `TokenTrace`.
    """

    statistic: str
    event_ns: int
    histogram: ExponentialHistogram
    unit_s: float = 1.0
    attributes: Mapping[str, str] = field(default_factory=dict)
