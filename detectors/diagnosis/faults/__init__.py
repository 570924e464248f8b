"""Faults made to order: paired logs of two kernels with one known fault, from softmax laws token by token.

Everything is random and seeded, nothing is read.  The numbers behind docs/diagnosis.md and
docs/causes come from here (`benchmarks/diagnosis_accuracy.py`), and so does `calibration.py`.
"""

from paritas.detectors.diagnosis.faults.cases import SHARES, Case, cases, outcomes
from paritas.detectors.diagnosis.faults.laws import Log, Workload, workload
from paritas.detectors.diagnosis.faults.registry import FAULTS, Fault

__all__ = ["FAULTS", "SHARES", "Case", "Fault", "Log", "Workload", "cases", "outcomes", "workload"]
