"""Places: where in a slice the drift is worst, by what its sequences say of themselves.

A fixed number of values is followed for each attribute, each with one vector of sums, so memory
stays bounded.  A value is compared with sequences of other values that came just before, pair by
pair; a change that hits everybody therefore speaks for no value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log10
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.diagnosis.bets import CLEAR, SignBets
from paritas.detectors.diagnosis.fingerprint import FIELDS, Fingerprint
from paritas.detectors.pairs import Floats, PairedTrace

__all__ = ["FOLLOWED", "Labels", "Place", "Places", "Worst", "labels_at", "labels_of"]

# What a sequence may say of itself and a cause may be a matter of.
FOLLOWED = ("replica", "adapter", "prefix_cache", "environment", "turn", "slice", "gpu")
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

    def fold_many(self, units: Floats) -> None:
        """Add many units' sums, shape (n, len(FIELDS)), by the same additions; `units` are overwritten."""
        start = 0
        while start < len(units):
            room = HALVED_AFTER - 1 - self.units % HALVED_AFTER
            if room == 0:
                self.sums, room = self.sums / 2.0, HALVED_AFTER
            some = units[start : start + room]
            some[0] += self.sums
            self.sums = np.add.reduce(some, axis=0)  # along the outer axis it adds row after row
            self.units += len(some)
            start += len(some)


Ints = NDArray[np.int64]
Labels = Mapping[str, Sequence[str | None]]
_Stretch = tuple[
    Sequence[str], Ints, Ints, Floats
]  # names of units, as codes too, their numbers and mean |ell|
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
            self._compare(attribute, name, place, (self.units, size))

    def fold_many(self, labels: Labels, units: Floats) -> None:
        """Add many units, shape (n, len(FIELDS)), under the labels of each, as one by one."""
        for attribute, values in labels.items():
            told = [place for place, value in enumerate(values) if value is not None]
            if told:
                self._fold_attribute(attribute, [str(values[place]) for place in told], np.array(told), units)
        self.units += len(units)

    def _fold_attribute(self, attribute: str, values: Sequence[str], told: Ints, units: Floats) -> None:
        """Add the units `told`, whose values are `values`; a value that may oust another ends a stretch."""
        known, start = self.places.setdefault(attribute, {}), 0
        names: list[str] = []
        for place, value in enumerate(values):
            if value not in known and (len(known) < VALUES or attribute in PASSING):
                self._fold_stretch(attribute, names, told[start:place], units)
                names, start = [], place
                known[self._name(attribute, value)] = Place()
            names.append(value if value in known else "other")
        self._fold_stretch(attribute, names, told[start:], units)

    def _fold_stretch(self, attribute: str, names: Sequence[str], told: Ints, units: Floats) -> None:
        """Add units that are followed as `names`."""
        if not names:
            return
        number = {name: i for i, name in enumerate(dict.fromkeys(names))}
        held = [self.places[attribute].setdefault(name, Place()) for name in number]
        code = np.array([number[name] for name in names])
        for i, place in enumerate(held):
            place.fold_many(units[told[code == i]])
        sizes = units[told, FIELDS["unit_abs"]]
        self._compare(attribute, names[0], held[0], (self.units + 1 + int(told[0]), float(sizes[0])))
        self._compare_rest(attribute, held, (names, code, self.units + 1 + told, sizes))

    def _compare_rest(self, attribute: str, held: Sequence[Place], stretch: "_Stretch") -> None:
        """Bet at each change of value, against the unit just before: no unit of the value met it yet."""
        names, code, numbers, sizes = stretch
        starts = np.flatnonzero(np.diff(code)) + 1
        gain, own = sizes[starts] - sizes[starts - 1], code[starts]
        for i in np.unique(own).tolist():
            held[i].bets.fold_many(gain[own == i])
            held[i].compared = int(numbers[starts[own == i][-1] - 1])
        last = int(starts[-1]) - 1 if starts.size else -1
        new, old = ((int(numbers[i]), names[i], float(sizes[i])) for i in (-1, last))
        self.newest[attribute] = (new, old) if starts.size else (new, *self.newest[attribute][1:])

    def _name(self, attribute: str, value: str) -> str:
        """What a value is followed as."""
        known = self.places.setdefault(attribute, {})
        if value in known or len(known) < VALUES:
            return value
        if attribute not in PASSING:
            return "other"
        del known[next(iter(known))]
        return value

    def _compare(self, attribute: str, name: str, place: Place, told: tuple[int, float]) -> None:
        """Bet on a sequence against the newest one of another value that this value did not meet yet."""
        number, size = told
        newest = self.newest.get(attribute, ())
        other = next((n for n in newest if n[1] != name), None)
        if other is None:
            self.newest[attribute] = ((number, name, size),)
            return
        if other[0] > place.compared:
            place.bets.fold(size - other[2])
            place.compared = other[0]
        self.newest[attribute] = ((number, name, size), other)

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
    return {name: str(value) for name, (value,) in labels_of([pair]).items()}


def labels_of(pairs: Sequence[PairedTrace]) -> dict[str, list[str | None]]:
    """What pairs say of themselves, label by label; None where one says nothing, no label that none has."""
    told: dict[str, list[str | None]] = {
        name: [pair.attributes.get(name) for pair in pairs] for name in FOLLOWED
    }
    told["turn"] = [value if value is None else _few(value) for value in told["turn"]]
    told["weights_version"] = [pair.weights_version or None for pair in pairs]
    told["weights_lag"] = [None if pair.lag is None else _few(str(pair.lag)) for pair in pairs]
    return {name: values for name, values in told.items() if any(v is not None for v in values)}


def _few(number: str) -> str:
    """A number as text; large ones are one value."""
    return number if not number.isdigit() or int(number) < FEW else f"{FEW}+"
