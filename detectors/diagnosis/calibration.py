"""Calibration: how often a cause was right when it scored highest, by its score.

The numbers are shares on drawn faults of training seeds, never falling with the score, made by
``python benchmarks/diagnosis_accuracy.py --calibrate --cases 350``.  They are as good as the mixture of faults
they were drawn from, which has every cause, severity and share alike.
"""

from bisect import bisect_right
from collections.abc import Mapping
from types import MappingProxyType

from paritas.detectors.diagnosis.causes import Cause

__all__ = ["EDGES", "confidence"]

EDGES = (0.2, 0.4, 0.6, 0.8, 0.95)  # of the ranges of a score
RIGHT: Mapping[Cause, tuple[float, ...]] = MappingProxyType(
    {
        Cause.SHIFT: (0.19, 0.333, 0.714, 0.778, 0.923, 0.99),
        Cause.TEMPERATURE: (0.19, 0.333, 0.714, 0.778, 0.949, 0.99),
        Cause.SUPPORT: (0.19, 0.333, 0.714, 0.852, 0.923, 0.99),
        Cause.WRONG_LAW: (0.19, 0.333, 0.714, 0.778, 0.923, 0.99),
        Cause.STALE: (0.388, 0.388, 0.905, 0.911, 0.94, 0.99),
        Cause.PREFIX_CACHE: (0.19, 0.333, 0.714, 0.778, 0.923, 0.99),
        Cause.ADAPTER: (0.19, 0.333, 0.714, 0.778, 0.923, 0.99),
        Cause.POSITION: (0.19, 0.333, 0.714, 0.778, 0.923, 0.99),
        Cause.CONTEXT: (0.19, 0.333, 0.714, 0.778, 0.923, 0.99),
        Cause.ENDING: (0.19, 0.333, 0.714, 0.778, 0.923, 0.99),
        Cause.ROUTING: (0.19, 0.333, 0.714, 0.778, 0.923, 0.99),
        Cause.BROKEN: (0.032, 0.333, 0.714, 0.778, 0.923, 0.99),
        Cause.PRECISION: (0.076, 0.222, 0.476, 0.711, 0.939, 0.939),
    }
)


def confidence(cause: Cause, score: float) -> float:
    """Share of the cases with such a score in which the cause was right.

    Examples
    --------
    >>> confidence(Cause.SHIFT, 1.0) > confidence(Cause.SHIFT, 0.3)
    True
    """
    return RIGHT[cause][bisect_right(EDGES, score)]
