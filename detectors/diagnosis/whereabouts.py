"""Whereabouts: everything that is remembered of where and when the drift of one slice is."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from paritas.detectors.diagnosis.fingerprint import FIELDS
from paritas.detectors.diagnosis.places import Labels, Places, labels_at
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

    def fold_many(self, labels: Labels, versions: Sequence[str], units: Floats) -> None:
        """Take many pairs, as one by one: their labels, their weights versions, their fingerprints."""
        if not self.is_followed:
            return
        told = np.flatnonzero(units[:, FIELDS["tokens"]])
        if len(told) < len(units):
            at, units = told.tolist(), units[told]
            labels = {name: [values[i] for i in at] for name, values in labels.items()}
            versions = [versions[i] for i in at]
        self.places.fold_many(labels, units)
        self.rhythm.fold_many(units[:, FIELDS["unit_abs"]].tolist(), versions)
