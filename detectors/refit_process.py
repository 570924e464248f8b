"""The test of one weights version on one replica: e-processes from its first sequence, a few numbers each."""

from dataclasses import dataclass, field
from math import log

import numpy as np
from numpy.typing import NDArray

from paritas.detectors.diagnosis import Recent
from paritas.detectors.limits import radius
from paritas.detectors.measures import Columns
from paritas.detectors.pairs import Floats, PairOutcome
from paritas.detectors.sequential import mean_wealth, scaled
from paritas.detectors.slice_states import SliceState
from paritas.detectors.units import Batch, unit_key
from paritas.records import Reason, State, Verdict

__all__ = ["RefitTest"]

SIDE_ALPHA = 0.01  # as of the limits of other verdicts (`detectors.verdicts`)
REFUTED_ALPHA = 0.02


@dataclass(slots=True)
class RefitTest:
    """Folds sequences, or prompt groups, until something is decided.

    Attributes
    ----------
    level : float
        Error probability of each clause's test, either way.
    kept, exceeded : shape (k, c)
        Wealth of k bets against "the limit is kept" and against "it is exceeded", c clauses.
    total, spread : shape (c,)
        Sums of values on the test's scale, and of their squared distances to the running mean (D16).
    units, tokens, sequences : int
    state : SliceState
        What a diagnosis looks at.
    """

    level: float
    kept: Floats
    exceeded: Floats
    total: Floats
    spread: Floats
    units: int = 0
    tokens: int = 0
    sequences: int = 0
    state: SliceState = field(default_factory=lambda: SliceState(Recent()))
    _waiting: list[PairOutcome] = field(default_factory=list)  # of the group that may go on

    @classmethod
    def of(cls, columns: Columns, level: float) -> "RefitTest":
        """Return the test before its first sequence."""
        shape = len(columns.rows[0].up), len(columns.rows)
        return cls(level, np.ones(shape), np.ones(shape), np.zeros(shape[1]), np.zeros(shape[1]))

    def take(self, batch: Batch, place: int) -> None:
        """Take the next pair, a unit of its own: row `place` of a batch."""
        self._count(batch.outcomes[place])
        row = int(batch.places[place])
        self.state.note(batch, np.array([row]))
        self._fold(batch.table.scaled[row], batch.table.factors[row])

    def take_member(self, outcome: PairOutcome, columns: Columns) -> None:
        """Take the next pair of a prompt group, which is one unit and is folded when it is over."""
        self._count(outcome)
        keys = [unit_key(o, by_group=True) for o in (*self._waiting[-1:], outcome)]
        if keys[0] != keys[-1]:
            self.close(columns)
        self._waiting.append(outcome)

    def _count(self, outcome: PairOutcome) -> None:
        assert outcome.pair is not None  # only pairs tell
        self.tokens += outcome.pair.tokens
        self.sequences += 1

    def close(self, columns: Columns) -> None:
        """Fold what waits: the group is over."""
        if not self._waiting:
            return
        batch, self._waiting = Batch.of(self._waiting, columns, by_group=False), []
        self.state.note(batch, np.arange(len(batch.pairs)))
        table = batch.table
        if len(batch.pairs) > 1:
            table = table.grouped(np.arange(len(batch.pairs)), np.zeros(1, np.int64), columns)
        self._fold(table.scaled[0], table.factors[0])

    def _fold(self, values: Floats, factors: Floats) -> None:
        predicted = (self.total + 0.5) / (self.units + 1.0)
        self.spread = self.spread + np.square(values - predicted)
        self.total, self.units = self.total + values, self.units + 1
        self.kept, self.exceeded = scaled(self.kept, factors[0]), scaled(self.exceeded, factors[1])

    def refuted(self) -> int | None:
        """Column of the clause with the most evidence against its limit, if that is enough."""
        evidence = _log_evidence(self.kept)
        worst = int(np.argmax(evidence))
        return worst if evidence[worst] >= -log(self.level) else None

    def is_certified(self) -> bool:
        """Whether every limit is certified to be kept."""
        return bool((_log_evidence(self.exceeded) >= -log(self.level)).all())

    def verdict(self, column: int, columns: Columns, name: str) -> Verdict:
        """Return the verdict of a refuted clause in slice `name`."""
        row = columns.rows[column]
        mean = float(self.total[column]) / self.units
        half = radius(float(self.spread[column]), self.units, SIDE_ALPHA)
        over = _log_evidence(self.kept)[column]
        low = max(mean - half, row.tau if over >= -log(REFUTED_ALPHA) else 0.0)
        # Values of a sampled stream are drawn towards the limit: above it, what all have is larger still.
        high = 1.0 if columns.sampled_at_least is not None else min(mean + half, 1.0)
        return Verdict(
            row.clause.id,
            name,
            State.VIOLATED,
            Reason.REFUTED,
            row.clause.statistic,
            row.clause.family.value,
            row.scale.up(mean),
            row.scale.up(low),
            row.scale.up(high),
            row.limit,
            float(over / log(10.0)),
            float(_log_evidence(self.exceeded)[column] / log(10.0)),
            float(-log(self.level) / log(10.0)),
            self.units,
            self.tokens,
            unit=row.unit,
        )


def _log_evidence(wealth: Floats) -> NDArray[np.float64]:
    """Evidence of each clause, nats, shape (c,): the mixture of its bets."""
    return np.asarray(np.log(mean_wealth(wealth, axis=0)))
