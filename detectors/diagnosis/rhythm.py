"""Rhythm: drift that grows, and drift that grows between weight updates and falls at each of them."""

from dataclasses import dataclass, field

import numpy as np

from paritas.detectors.diagnosis.bets import SignBets

__all__ = ["Rhythm"]

EDGE = 6  # units at each end of a version that are compared
BLOCK = 32  # units of a block of the trend


@dataclass(slots=True)
class Rhythm:
    """Mean |ell| of a slice's units over time, in a few numbers.

    Attributes
    ----------
    rises, falls : SignBets
        Within one weights version the end drifts more than the beginning; the beginning of the next one
        drifts less than the end before.
    trend : SignBets
        Of two blocks one after the other, the later one drifts more.
    early, late : list of float, nats
        The first and the newest units of the present weights version.
    """

    rises: SignBets = field(default_factory=SignBets)
    falls: SignBets = field(default_factory=SignBets)
    trend: SignBets = field(default_factory=SignBets)
    version: str = ""
    early: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    before: float = float("nan")
    block: list[float] = field(default_factory=list)
    half: float = float("nan")

    def fold(self, size: float, version: str) -> None:
        """Take one unit's mean |ell|, nats, and the weights version it was sampled with."""
        if version != self.version:
            self._sync(version)
        if len(self.early) < EDGE:
            self._begin(size)
        else:
            self.late.append(size)
            if len(self.late) > EDGE:
                del self.late[0]
        self._note_block(size)

    def _sync(self, version: str) -> None:
        """A version is over: did it end worse than it began?"""
        if len(self.late) == EDGE:
            self.before = _mean(self.late)
            self.rises.fold(self.before - _mean(self.early))
        else:
            self.before = float("nan")
        self.version, self.early, self.late = version, [], []

    def _begin(self, size: float) -> None:
        """The beginning of a version is whole: is it better than the end before?"""
        self.early.append(size)
        if len(self.early) == EDGE and not np.isnan(self.before):
            self.falls.fold(self.before - _mean(self.early))

    def _note_block(self, size: float) -> None:
        self.block.append(size)
        if len(self.block) < BLOCK:
            return
        mean, self.block = _mean(self.block), []
        if np.isnan(self.half):
            self.half = mean
        else:
            self.trend.fold(mean - self.half)
            self.half = float("nan")

    def sawtooth(self) -> float:
        """Evidence of growth within versions and of a fall at their borders, log10 of the smaller e-value."""
        return min(self.rises.log10_e(), self.falls.log10_e())


def _mean(values: list[float]) -> float:
    return float(np.mean(values))
