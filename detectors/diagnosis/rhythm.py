"""Rhythm: drift that grows, and drift that grows between weight updates and falls at each of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

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
    trend, trend_between : SignBets
        Of two blocks one after the other, the later one drifts more: the first with the second, the third
        with the fourth and so on; and the second with the third.
    early, late : list of float, nats
        The first and the newest units of the present weights version.
    """

    rises: SignBets = field(default_factory=SignBets)
    falls: SignBets = field(default_factory=SignBets)
    trend: SignBets = field(default_factory=SignBets)
    trend_between: SignBets = field(default_factory=SignBets)
    version: str = ""
    early: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    before: float = float("nan")
    block: list[float] = field(default_factory=list)
    block_before: float = float("nan")
    is_second: bool = False

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
        self.block.append(size)
        self._close_block()

    def fold_many(self, sizes: Sequence[float], versions: Sequence[str]) -> None:
        """Take many units, as one by one."""
        start = 0
        for version, same in groupby(versions):
            stop = start + len(list(same))
            self._fold_version(sizes[start:stop], version)
            start = stop
        start = 0
        while start < len(sizes):
            some = sizes[start : start + BLOCK - len(self.block)]
            self.block.extend(some)
            self._close_block()
            start += len(some)

    def _fold_version(self, sizes: Sequence[float], version: str) -> None:
        """Take units of one version for its beginning and its end."""
        if version != self.version:
            self._sync(version)
        begun = min(EDGE - len(self.early), len(sizes))
        for size in sizes[:begun]:
            self._begin(size)
        self.late = [*self.late, *sizes[begun:][-EDGE:]][-EDGE:]

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

    def _close_block(self) -> None:
        """Compare a block that is full with the one before."""
        if len(self.block) < BLOCK:
            return
        mean, self.block = _mean(self.block), []
        bets = self.trend if self.is_second else self.trend_between
        bets.fold(mean - self.block_before)  # of the very first block: NaN, which no bet is made on
        self.block_before, self.is_second = mean, not self.is_second

    def growth(self) -> float:
        """Evidence of growth from block to block, log10 of the smaller e-value.

        Drift that jumps to and fro in step with the blocks makes one of the two large and never both.
        """
        return min(self.trend.log10_e(), self.trend_between.log10_e())

    def sawtooth(self) -> float:
        """Evidence of growth within versions and of a fall at their borders, log10 of the smaller e-value."""
        return min(self.rises.log10_e(), self.falls.log10_e())


def _mean(values: list[float]) -> float:
    return float(np.mean(values))
