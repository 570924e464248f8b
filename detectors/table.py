"""The table of a batch: what every pair tells every clause in every declared slice.

Computed once per batch in whole-column operations; the evaluator then only picks entries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.contracts.catalogue import Test
from paritas.contracts.model import Clause, Estimator, Requirement, Slice
from paritas.detectors.evidence import PairBatch
from paritas.detectors.pairs import Floats
from paritas.detectors.rows import GRID, Row, make_row
from paritas.detectors.slices import token_mask
from paritas.detectors.statistics import Mask, gradient_bias, token_bets, unit_values

__all__ = ["Entries", "Table", "factors", "joined"]

Column = tuple[Clause, Slice]
_Parts = tuple[Floats, Floats, Floats, Floats, NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """What one unit tells r rows.

    Attributes
    ----------
    scaled : shape (r,)
        Values on the test's scale.
    growth, decline : shape (r, k), nats
        Log-factors of the bets against "kept" and against "exceeded".
    tokens : shape (r,), int64
    """

    scaled: Floats
    growth: Floats
    decline: Floats
    tokens: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """All columns of a batch of n pairs.

    Attributes
    ----------
    known : shape (n, c), bool
        Whether the pair can tell.
    scaled : shape (n, c); growth, decline : shape (n, c, k); tokens : shape (n, c)
        As in `Entries`.
    """

    known: NDArray[np.bool_]
    scaled: Floats
    growth: Floats
    decline: Floats
    tokens: NDArray[np.int64]

    @classmethod
    def of(cls, batch: PairBatch, columns: Sequence[Column], estimators: Mapping[str, Estimator]) -> "Table":
        """Compute every column of `batch`; `estimators` by clause id."""
        made: dict[tuple[str, tuple[Requirement, ...]], _Parts] = {}
        for clause, declared in columns:  # slices that take every token of a pair share their columns
            key = _column_key(clause, declared)
            if key not in made:
                made[key] = _column(batch, clause, declared, estimators.get(clause.id))
        parts = [made[_column_key(clause, declared)] for clause, declared in columns]
        if not parts:
            nothing, bets = np.zeros((len(batch), 0)), np.zeros((len(batch), 0, GRID.size))
            return cls(nothing.astype(bool), nothing, bets, bets, nothing.astype(np.int64))
        raw, scaled, growth, decline, tokens = zip(*parts, strict=True)
        return cls(
            ~np.isnan(np.stack(raw, axis=1)),
            np.stack(scaled, axis=1),
            np.stack(growth, axis=1),
            np.stack(decline, axis=1),
            np.stack(tokens, axis=1),
        )

    def at(self, place: int, columns: NDArray[np.int64]) -> Entries:
        """Return the entries of one pair in some columns."""
        picked = (part[place, columns] for part in (self.scaled, self.growth, self.decline, self.tokens))
        return Entries(*picked)


def _column_key(clause: Clause, declared: Slice) -> tuple[str, tuple[Requirement, ...]]:
    """What a column depends on: the clause, and which tokens the slice takes."""
    return clause.id, declared.match.tokens if declared.match is not None else ()


def _column(batch: PairBatch, clause: Clause, declared: Slice, estimator: Estimator | None) -> _Parts:
    """Raw values, scaled values, growth, decline and token counts of one column."""
    mask = token_mask(declared.match, batch)
    row = make_row(clause, declared, declared.name, 1.0, estimator=estimator)
    raw = _raw(batch, clause, mask, estimator)
    scaled = row.scale.down(raw)
    growth, decline = factors(row, scaled)
    if row.entry.test is Test.CONDITIONAL_MEAN:
        growth = token_bets(batch, clause, mask, row.up)
    return raw, scaled, growth, decline, batch.counts(mask)


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


def factors(row: Row, values: Floats) -> tuple[Floats, Floats]:
    """Log-factors of a row's bets for scaled values of shape (n,): two (n, k) arrays, nats."""
    if row.two_sided:
        return _signed_factors(row, values)
    gap = np.where(np.isnan(values), 0.0, values - row.tau)[:, None]
    ceiling = max(1.0 - row.tau, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.log1p(row.up * gap), np.log1p(-row.down * np.minimum(gap, ceiling))


def _signed_factors(row: Row, values: Floats) -> tuple[Floats, Floats]:
    """Bets on a signed mean: a positive one plays "above the limit", a negative one "below its opposite"."""
    raw = np.where(np.isnan(values), 0.0, row.scale.zero + row.scale.width * values)[:, None]
    growth = np.log1p(np.abs(row.up) * (np.sign(row.up) * raw - row.limit))
    return growth, np.zeros((len(values), len(row.down)))


def joined(rows: Sequence[Row], parts: Sequence[Sequence[Entries]]) -> Entries:
    """Make one entry a row of a group's members: the mean value.

    Token bets multiply instead, since their null holds given every prefix.
    """
    mean = np.array([np.mean([p.scaled[0] for p in members]) for members in parts])
    both = [factors(row, mean[i : i + 1]) for i, row in enumerate(rows)]
    growth = [
        np.sum([p.growth[0] for p in members], axis=0) if row.entry.test is Test.CONDITIONAL_MEAN else up[0]
        for row, members, (up, _) in zip(rows, parts, both, strict=True)
    ]
    tokens = np.array([sum(int(p.tokens[0]) for p in members) for members in parts], dtype=np.int64)
    return Entries(mean, np.stack(growth), np.stack([down[0] for _, down in both]), tokens)
