"""What the sequences of a slice show of the premises of its certificates (docs/assumptions.md).

A few numbers a slice instance, however long the stream; `detectors.ledger` reads them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf, nan
from typing import NamedTuple

from paritas.contracts.model import Slice
from paritas.detectors.objectives import label_number
from paritas.detectors.pairs import PairOutcome
from paritas.records import PairReason, Sampling

__all__ = ["Range", "Sighting", "Witness", "WitnessBook", "sighting_of"]

NO_CUT = (None, 1.0)
UNTRUNCATED = (1.0, 0, 0.0, "")


@dataclass(slots=True)
class Range:
    """Smallest and largest of the numbers a label carried, and how many there were."""

    count: int = 0
    low: float = inf
    high: float = -inf

    def add(self, value: float) -> None:
        """Take one number; NaN is none."""
        if value != value:  # noqa: PLR0124 -- NaN, and the cheapest way to ask
            return
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.count += 1


class Sighting(NamedTuple):
    """What one outcome tells of the premises, read once for all its slices.

    Attributes
    ----------
    is_pair : bool
        False for a sequence that was refused: its tokens were not the same.
    lag : int or None
        Weights versions between the kernels.
    group : (str, str)
        Run and prompt group, empty where it was not told.
    cut : str
        How the inference kernel truncated, where its trainer did not do the same.
    is_told : bool
        Whether the inference side reported how it sampled.
    reward, score : float
        Labels `reward` and `score_norm`; NaN where absent.
    """

    is_pair: bool
    lag: int | None = None
    group: tuple[str, str] = ("", "")
    cut: str = ""
    is_told: bool = False
    reward: float = nan
    score: float = nan


REFUSED = Sighting(is_pair=False)
REFUSALS = (PairReason.TOKEN_MISMATCH, PairReason.LENGTH_MISMATCH)


def sighting_of(outcome: PairOutcome) -> Sighting | None:
    """Read an outcome; None where it tells nothing, such as a sequence without a partner."""
    pair = outcome.pair
    if pair is None:
        return REFUSED if outcome.reason in REFUSALS else None
    group = (pair.run_id, pair.group_id) if pair.group_id else ("", "")
    is_told = pair.sampling.top_p is not None or pair.sampling.top_k is not None
    reward, score = (
        label_number(pair, name) if name in pair.attributes else nan for name in ("reward", "score_norm")
    )
    return Sighting(True, pair.lag, group, _cut(pair.sampling, pair.train_sampling), is_told, reward, score)


def _cut(inference: Sampling, train: Sampling) -> str:
    """How the inference kernel truncated, where the trainer did not; empty otherwise."""
    if inference.top_p in NO_CUT and not (inference.top_k or inference.min_p or inference.processors):
        return ""  # the usual case, told quickly: this runs for every pair
    cut = _truncation(inference)
    if cut in (UNTRUNCATED, _truncation(train)):
        return ""
    told = zip(("top_p", "top_k", "min_p", "processors"), cut, UNTRUNCATED, strict=True)
    return ", ".join(f"{name} {value}" for name, value, neutral in told if value != neutral)


@dataclass(slots=True)
class Witness:
    """What the sequences of one slice instance show of the premises.

    Attributes
    ----------
    pairs, refused : int
        Sequences that paired, and that did not because their tokens or lengths differ.
    lagged, versioned, largest_lag : int
        Pairs at unequal weights versions, pairs that tell the lag, and the largest lag.
    truncated : int
        Pairs whose inference kernel cut its distribution and whose trainer did not do the same.
    truncation : str
        How the last of them was cut.
    parameters : int
        Pairs whose inference side reported how it sampled.
    grouped, siblings : int
        Pairs with a group, and pairs that share it with the pair before.
    rewards, scores : Range
        Labels `reward` and `score_norm`.
    """

    pairs: int = 0
    refused: int = 0
    lagged: int = 0
    versioned: int = 0
    largest_lag: int = 0
    truncated: int = 0
    truncation: str = ""
    parameters: int = 0
    grouped: int = 0
    siblings: int = 0
    rewards: Range = field(default_factory=Range)
    scores: Range = field(default_factory=Range)
    _group: tuple[str, str] = ("", "")

    def note(self, outcomes: Iterable[PairOutcome]) -> None:
        """Take outcomes in the order in which they are judged: members of a group stand together."""
        for outcome in outcomes:
            if (seen := sighting_of(outcome)) is not None:
                self.take(seen)

    def take(self, seen: Sighting) -> None:
        """Take one sighting."""
        if not seen.is_pair:
            self.refused += 1
            return
        self.pairs += 1
        self.parameters += seen.is_told
        self._note_lag(seen.lag)
        if seen.group[1]:
            self._note_group(seen.group)
        if seen.cut:
            self.truncated += 1
            self.truncation = seen.cut
        self.rewards.add(seen.reward)
        self.scores.add(seen.score)

    def _note_lag(self, lag: int | None) -> None:
        if lag is not None:
            self.versioned += 1
            self.lagged += lag != 0
            self.largest_lag = max(self.largest_lag, abs(lag))

    def _note_group(self, group: tuple[str, str]) -> None:
        self.grouped += 1
        self.siblings += group == self._group
        self._group = group


@dataclass(slots=True)
class WitnessBook:
    """A witness for every slice instance in which something is certified.

    Attributes
    ----------
    slices : frozenset of str
        Declared slices that some certificate binds.
    witnesses : dict
        Slice instance → what its sequences showed.
    """

    slices: frozenset[str]
    witnesses: dict[str, Witness] = field(default_factory=dict)

    def note(
        self,
        outcomes: Iterable[PairOutcome],
        instances: Callable[[PairOutcome], Iterable[tuple[Slice, str]]],
    ) -> None:
        """Take outcomes in the order in which they are judged; `instances` tells the slices of each."""
        if not self.slices:
            return
        for outcome in outcomes:
            if (seen := sighting_of(outcome)) is not None:
                for declared, name in instances(outcome):
                    if declared.name in self.slices:
                        self._grown(name).take(seen)

    def of(self, name: str) -> Witness:
        """Return the witness of a slice instance; one that saw nothing where no sequence came."""
        return self.witnesses.get(name) or Witness()

    def _grown(self, name: str) -> Witness:
        found = self.witnesses.get(name)
        if found is None:
            found = self.witnesses[name] = Witness()
        return found


def _truncation(sampling: Sampling) -> tuple[float, int, float, str]:
    """What of the sampling removes tokens; the neutral value where it was not reported."""
    top_k = sampling.top_k if sampling.top_k is not None and sampling.top_k > 0 else 0
    top_p = 1.0 if sampling.top_p is None else sampling.top_p
    return top_p, top_k, sampling.min_p or 0.0, sampling.processors
