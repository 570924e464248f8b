"""Streams of recorded sequences: healthy ones, then a recorded fault, resampled by kind of prompt.

Only what the kernels computed changes at the fault.  A faulty sequence carries the labels, kernel
identity, sampling options and weights version of the healthy recording, so that no metadata tells.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paritas.commands.experiments.recorded import REPLICAS, available, outcomes_of
from paritas.commands.experiments.result import Floats
from paritas.detectors.pairs import PairedTrace, PairOutcome

__all__ = [
    "CHANGE",
    "EVERYWHERE",
    "ONE_PROMPT",
    "ONE_REPLICA",
    "SHARES",
    "UNITS",
    "Draw",
    "Pool",
    "healthy_of",
]

UNITS, CHANGE = 2048, 768
EVERYWHERE, ONE_REPLICA, ONE_PROMPT = "all", "a replica of 4", "a kind of prompt"
SHARES = (EVERYWHERE, ONE_REPLICA, ONE_PROMPT)
FAULTY_REPLICA = 2
KIND = "slice"  # label of a trace: the kind of its prompt

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Draw:
    """Which prompts come when, shape (units, streams), the same for every fault.

    Attributes
    ----------
    kind : int64
        Place of the kind of prompt.
    member : float64
        In [0, 1): which recorded sequence of that kind.
    """

    kind: Places
    member: Floats

    @classmethod
    def of(cls, rng: np.random.Generator, kinds: int, shape: tuple[int, int]) -> "Draw":
        """Draw kinds evenly and their members."""
        return cls(rng.integers(kinds, size=shape), rng.random(shape))


class Pool:
    """Recorded sequences of a healthy kernel and, if any, of a fault.

    Parameters
    ----------
    healthy, faulty : sequence of PairOutcome
        `faulty` may be empty.

    Attributes
    ----------
    kinds : tuple of str
        Kinds of prompt, sorted.
    pairs : tuple of PairedTrace
        All of them, the healthy first.
    """

    def __init__(self, healthy: Sequence[PairOutcome], faulty: Sequence[PairOutcome] = ()) -> None:
        known = [o for o in healthy if o.pair is not None]
        model = known[0].pair
        assert model is not None
        silenced = [_silenced(o, o.pair, model) for o in faulty if o.pair is not None]
        self.kinds = tuple(sorted({o.attributes.get(KIND, "") for o in known}))
        sides = [_by_kind(side, self.kinds) for side in (known, silenced)]
        ordered = [o for side in sides for members in side for o in members]
        self.pairs = tuple(o.pair for o in ordered if o.pair is not None)
        sizes = [len(members) for side in sides for members in side]
        edges = np.concatenate([[0], np.cumsum(sizes)])
        self._first, self._size = edges[:-1].reshape(2, -1), np.array(sizes).reshape(2, -1)

    def places(self, draw: Draw, share: str) -> Places:
        """Places in `pairs` of every unit and stream; the fault has this share from `CHANGE` on, or "" for none."""
        side = self._is_faulty(draw, share).astype(np.int64)
        first, size = self._first[side, draw.kind], self._size[side, draw.kind]
        return np.asarray(first + (draw.member * size).astype(np.int64))

    def _is_faulty(self, draw: Draw, share: str) -> NDArray[np.bool_]:
        unit = np.arange(len(draw.kind))[:, None]
        hit = {
            EVERYWHERE: np.ones_like(draw.kind, dtype=bool),
            ONE_REPLICA: np.broadcast_to(unit % REPLICAS == FAULTY_REPLICA, draw.kind.shape),
            ONE_PROMPT: draw.kind == self.kinds.index(self.prompt),
        }
        return (unit >= CHANGE) & hit[share] if share else np.zeros_like(draw.kind, dtype=bool)

    def worst_mean(self, values: Floats) -> float:
        """Largest mean over the healthy sequences of any kind of prompt, of values of shape (len(pairs),)."""
        return max(float(np.nanmean(values[first : first + size])) for first, size in self.healthy_spans())

    def healthy_spans(self) -> list[tuple[int, int]]:
        """First place and number of the healthy sequences of each kind of prompt."""
        return list(zip(self._first[0].tolist(), self._size[0].tolist(), strict=True))

    @property
    def prompt(self) -> str:
        """The kind of prompt that has the fault where only one has it."""
        return "math" if "math" in self.kinds else self.kinds[0]


def healthy_of(folder: Path, train: str, healthy: Sequence[str]) -> str:
    """Return the healthy recording a fault is compared with: its own sampler's, else one of the same engine."""
    serve = available(folder)[train]
    known = [name for name in healthy if available(folder).get(name) == name]
    if serve in known:
        return serve
    engine = _engine(folder, serve, train)
    return next((name for name in known if _engine(folder, name, name) == engine), known[0])


def _engine(folder: Path, serve: str, train: str) -> str:
    return next(o.pair.inference.engine for o in outcomes_of(folder, serve, train) if o.pair is not None)


def _by_kind(outcomes: Sequence[PairOutcome], kinds: Sequence[str]) -> list[list[PairOutcome]]:
    """Members of each kind; a side without some kind gives all of its sequences for it."""
    told = [[o for o in outcomes if o.attributes.get(KIND, "") == kind] for kind in kinds]
    return [members or list(outcomes) for members in told]


def _silenced(outcome: PairOutcome, pair: PairedTrace, model: PairedTrace) -> PairOutcome:
    """The outcome with the healthy recording's metadata."""
    quiet = replace(
        pair,
        weights_version=model.weights_version,
        inference=model.inference,
        train=model.train,
        sampling=model.sampling,
        train_sampling=model.train_sampling,
        lag=model.lag,
    )
    return replace(outcome, pair=quiet)
