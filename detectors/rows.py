"""Rows: one clause in one slice instance, its limit, its bets and its share of the false-alarm budget."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paritas.contracts.bounds.gradient import bias_statistic_range
from paritas.contracts.catalogue import Side, Statistic, Test, find
from paritas.contracts.model import Clause, Contract, Estimator, Slice, Stage
from paritas.detectors.pairs import Floats
from paritas.detectors.sequential import Grid

__all__ = ["GRID", "Row", "Scale", "clauses_at", "make_row", "own_estimator", "share_of"]

GRID = Grid()
TESTED = (Test.BOUNDED_MEAN, Test.CONDITIONAL_MEAN, Test.NON_NEGATIVE_MEAN)
# The limit binds the size of a signed mean: half the bets play each sign.
TWO_SIDED = ("top1_frequency", "calibration_gap")
# A limit of zero, or a supremum, is refuted by one observation and takes nothing from the budget.


@dataclass(frozen=True, slots=True)
class Scale:
    """Affine map from a statistic's unit to [0, 1], turned so that small is good.

    ``y = sign * (x - zero) / width``; "at least" limits run downwards from `hi`.
    """

    zero: float
    width: float
    sign: float

    def down(self, values: Floats) -> Floats:
        """From the statistic's unit to the test's."""
        return self.sign * (values - self.zero) / self.width

    def up(self, value: float) -> float:
        """From the test's unit back to the statistic's."""
        return self.sign * value * self.width + self.zero


@dataclass(frozen=True, slots=True)
class Row:
    """One clause in one slice instance.

    Attributes
    ----------
    limit : float
        In the clause's own unit (share of units for quantile clauses).
    tau : float
        The same limit on the test's scale.
    alpha : float
        Share of the false-alarm budget; 1 for rows that need none.
    up, down : shape (k,)
        Bets against "limit kept" and "limit exceeded".
    quantile : bool
        Whether units are indicators "above the clause's limit", tested against 1 - quantile.
    """

    clause: Clause
    declared: Slice
    name: str
    entry: Statistic
    scale: Scale
    limit: float
    tau: float
    alpha: float
    up: Floats
    down: Floats

    @property
    def counterexample(self) -> bool:
        """Whether one value above the limit already refutes the clause."""
        return self.entry.test is Test.SUPREMUM or (self.entry.test in TESTED and self.tau <= 0.0)

    @property
    def two_sided(self) -> bool:
        """Whether the limit binds the size of a signed mean."""
        return self.clause.statistic in TWO_SIDED

    @property
    def bounded(self) -> bool:
        """Whether units lie in [0, 1] on the test's scale, so that a PASS can be certified."""
        return self.is_quantile or (self.entry.certifiable and np.isfinite(self.hi))

    @property
    def is_quantile(self) -> bool:
        """Whether the clause bounds a quantile through the share of exceedances."""
        return self.clause.quantile is not None

    @property
    def hi(self) -> float:
        """Upper end of the statistic's range, with the cap of a capped ratio."""
        return (self.clause.cap or 2.0) if self.clause.statistic == "mean_ratio" else self.entry.hi

    @property
    def unit(self) -> str:
        """Unit of estimate and limit, for people."""
        return (
            f"share above {self.clause.at_most:g} {self.entry.unit}" if self.is_quantile else self.entry.unit
        )


def clauses_at(contract: Contract, stage: Stage) -> tuple[Clause, ...]:
    """Return the clauses that bind at `stage`."""
    return tuple(c for c in contract.clauses if not c.stages or stage in c.stages)


def make_row(
    clause: Clause, declared: Slice, name: str, alpha: float, *, estimator: Estimator | None = None
) -> Row:
    """Build the row: scale, limit and bets follow from the catalogue entry.

    `estimator` is the one a `gradient_bias` clause certifies; None takes what the clause names.
    """
    entry = find(clause.statistic)
    scale = _scale(clause, entry, estimator)
    limit = _limit(clause)
    tau = float(scale.down(np.array(limit)))
    up, down = _bets(entry, tau, clause)
    return Row(clause, declared, name, entry, scale, limit, tau, alpha, up, down)


