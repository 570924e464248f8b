"""Rosetta: the numbers other frameworks print, by their own names, from the same pairs.

Formulas as read in their sources (docs/rosetta.md gives repository and file), over all valid tokens
of the input, on raw values except where a peer clamps them itself.  `rosetta` judges a recording,
`RecentRosetta` a stream.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from paritas.detectors.evidence import PairBatch
from paritas.detectors.pairs import PairedTrace
from paritas.detectors.rosetta_metrics import METRICS, environment_metrics
from paritas.detectors.rosetta_sums import Sums

__all__ = ["METRICS", "RecentRosetta", "Sums", "rosetta", "values_of"]

BATCH_TOKENS = 32_768  # columns of so many tokens are made at once: bounded memory, in cache
BATCH_SEQUENCES = 256
WINDOW_SEQUENCES = 1024


def rosetta(pairs: Sequence[PairedTrace]) -> dict[str, float]:
    """Return peer metric name → value; empty without valid tokens."""
    return values_of(sums_of(pairs))


def sums_of(pairs: Iterable[PairedTrace]) -> Sums:
    """Return the mergeable state of some pairs."""
    told = Sums()
    for batch in _batches(p for p in pairs if p.tokens):
        told = told.merge(Sums.of(PairBatch.of(batch)))
    return told


def _batches(pairs: Iterable[PairedTrace]) -> Iterable[list[PairedTrace]]:
    batch: list[PairedTrace] = []
    tokens = 0
    for pair in pairs:
        batch.append(pair)
        tokens += pair.tokens
        if tokens >= BATCH_TOKENS or len(batch) >= BATCH_SEQUENCES:
            yield batch
            batch, tokens = [], 0
    if batch:
        yield batch


def values_of(sums: Sums) -> dict[str, float]:
    """Return peer metric name → value; empty before the first token."""
    if not sums.tokens.count:
        return {}
    told = {name: float(formula(sums)) for name, formula in METRICS.items()}
    return told | dict(environment_metrics(sums))


@dataclass(slots=True, eq=False)
class RecentRosetta:
    """The numbers of the latest sequences of a stream: at least `window` of them, fewer than twice as many.

    Peers print a number a step; a number since the start would hide a change for ever.  Pairs wait
    in a small batch, so that the columns of many are made at once; a snapshot holds none of them.

    Attributes
    ----------
    window : int
        Sequences after which the older half is forgotten.
    last, now : Sums
        The last full window, and the one that fills.
    """

    window: int = WINDOW_SEQUENCES
    last: Sums = field(default_factory=Sums)
    now: Sums = field(default_factory=Sums)
    _waiting: list[PairedTrace] = field(default_factory=list)
    _tokens: int = 0

    def add(self, pair: PairedTrace) -> None:
        """Take one pair; those without a valid token say nothing."""
        if not pair.tokens:
            return
        self._waiting.append(pair)
        self._tokens += pair.tokens
        room = self.window - self.now.sequences.count
        if self._tokens >= BATCH_TOKENS or len(self._waiting) >= min(BATCH_SEQUENCES, room):
            self._fold()

    def _fold(self) -> None:
        if self._waiting:
            self.now = self.now.merge(Sums.of(PairBatch.of(self._waiting)))
            self._waiting, self._tokens = [], 0
        if self.now.sequences.count >= self.window:
            self.last, self.now = self.now, Sums()

    def values(self) -> dict[str, float]:
        """Peer metric name → value over the latest sequences; empty before the first."""
        return values_of(self.sums())

    def sums(self) -> Sums:
        """The state of the latest sequences."""
        self._fold()
        return self.last.merge(self.now)

    def __getstate__(self) -> tuple[int, Sums, Sums]:
        """What a snapshot keeps: sums, no sequence of a user."""
        self._fold()
        return self.window, self.last, self.now

    def __setstate__(self, state: tuple[int, Sums, Sums]) -> None:
        """Restore what `__getstate__` gave."""
        self.window, self.last, self.now = state
        self._waiting, self._tokens = [], 0
