"""Sampling: what a sequence counts for when only some were recorded, and which depends on what is watched.

Keeping slow or odd sequences makes the plain mean too large.  A sequence that was kept with probability pi
counts ``v = pi_min / pi`` times, pi_min the least probability the contract declares, so that v is in (0, 1].
Given that a sequence was kept, ``E[v (x - tau)] = (pi_min / P(kept)) E[x - tau]`` over all sequences, kept or
not (Horvitz and Thompson): the sign is that of the question.  So each value is drawn towards the limit,
``z = tau + v (x - tau)``: z lies where x does, its mean keeps the limit exactly when the mean over all
sequences does, and every test of the bank holds for it as it stands.  The shown estimate undoes this with the
mean of v (Hájek's ratio).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import isnan, nan

import numpy as np

from paritas.contracts.model import Family
from paritas.detectors.measures import Measures
from paritas.detectors.pairs import PairedTrace, PairOutcome
from paritas.detectors.rows import Row

__all__ = [
    "LABEL",
    "SamplingBook",
    "anchor_of",
    "is_drawn",
    "is_sample",
    "probability_of",
    "weigh",
    "weight_of",
]

LABEL = "sampling_probability"
UNKNOWN_AT_MOST = 0.005  # a larger share of sequences nobody can weigh, and nothing passes


def probability_of(attributes: Mapping[str, str]) -> float | None:
    """Return the probability with which a sequence was kept; None where it is not told or is none.

    Examples
    --------
    >>> probability_of({LABEL: "0.25"}), probability_of({}), probability_of({LABEL: "often"})
    (0.25, None, None)
    """
    try:
        told = float(attributes[LABEL])
    except (KeyError, ValueError):
        return None
    return told if 0.0 < told <= 1.0 else None


def weight_of(attributes: Mapping[str, str], at_least: float) -> float:
    """Return v of a sequence; NaN where its probability is unknown, or below what the contract declares.

    Examples
    --------
    >>> weight_of({LABEL: "0.25"}, 0.1), weight_of({LABEL: "0.05"}, 0.1)
    (0.4, nan)
    """
    told = probability_of(attributes)
    return nan if told is None or told < at_least else at_least / told


def is_sample(outcomes: Iterable[PairOutcome]) -> bool:
    """Whether some sequence stands for others that were not recorded: plain means are not those of all."""
    return any(probability_of(outcome.attributes) not in (None, 1.0) for outcome in outcomes)


def is_drawn(pair: PairedTrace, weight: float) -> bool:
    """Whether a sequence belongs to a sample of all in which each has the least probability the contract declares.

    Of those that were kept a share of `weight` does.  Which ones follows from their names alone, by another hash
    than a sampler's, so that a replay draws the same.
    """
    name = f"{pair.run_id}\0{pair.sequence_id}".encode()
    told = int.from_bytes(blake2b(name, digest_size=8, person=b"paritas window").digest())
    return told < weight * 2.0**64


def anchor_of(row: Row) -> float:
    """Where values are drawn to, on the test's scale: the limit, or zero where the limit binds both signs."""
    return float(row.scale.down(np.zeros(()))) if row.two_sided else row.tau


def weigh(measures: Measures, rows: Sequence[Row], pairs: Sequence[PairedTrace], at_least: float) -> Measures:
    """Return what pairs tell, each drawn towards the limits by its weight.

    A pair that cannot be weighed tells nothing but what is counted without inference (observability).
    Bets on tokens, whose null holds given every prefix, are drawn towards 1 by the same argument.
    """
    v = np.array([weight_of(pair.attributes, at_least) for pair in pairs], dtype=np.float64)[:, None]
    census = np.array([row.entry.family is Family.OBSERVABILITY for row in rows], dtype=bool)
    anchor = np.array([anchor_of(row) for row in rows], dtype=np.float64)
    of_row = np.where(census & np.isnan(v), 1.0, v)
    drawn = np.where(of_row == 1.0, measures.scaled, anchor + of_row * (measures.scaled - anchor))
    known = np.where(np.isnan(v), 0.0, v)[:, :, None]
    on_tokens = np.where(known == 1.0, measures.on_tokens, 1.0 + known * (measures.on_tokens - 1.0))
    return replace(measures, scaled=drawn, on_tokens=on_tokens, weights=v[:, 0])


@dataclass(slots=True)
class SamplingBook:
    """What is known of how sequences were kept.

    Attributes
    ----------
    at_least : float or None
        Least probability the contract declares; None if it says that all sequences are recorded.
    weighed, unknown, undeclared : int
        Sequences with a known probability, without one although the contract declares sampling, and with
        one below 1 although it does not.
    sums : dict
        Slice instance → sum of v, and number.
    """

    at_least: float | None = None
    weighed: int = 0
    unknown: int = 0
    undeclared: int = 0
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)

    def count(self, outcomes: Iterable[PairOutcome]) -> None:
        """Count sequences by what they tell of their probability."""
        for outcome in outcomes:
            if outcome.pair is None:
                continue
            if self.at_least is None:
                self.undeclared += LABEL in outcome.attributes and probability_of(outcome.attributes) != 1.0
            elif isnan(weight_of(outcome.attributes, self.at_least)):
                self.unknown += 1
            else:
                self.weighed += 1

    def note(self, name: str, pairs: Iterable[PairedTrace]) -> None:
        """Remember the weights of some pairs of a slice instance, one after the other."""
        if self.at_least is None:  # everybody counts once
            return
        total, number = self.sums.get(name, (0.0, 0))
        for pair in pairs:
            v = weight_of(pair.attributes, self.at_least)
            if not isnan(v):
                total, number = total + v, number + 1
        self.sums[name] = total, number

    def weight_of_loss(self, outcome: PairOutcome, name: str) -> float:
        """Return v of a sequence without a partner; where it is not known that of the pairs there, on average.

        A label may be in the view that never came.
        """
        if self.at_least is None:
            return 1.0
        told = weight_of(outcome.attributes, self.at_least)
        return self.mean_weight(name) if isnan(told) else told

    def mean_weight(self, name: str) -> float:
        """Mean of v in a slice instance; 1 where nothing is weighed."""
        total, number = self.sums.get(name, (0.0, 0))
        return total / number if number else 1.0

    def counts(self) -> dict[str, int]:
        """Sequences by what they tell of their probability; empty where no sampling is declared or told."""
        told = {"weighed": self.weighed, "unknown": self.unknown, "undeclared": self.undeclared}
        return told if any(told.values()) else {}

    @property
    def is_blind(self) -> bool:
        """Whether too many sequences cannot be weighed for anything to pass."""
        return self.undeclared > 0 or self.unknown > UNKNOWN_AT_MOST * (self.unknown + self.weighed)

    def restart(self) -> None:
        """Begin the shown means again, as after a change of kernel; counts go on."""
        self.sums.clear()
