"""What is remembered of one slice instance besides its rows: recent sums, laws, lags, exemplars."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.diagnosis import Recent, Whereabouts
from paritas.detectors.pairs import Floats, PairOutcome
from paritas.records import Sampling

if TYPE_CHECKING:
    from paritas.detectors.units import Batch

__all__ = ["SliceState"]

EXEMPLARS = 5


@dataclass(slots=True)
class SliceState:
    """What is remembered of one slice instance besides its rows.

    Attributes
    ----------
    lag, allowed_lag : int
        Largest weights lag of sequences that were refused for it, and of those that paired.
    shifted : int
        Sequences whose token ids agree after a move by one.
    worst : list of (value, trace id)
        The pairs with the largest mean |ell|, worst first.
    whereabouts : Whereabouts
        Where and when the drift is.
    """

    recent: Recent
    inference: Sampling = Sampling()
    train: Sampling = Sampling()
    lag: int = 0
    allowed_lag: int = 0
    shifted: int = 0
    worst: list[tuple[float, str]] = field(default_factory=list)
    whereabouts: Whereabouts = field(default_factory=Whereabouts)

    def note(self, batch: "Batch", places: NDArray[np.int64]) -> None:
        """Remember some pairs of a batch, in their order."""
        sums, newest = batch.sums[places], batch.pairs[int(places[-1])]
        for place, unit in zip(places.tolist(), sums, strict=True):
            self.whereabouts.fold(batch.pairs[place], unit)
        fold_recent(self.recent, sums)
        self.inference, self.train = newest.sampling, newest.train_sampling
        self.allowed_lag = max(self.allowed_lag, int(batch.lags[places].max()))
        self._note_worst(batch, places)

    def _note_worst(self, batch: "Batch", places: NDArray[np.int64]) -> None:
        least = self.worst[-1][0] if len(self.worst) == EXEMPLARS else 0.0
        large = _largest(places[batch.sizes[places] >= least], batch.sizes)
        told = ((float(batch.sizes[i]), batch.pairs[i].trace_id) for i in large.tolist())
        self.worst = sorted([*self.worst, *told], key=lambda w: (-w[0], w[1]))[:EXEMPLARS]

    def note_loss(self, outcome: PairOutcome) -> None:
        """Remember what the loss of a sequence tells: a move of its tokens, a lag."""
        self.shifted += 1 if outcome.facts.get("shift") else 0
        self.lag = max(self.lag, int(float(outcome.facts.get("lag", 0))))


def _largest(places: NDArray[np.int64], sizes: Floats) -> NDArray[np.int64]:
    """Places of all values that may be among the `EXEMPLARS` largest."""
    if len(places) <= EXEMPLARS:
        return places
    least = np.partition(sizes[places], -EXEMPLARS)[-EXEMPLARS]
    return np.asarray(places[sizes[places] >= least])


def fold_recent(recent: Recent, sums: Floats) -> None:
    """Fold many units' sums in, by the same additions as one by one; `sums` are overwritten."""
    start = 0
    while start < len(sums):
        if recent.filled == recent.window:
            recent.older, recent.newer, recent.filled = recent.newer, np.zeros_like(recent.newer), 0
        stop = start + min(recent.window - recent.filled, len(sums) - start)
        some = sums[start:stop]
        some[0] += recent.newer
        recent.newer = np.add.reduce(some, axis=0)  # along the outer axis it adds row after row
        recent.filled += stop - start
        start = stop
