"""What is remembered of one slice instance besides its rows: recent sums, laws, lags, exemplars."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.diagnosis import Recent, Whereabouts
from paritas.detectors.pairs import Floats, PairOutcome
from paritas.records import KernelIdentity, Sampling

if TYPE_CHECKING:
    from paritas.detectors.units import Batch

__all__ = ["SliceState"]

EXEMPLARS = 5
MANY = 4  # pairs that are folded together faster than one by one


@dataclass(slots=True)
class SliceState:
    """What is remembered of one slice instance besides its rows.

    Attributes
    ----------
    lag, allowed_lag : int
        Largest weights lag of sequences that were refused for it, and of those that paired.
    shifted : int
        Sequences whose token ids agree after a move by one.
    digests : int
        Sequences whose two sides claim the same weights version and hold other weights.
    other_law : str
        In what the laws of a sequence that was refused for them differ; empty without any.
    kernels : tuple of KernelIdentity
        Of the newest pair: the sampler's and the trainer's.
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
    digests: int = 0
    other_law: str = ""
    kernels: tuple[KernelIdentity, ...] = ()
    worst: list[tuple[float, str]] = field(default_factory=list)
    whereabouts: Whereabouts = field(default_factory=Whereabouts)

    def note(self, batch: "Batch", places: NDArray[np.int64]) -> None:
        """Remember some pairs of a batch, in their order."""
        sums, newest = batch.sums[places], batch.pairs[int(places[-1])]
        self._note_whereabouts(batch, places, sums)
        fold_recent(self.recent, sums)
        self.inference, self.train = newest.sampling, newest.train_sampling
        self.kernels = (newest.inference, newest.train)
        self.allowed_lag = max(self.allowed_lag, int(batch.lags[places].max()))
        self._note_worst(batch, places)

    def _note_whereabouts(self, batch: "Batch", places: NDArray[np.int64], sums: Floats) -> None:
        """Remember where the drift of some pairs is: one by one where they are too few to be worth arrays."""
        if not self.whereabouts.is_followed:
            return
        at = places.tolist()
        if len(at) < MANY:
            for place, unit in zip(at, sums, strict=True):
                self.whereabouts.fold(batch.pairs[place], unit)
            return
        labels = {name: [values[i] for i in at] for name, values in batch.labels.items()}
        self.whereabouts.fold_many(labels, [batch.pairs[i].weights_version for i in at], sums)

    def _note_worst(self, batch: "Batch", places: NDArray[np.int64]) -> None:
        least = self.worst[-1][0] if len(self.worst) == EXEMPLARS else 0.0
        large = _largest(places[batch.sizes[places] >= least], batch.sizes)
        told = ((float(batch.sizes[i]), batch.pairs[i].trace_id) for i in large.tolist())
        self.worst = sorted([*self.worst, *told], key=lambda w: (-w[0], w[1]))[:EXEMPLARS]

    def note_loss(self, outcome: PairOutcome) -> None:
        """Remember what the loss of a sequence tells: a move of its tokens, a lag, other weights, another law."""
        self.shifted += 1 if outcome.facts.get("shift") else 0
        self.digests += 1 if outcome.facts.get("digest") else 0
        self.other_law = str(outcome.facts.get("law", self.other_law))
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
