"""Mergeable state of the Rosetta: sums, spreads and extremes of columns; a few kilobytes, however long the stream.

Two states of disjoint streams merge into the state of both, so that shards, windows and segments
add up; nothing is kept of single tokens.  A quantile would need a sketch: no peer metric that is
shown here is one.
"""

from dataclasses import dataclass, field
from math import isfinite, nan, sqrt
from typing import Self

import numpy as np

from paritas.detectors.evidence import PairBatch
from paritas.detectors.pairs import Floats
from paritas.detectors.rosetta_columns import SEQUENCE, SPREAD, TOKEN, columns_of

__all__ = ["Columns", "Sums"]

ENVIRONMENTS = 16  # further ones are counted in `all` only: a label is free text
K3 = TOKEN["k3"]


@dataclass(slots=True, eq=False)
class Columns:
    """Running moments of c columns.

    Attributes
    ----------
    count : int
        Values of each column.
    total : shape (c,)
        Sum; infinite where a value was.
    squares : shape (s,)
        Sum of squared distances from the mean, of the first s columns.
    low, high : shape (c,)
        Smallest and largest value.
    """

    count: int
    total: Floats
    squares: Floats
    low: Floats
    high: Floats

    @classmethod
    def empty(cls, width: int, spread: int) -> Self:
        """Return the state of no values."""
        return cls(0, np.zeros(width), np.zeros(spread), np.full(width, np.inf), np.full(width, -np.inf))

    @classmethod
    def of(cls, values: Floats, spread: int) -> Self:
        """Return the state of `values`, shape (c, n), n at least 1."""
        total = values.sum(axis=1)
        with np.errstate(invalid="ignore", over="ignore"):
            centred = values[:spread] - (total[:spread] / values.shape[1])[:, np.newaxis]
            squares = np.einsum("ij,ij->i", centred, centred)
        return cls(values.shape[1], total, squares, values.min(axis=1), values.max(axis=1))

    def merge(self, other: "Columns") -> "Columns":
        """Return the state of both streams together."""
        if not self.count or not other.count:
            return other if not self.count else self
        count = self.count + other.count
        with np.errstate(invalid="ignore", over="ignore"):
            parts = ((part.total / part.count)[: len(self.squares)] for part in (other, self))
            apart = np.subtract(*parts)
            squares = self.squares + other.squares + apart**2 * (self.count * other.count / count)
        extremes = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return Columns(count, self.total + other.total, squares, *extremes)

    def mean(self, place: int) -> float:
        """Mean of a column; NaN without values."""
        return float(self.total[place]) / self.count if self.count else nan

    def deviation(self, place: int) -> float:
        """Sample standard deviation, torch's default; 0 for one value."""
        return sqrt(max(float(self.squares[place]), 0.0) / (self.count - 1)) if self.count > 1 else 0.0

    def variance(self, place: int) -> float:
        """Population variance; NaN without values."""
        return float(self.squares[place]) / self.count if self.count else nan


@dataclass(slots=True, eq=False)
class Sums:
    """Everything the peers' numbers follow from.

    Attributes
    ----------
    tokens, sequences : Columns
        Of `rosetta_columns.TOKEN` and `SEQUENCE`.
    environments : dict of str to Columns
        k3 of the tokens of each label `environment`, at most `ENVIRONMENTS` of them.
    """

    tokens: Columns = field(default_factory=lambda: Columns.empty(len(TOKEN), SPREAD))
    sequences: Columns = field(default_factory=lambda: Columns.empty(len(SEQUENCE), len(SEQUENCE)))
    environments: dict[str, Columns] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: PairBatch) -> "Sums":
        """Return the state of a batch of pairs that all have tokens; at least one."""
        tokens, sequences = columns_of(batch)
        with np.errstate(invalid="ignore"):
            told = cls(Columns.of(tokens, SPREAD), Columns.of(sequences, len(SEQUENCE)))
        names = np.array([pair.attributes.get("environment", "") for pair in batch.pairs])
        owner = np.repeat(names, batch.counts())
        for name in list(dict.fromkeys(n for n in names.tolist() if n))[:ENVIRONMENTS]:
            told.environments[name] = Columns.of(tokens[K3 : K3 + 1, owner == name], 1)
        return told

    def merge(self, other: "Sums") -> "Sums":
        """Return the state of both streams together."""
        both = dict(self.environments)
        for name, columns in other.environments.items():
            if name in both:
                both[name] = both[name].merge(columns)
            elif len(both) < ENVIRONMENTS:
                both[name] = columns
        return Sums(self.tokens.merge(other.tokens), self.sequences.merge(other.sequences), both)

    def correlation(self) -> float:
        """Pearson correlation of p and q from the spread of their sum; NaN where one side is constant."""
        p, q, both = (float(self.tokens.squares[TOKEN[name]]) for name in ("p", "q", "p_plus_q"))
        rounding = 1e-30 * self.tokens.count  # what a constant column leaves
        if not isfinite(both) or min(p, q) <= rounding or self.tokens.count < 2:
            return nan
        return (both - p - q) / 2.0 / sqrt(p * q)
