"""Calibration: how often a cause was right when it scored highest, by its score.

The numbers are shares on drawn faults of training seeds, never falling with the score, made by
``python benchmarks/diagnosis_accuracy.py --calibrate --cases 700``.  They are as good as the mixture of faults
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
        Cause.SHIFT: (0.222, 0.407, 0.407, 0.407, 0.904, 0.99),
        Cause.TEMPERATURE: (0.222, 0.474, 0.642, 0.642, 0.952, 0.99),
        Cause.SUPPORT: (0.222, 0.411, 0.411, 0.6, 0.936, 0.99),
        Cause.WRONG_LAW: (0.222, 0.407, 0.407, 0.407, 0.904, 0.99),
        Cause.STALE: (0.389, 0.47, 0.47, 0.47, 0.93, 0.99),
        Cause.PREFIX_CACHE: (0.222, 0.407, 0.407, 0.407, 0.904, 0.99),
        Cause.ADAPTER: (0.222, 0.407, 0.407, 0.407, 0.904, 0.99),
        Cause.POSITION: (0.222, 0.407, 0.407, 0.407, 0.904, 0.99),
        Cause.CONTEXT: (0.222, 0.349, 0.349, 0.349, 0.904, 0.99),
        Cause.ENDING: (0.222, 0.407, 0.407, 0.407, 0.904, 0.99),
        Cause.ROUTING: (0.111, 0.189, 0.232, 0.4, 0.561, 0.99),
        Cause.BROKEN: (0.044, 0.407, 0.407, 0.407, 0.904, 0.99),
        Cause.PRECISION: (0.089, 0.234, 0.234, 0.234, 0.959, 0.959),
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
