"""Measures: what many pairs tell every distinct question of a contract, in whole-column operations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.contracts.catalogue import Test
from paritas.contracts.model import Clause, Estimator, Requirement, Slice
from paritas.detectors.bank import multipliers_of
from paritas.detectors.bets import Bets
from paritas.detectors.evidence import PairBatch
from paritas.detectors.pairs import Floats
from paritas.detectors.rows import GRID, Row, make_row
from paritas.detectors.slices import token_mask
from paritas.detectors.statistics import Mask, gradient_bias, token_bets, unit_values

__all__ = ["Columns", "Measures", "measure"]

Column = tuple[Clause, Slice]
# A loss is told when its partner is given up, long after its group: no group can wait for it.
BY_SEQUENCE = ("pairing_rate",)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What is asked of every pair, each question once.

    Attributes
    ----------
    rows : tuple of Row
        One a column; its clause, its slice, its bets.
    estimators : tuple of (Estimator or None)
        What a `gradient_bias` column certifies.
    bets : Bets or None
        None without columns.
    conditional : tuple of int
        Columns whose null holds given every prefix, so that bets are on tokens.
    place : dict
        (clause id, slice name) → column.  Slices that take every token of a pair share their columns.
    """

    rows: tuple[Row, ...]
    estimators: tuple[Estimator | None, ...]
    bets: Bets | None
    conditional: tuple[int, ...]
    place: Mapping[tuple[str, str], int]
    sampled_at_least: float | None = None

    @property
    def by_sequence(self) -> NDArray[np.bool_]:
        """Columns to which every sequence is a unit of its own, also in a prompt group, shape (c,)."""
        return np.array([row.clause.statistic in BY_SEQUENCE for row in self.rows], dtype=bool)

    @classmethod
    def of(cls, asked: Sequence[Column], estimators: Mapping[str, Estimator]) -> "Columns":
        """Number the distinct columns of (clause, slice) combinations; `estimators` by clause id."""
        first: dict[tuple[str, tuple[Requirement, ...]], Column] = {}
        for clause, declared in asked:
            first.setdefault(_column_key(clause, declared), (clause, declared))
        number = {key: i for i, key in enumerate(first)}
        rows = tuple(make_row(c, s, s.name, 1.0, estimator=estimators.get(c.id)) for c, s in first.values())
        return cls(
            rows,
            tuple(estimators.get(row.clause.id) for row in rows),
            Bets.of(rows) if rows else None,
            tuple(i for i, row in enumerate(rows) if row.entry.test is Test.CONDITIONAL_MEAN),
            {(c.id, s.name): number[_column_key(c, s)] for c, s in asked},
        )

    def of_slice(self, clauses: Sequence[Clause], declared: Slice) -> NDArray[np.int64]:
        """Columns of some clauses in one slice."""
        return np.array([self.place[c.id, declared.name] for c in clauses], dtype=np.int64)


def _column_key(clause: Clause, declared: Slice) -> tuple[str, tuple[Requirement, ...]]:
    """What a column depends on: the clause, and which tokens the slice takes."""
    return clause.id, declared.match.tokens if declared.match is not None else ()


@dataclass(frozen=True, slots=True, eq=False)
class Measures:
    """What n pairs tell c columns.

    Attributes
    ----------
    scaled : shape (n, c)
        Values on the test's scale; NaN where the pair cannot tell.
    tokens : shape (n, c), int64
    on_tokens : shape (n, k, conditional columns)
        Factors of bets on tokens.
    weights : shape (n,)
        What each pair counts, and is drawn towards the limits by: 1, or v of `detectors.sampling`.
    """

    scaled: Floats
    tokens: NDArray[np.int64]
    on_tokens: Floats
    weights: Floats

    @classmethod
    def joined(cls, parts: "Sequence[Measures]") -> "Measures":
        """Measures of all the pairs of some parts, of which there is at least one."""
        names = ("scaled", "tokens", "on_tokens", "weights")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def measure(batch: PairBatch, columns: Columns) -> Measures:
    """Ask every question of every pair of `batch`."""
    masks = {row.name: token_mask(row.declared.match, batch) for row in columns.rows}
    scaled = np.empty((len(batch), len(columns.rows)))
    tokens = np.empty(scaled.shape, dtype=np.int64)
    for i, (row, estimator) in enumerate(zip(columns.rows, columns.estimators, strict=True)):
        scaled[:, i] = row.scale.down(_raw(batch, row.clause, masks[row.name], estimator))
        tokens[:, i] = batch.counts(masks[row.name])
    asked = [columns.rows[i] for i in columns.conditional]
    bets = [multipliers_of(token_bets(batch, row.clause, masks[row.name], row.up)) for row in asked]
    on_tokens = np.stack(bets, axis=2) if bets else np.empty((len(batch), GRID.size, 0))
    return Measures(scaled, tokens, on_tokens, np.ones(len(batch)))


def _raw(batch: PairBatch, clause: Clause, mask: Mask, estimator: Estimator | None) -> Floats:
    """Values of each pair in the statistic's own unit; NaN where it cannot tell."""
    if clause.statistic == "pairing_rate":
        return _in_time(batch, clause)
    if estimator is not None:
        return gradient_bias(batch, estimator, mask)
    return unit_values(batch, clause, mask)


def _in_time(batch: PairBatch, clause: Clause) -> Floats:
    """1 for each pair that was made within the clause's deadline, else 0; every pair of a batch was made."""
    if clause.within_s is None:
        return np.ones(len(batch))
    return np.array([float(p.waited_s <= clause.within_s) for p in batch.pairs], dtype=np.float64)
