"""Whereabouts: everything that is remembered of where and when the drift of one slice is."""

from dataclasses import dataclass, field

from paritas.detectors.diagnosis.fingerprint import FIELDS
from paritas.detectors.diagnosis.places import Places, labels_at
from paritas.detectors.diagnosis.rhythm import Rhythm
from paritas.detectors.pairs import Floats, PairedTrace

__all__ = ["Whereabouts"]


@dataclass(slots=True)
class Whereabouts:
    """Places and rhythm of one slice; at most about 130 KB, however long the stream is.

    Attributes
    ----------
    is_followed : bool
        Only slices without `by` are: the others are themselves a place.
    """

    is_followed: bool = True

    places: Places = field(default_factory=Places)
    rhythm: Rhythm = field(default_factory=Rhythm)

    def fold(self, pair: PairedTrace, unit: Floats) -> None:
        """Take one pair and its fingerprint, shape (len(FIELDS),)."""
        if self.is_followed and pair.tokens:
            self.places.fold(labels_at(pair), unit)
            self.rhythm.fold(float(unit[FIELDS["unit_abs"]]), pair.weights_version)
