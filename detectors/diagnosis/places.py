"""Places: where in a slice the drift is worst, by what its sequences say of themselves.

A fixed number of values is followed for each attribute, each with one vector of sums, so memory
stays bounded.  A value is compared with sequences of other values that came just before, pair by
pair; a change that hits everybody therefore speaks for no value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log10
from types import MappingProxyType

import numpy as np

from paritas.detectors.diagnosis.bets import CLEAR, SignBets
from paritas.detectors.diagnosis.fingerprint import FIELDS, Fingerprint
from paritas.detectors.pairs import Floats, PairedTrace

__all__ = ["FOLLOWED", "Place", "Places", "Worst", "labels_at"]

# What a sequence may say of itself and a cause may be a matter of.
FOLLOWED = frozenset(("replica", "adapter", "prefix_cache", "environment", "turn", "slice", "gpu"))
VALUES = 8  # followed of each attribute; more are together
PASSING = ("weights_version",)  # attributes whose oldest value makes room for a new one
HALVED_AFTER = 128  # units: what a place remembers fades
APART = 1.25  # times the mean |ell| of the others: less is not worth telling
# Prompts of one kind drift more than others by nature; two replicas do not.
CONTENT = MappingProxyType(
    {"slice": 2.0, "environment": 2.0, "turn": 2.0, "prefix_cache": 1.5, "adapter": 1.5}
)
SOME, FAR = 0.0, 2.5  # less evidence is enough to look at a place first, not to say that it is the worst
FEW = 4  # later turns, and larger lags, are together


@dataclass(slots=True)
class Place:
    """What is remembered of the sequences with one value of one attribute.

    Attributes
    ----------
    sums : shape (len(FIELDS),)
        Fading sums of their fingerprints.
    bets : SignBets
        That they drift more than those of other values.
    compared : int
        Number of the newest sequence of another value they were compared with.
    """

    sums: Floats = field(default_factory=lambda: np.zeros(len(FIELDS)))
    bets: SignBets = field(default_factory=SignBets)
    units: int = 0
    compared: int = -1

    def fold(self, unit: Floats) -> None:
        """Add one unit's sums."""
        self.units += 1
        if self.units % HALVED_AFTER == 0:
            self.sums /= 2.0
        self.sums += unit


_Newest = tuple[int, str, float]  # number, value and mean |ell| of the newest sequence of a value


@dataclass(frozen=True, slots=True)
class Worst:
    """One place beside the others of its attribute.

    Attributes
    ----------
    log10_e : float
        Evidence that it drifts more than they do, corrected for all places looked at.
    times : float
        Its mean |ell| over theirs.
    """

    attribute: str
    value: str
    log10_e: float
    times: float
    fingerprint: Fingerprint


@dataclass(slots=True)
class Places:
    """Every followed value of every attribute, and the two newest values of each."""

    places: dict[str, dict[str, Place]] = field(default_factory=dict)
    newest: dict[str, tuple[_Newest, ...]] = field(default_factory=dict)
    units: int = 0

    def fold(self, labels: Mapping[str, str], unit: Floats) -> None:
        """Add one unit under each of its labels."""
        self.units += 1
        size = float(unit[FIELDS["unit_abs"]])
        for attribute, value in labels.items():
            name = self._name(attribute, value)
            place = self.places[attribute].setdefault(name, Place())
            place.fold(unit)
            self._compare(attribute, name, place, size)

    def _name(self, attribute: str, value: str) -> str:
        """What a value is followed as."""
        known = self.places.setdefault(attribute, {})
        if value in known or len(known) < VALUES:
            return value
        if attribute not in PASSING:
            return "other"
        del known[next(iter(known))]
        return value

    def _compare(self, attribute: str, name: str, place: Place, size: float) -> None:
        """Bet on a sequence against the newest one of another value that this value did not meet yet."""
        newest = self.newest.get(attribute, ())
        other = next((n for n in newest if n[1] != name), None)
        if other is None:
            self.newest[attribute] = ((self.units, name, size),)
            return
        if other[0] > place.compared:
            place.bets.fold(size - other[2])
            place.compared = other[0]
        self.newest[attribute] = ((self.units, name, size), other)

    def worst(self) -> Worst | None:
        """The place that drifts most, by clear evidence and not by little; None if none does."""
        clear = (w for w in self.ranked() if w.log10_e >= CLEAR and w.times >= APART)
        return next(clear, None)

    def likely(self) -> Worst | None:
        """The place to look at instead of the whole slice: it drifts more than nature makes it.

        Clear evidence, or some evidence where it drifts many times as much; None if no place has it.
        """
        found = self.ranked()
        clear = (w for w in found if w.log10_e >= CLEAR and w.times >= CONTENT.get(w.attribute, APART))
        some = (w for w in found if w.log10_e >= SOME and w.times >= FAR)
        return next(clear, None) or next(some, None)

    def ranked(self) -> tuple[Worst, ...]:
        """Every place with a sibling, the strongest evidence first."""
        looked_at = sum(len(known) for known in self.places.values() if len(known) > 1)
        found = [
            self._beside(attribute, value, looked_at)
            for attribute, known in self.places.items()
            if len(known) > 1
            for value in known
        ]
        return tuple(sorted(found, key=lambda w: (-w.log10_e, w.attribute, w.value)))

    def _beside(self, attribute: str, value: str, looked_at: int) -> Worst:
        known = self.places[attribute]
        place = known[value]
        rest = np.sum([p.sums for name, p in known.items() if name != value], axis=0)
        own, others = (s[FIELDS["abs"]] / max(s[FIELDS["tokens"]], 1.0) for s in (place.sums, rest))
        times = float(own / others) if others else float("inf")
        log10_e = place.bets.log10_e() - log10(looked_at)
        return Worst(attribute, value, log10_e, times, Fingerprint(place.sums))


def labels_at(pair: PairedTrace) -> dict[str, str]:
    """What a pair says of itself, in few values: its attributes, its weights version, its lag."""
    labels = {name: value for name, value in pair.attributes.items() if name in FOLLOWED}
    if "turn" in labels:
        labels["turn"] = _few(labels["turn"])
    if pair.weights_version:
        labels["weights_version"] = pair.weights_version
    if pair.lag is not None:
        labels["weights_lag"] = _few(str(pair.lag))
    return labels


def _few(number: str) -> str:
    """A number as text; large ones are one value."""
    return number if not number.isdigit() or int(number) < FEW else f"{FEW}+"
