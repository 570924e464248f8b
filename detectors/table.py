"""The table of a batch: what every pair tells every clause in every declared slice, as bets.

Computed once per batch; the evaluator then only picks entries.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.bets import factors
from paritas.detectors.measures import Columns, Measures
from paritas.detectors.pairs import Floats
from paritas.detectors.rows import GRID
from paritas.detectors.sequential import CEILING

__all__ = ["Table", "factors"]

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """All c columns of n units: the pairs of a batch and, last, a sequence without a partner; or groups.

    Attributes
    ----------
    known : shape (n, c), bool
        Whether the unit can tell.
    scaled : shape (n, c)
        Values on the test's scale; 0 where it cannot.
    factors : shape (n, 2, k, c)
        Factors of the bets against "kept" and against "exceeded"; 1 where it cannot.
    tokens, without : shape (n, c), int64
        Tokens that count, and pairs that cannot tell.
    weights : shape (n,)
        What each pair counts where only some were recorded (`detectors.sampling`), else 1.
    """

    known: NDArray[np.bool_]
    scaled: Floats
    factors: Floats
    tokens: Counts
    without: Counts
    weights: Floats

    @classmethod
    def of(cls, measures: Measures, columns: Columns) -> "Table":
        """Make the table of pairs that were measured."""
        scaled = np.vstack([measures.scaled, _lost(columns)])
        known = ~np.isnan(scaled)
        bets = _bets(scaled, columns)
        bets[:-1, 0, :, columns.conditional] = np.moveaxis(measures.on_tokens, 2, 0)
        tokens = np.vstack([measures.tokens, np.zeros((1, scaled.shape[1]), np.int64)])
        without = (~known).astype(np.int64)
        without[-1] = 0
        return cls(
            known, np.where(known, scaled, 0.0), bets, tokens, without, np.append(measures.weights, 1.0)
        )

    def grouped(self, places: Counts, starts: Counts, columns: Columns) -> "Table":
        """Make the table of groups: of the rows `places`, those from each of `starts` to the next together.

        A group's value is the mean of those that can tell.  Bets on tokens multiply instead, since
        their null holds given every prefix; what was kept as a whole is drawn as a whole.
        """
        told, known, tokens, without = (
            np.add.reduceat(part[places], starts, axis=0)
            for part in (self.scaled, self.known.astype(np.int64), self.tokens * self.known, self.without)
        )
        mean = np.divide(told, known, out=np.full(told.shape, np.nan), where=known > 0)
        bets, asked = _bets(mean, columns), list(columns.conditional)
        weights, weight = self.weights[places], _weight_of_each(self.weights[places], starts)
        bets[:, 0][..., asked] = _multiplied(self.factors[places][:, 0][..., asked], weights, weight, starts)
        return Table(known > 0, np.where(known > 0, mean, 0.0), bets, tokens, without, weight)


def _weight_of_each(weights: Floats, starts: Counts) -> Floats:
    """Weight of each group: the one its members have, or the mean of those that are known; 1 without any."""
    known = ~np.isnan(weights)
    total, number = (np.add.reduceat(part, starts) for part in (np.where(known, weights, 0.0), known * 1.0))
    return np.divide(total, number, out=np.ones(len(starts)), where=number > 0.0)


def _multiplied(factors: Floats, weights: Floats, weight: Floats, starts: Counts) -> Floats:
    """Products of factors of shape (m, k, c) from each of `starts` to the next, drawn by each group's weight.

    Factors come drawn one by one, and their product would be no fair bet where the chance to be kept depends
    on several members together: it is taken of the factors as they were.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # a lost bet stays lost whatever the others win
        if (weights != 1.0).any():
            v = np.where(np.isnan(weights), 1.0, weights)[:, None, None]
            factors = np.where(v == 1.0, factors, np.maximum(1.0 + (factors - 1.0) / v, 0.0))
        product = np.multiply.reduceat(factors, starts, axis=0)
        product = np.minimum(np.where(np.isnan(product), 0.0, product), CEILING)
        each = weight[:, None, None]
        return np.where(each == 1.0, product, 1.0 + each * (product - 1.0))


def _bets(scaled: Floats, columns: Columns) -> Floats:
    """Factors of values of shape (n, c)."""
    if columns.bets is None:
        return np.ones((len(scaled), 2, GRID.size, 0))
    return columns.bets.multiply(scaled)


def _lost(columns: Columns) -> Floats:
    """What a sequence without a partner tells: that it did not pair, and nothing else; shape (1, c)."""
    pairing = (row.clause.statistic == "pairing_rate" for row in columns.rows)
    told = [
        row.scale.down(np.zeros(())) if is_pairing else np.nan
        for row, is_pairing in zip(columns.rows, pairing, strict=True)
    ]
    return np.array(told, dtype=np.float64)[None]