def own_estimator(clause: Clause) -> Estimator:
    """Return the estimator a `gradient_bias` clause alone names: clip where it gives `clip`, else tis."""
    if clause.clip is not None:
        return Estimator("clip", clip=clause.clip)
    return Estimator("tis", cap=clause.cap or 2.0)


def _limit(clause: Clause) -> float:
    """The clause's limit on a unit's value: the allowed share of exceedances for quantiles.

    An ESS limit rho binds the mean of w^2 at 1/rho (docs/how-it-decides.md).
    """
    if clause.quantile is not None:
        return 1.0 - clause.quantile
    if clause.statistic == "ess":
        return 1.0 / max(clause.at_least or 1.0, 1e-12)
    limit = clause.at_most if clause.at_most is not None else clause.at_least
    return 0.0 if limit is None else limit


def _scale(clause: Clause, entry: Statistic, estimator: Estimator | None) -> Scale:
    if clause.quantile is not None or clause.statistic == "ess":
        return Scale(0.0, 1.0, 1.0)
    if entry.side is Side.AT_LEAST or clause.at_least is not None:
        return Scale(entry.hi, entry.hi - entry.lo, -1.0)
    if clause.statistic == "gradient_bias":
        low, high = bias_statistic_range(estimator or own_estimator(clause))
        return Scale(low, high - low, 1.0)
    if clause.statistic == "mean_ratio":
        return Scale(0.0, clause.cap or 2.0, 1.0)
    if not np.isfinite(entry.hi):
        return Scale(0.0, 1.0, 1.0)
    return Scale(entry.lo, entry.hi - entry.lo, 1.0)


def _bets(entry: Statistic, tau: float, clause: Clause) -> tuple[Floats, Floats]:
    """Bets that keep wealth positive for every value the statistic can take."""
    if clause.statistic in TWO_SIDED:  # certified by its limits instead
        return GRID.both(1.0 / (1.0 + (clause.at_most or 0.0))), np.zeros(GRID.size)
    none = np.zeros(GRID.size)
    if clause.statistic == "mean_ratio":
        return GRID.up(clause.at_most or 1.0), GRID.down(tau) if tau < 1.0 else none
    bounded = clause.quantile is not None or np.isfinite(entry.hi)
    certifiable = entry.certifiable and bounded and 0.0 < tau < 1.0
    return GRID.up(tau) if tau > 0 else none, GRID.down(tau) if certifiable else none


def _draws(clause: Clause) -> bool:
    """Whether the clause can raise a false alarm: tested by bets, against a limit above zero."""
    entry = find(clause.statistic)
    return entry.test in TESTED and float(_scale(clause, entry, None).down(np.array(_limit(clause)))) > 0.0


def share_of(contract: Contract, clauses: Sequence[Clause], row_slice: Slice, order: int) -> float:
    """Share of the contract's false-alarm budget that one clause gets in one slice instance.

    Equal over the tested clauses; half of a clause's share to its plain slices, half to its `by`
    slices; within a `by` slice half evenly over `at_most` values and half by 1/(j(j+1)) in order
    of appearance, so that few values are judged sharply and late ones still count
    (docs/how-it-decides.md).  All shares together sum to at most one.
    """
    tested = max(sum(map(_draws, clauses)), 1)
    plain = [s for s in contract.slices if not s.by]
    by = [s for s in contract.slices if s.by]
    if not row_slice.by:
        return (0.5 if by else 1.0) / len(plain) / tested
    group = (0.5 if plain else 1.0) / len(by) / tested
    return group * (0.5 / (row_slice.at_most + 1) + 0.5 / (order * (order + 1)))
