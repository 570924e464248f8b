"""Cases: a fault, how bad, under which kernel, in which part of the traffic; and the outcomes to judge."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.diagnosis.causes import Cause
from paritas.detectors.diagnosis.faults.cut import cut
from paritas.detectors.diagnosis.faults.kernels import KERNELS
from paritas.detectors.diagnosis.faults.laws import workload
from paritas.detectors.diagnosis.faults.makers import healthy
from paritas.detectors.diagnosis.faults.registry import FAULTS, HEALTHY, Fault
from paritas.detectors.pairs import PairOutcome

__all__ = ["SHARES", "Case", "cases", "outcomes"]

WHOLE = "all"
SHARES = (WHOLE, "replica", "slice", "half")  # everything, one of 4 replicas, one of 6 kinds, 2 of 4 replicas
PLACES = {"replica": 4, "slice": 6, "adapter": 4, "prefix_cache": 2, "environment": 3, "turn": 3}
BAD = 1  # number of the affected value of an attribute
PARTS = {WHOLE: 64, "half": 96}  # sequences; 128 where one value of several is affected


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to diagnose; `seed` decides everything random about it.

    Attributes
    ----------
    fault : str
        Name in `FAULTS`, or ``healthy``.
    severity : float
        In the fault's unit.
    kernel : str
        Name in `KERNELS`: the noise beside the fault, and the contract it is judged by.
    share : str
        One of `SHARES`, or the place of a fault that has one by nature.
    """

    fault: str
    severity: float
    kernel: str
    share: str
    seed: int

    @property
    def made(self) -> Fault:
        """How the fault is made."""
        return {**FAULTS, "healthy": HEALTHY}[self.fault]

    @property
    def cause(self) -> Cause:
        """What it is called."""
        return self.made.cause

    @property
    def preset(self) -> str:
        """Contract to judge by."""
        return KERNELS[self.kernel].preset

    @property
    def slice(self) -> str:
        """Name of the affected slice where it is one value of a declared one; else empty."""
        return f"{self.share}=v{BAD}" if self.share in ("replica", "slice") else ""


def cases(seed: int, repeats: int = 1) -> Iterator[Case]:
    """Yield every fault, severity and share under each kernel, `repeats` times with seeds of their own."""
    numbers = iter(range(seed * 1_000_000, (seed + 1) * 1_000_000))
    for _ in range(repeats):
        for kernel in KERNELS:
            for name, fault in FAULTS.items():
                for severity in fault.severities:
                    for share in (fault.place,) if fault.place else SHARES:
                        yield Case(name, severity, kernel, share, next(numbers))


def outcomes(case: Case) -> list[PairOutcome]:
    """Draw a case: what the pairing stage would hand on, in order."""
    rng = np.random.default_rng(case.seed)
    sequences = PARTS.get(case.share, 128)
    work = workload(rng, sequences, rng.uniform(60, 110), rng.uniform(0.7, 1.8))
    labels = _labels(rng, case, sequences)
    hit = _affected(case, labels, sequences)
    kernel = KERNELS[case.kernel]
    logs = [
        (hit, case.made.make(rng, work.only(hit), kernel, case.severity)),
        *([(~hit, healthy(rng, work.only(~hit), kernel))] if not hit.all() else []),
    ]
    made = [o for part, log in logs for o in cut(work.only(part), log, np.flatnonzero(part), labels)]
    return sorted(made, key=lambda o: o.event_ns)


def _labels(rng: np.random.Generator, case: Case, sequences: int) -> dict[str, NDArray[np.str_]]:
    """Attributes of each sequence; those of no declared slice are not always reported."""
    told = {name for name in PLACES if name in ("replica", "slice", case.share) or rng.random() < 0.5}
    values = {
        name: np.arange(sequences) % n if name == "replica" else rng.integers(0, n, sequences)
        for name, n in PLACES.items()
        if name in told
    }
    return {name: np.array([_value(name, i) for i in column]) for name, column in values.items()}


def _value(name: str, number: int) -> str:
    if name == "prefix_cache":
        return ("none", "most")[number]
    return str(number) if name == "turn" else f"v{number}"


def _affected(case: Case, labels: dict[str, NDArray[np.str_]], sequences: int) -> NDArray[np.bool_]:
    if case.share == WHOLE:
        return np.ones(sequences, bool)
    if case.share == "half":
        return np.isin(labels["replica"], [_value("replica", i) for i in (0, BAD)])
    return np.asarray(labels[case.share] == _value(case.share, BAD))
