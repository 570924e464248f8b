"""A whole contract on many recorded streams at once: how near each is to its alarm after every sequence.

The same rows, bets, start mass and shares of the budget as the evaluator's, whose objects would take
minutes for a thousand streams; a test holds the two against each other, alarm by alarm.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.commands.experiments.recorded import REPLICAS
from paritas.commands.experiments.recorded_streams import UNITS, Places, Pool
from paritas.commands.experiments.result import Floats
from paritas.contracts.catalogue import Test
from paritas.contracts.model import Clause, Contract, Slice, Stage
from paritas.detectors.bank import multipliers_of
from paritas.detectors.bets import multipliers
from paritas.detectors.evidence import PairBatch
from paritas.detectors.rows import Row, clauses_at, make_row, share_of
from paritas.detectors.sequential import StartMass, grown, mean_wealth
from paritas.detectors.statistics import UNIT_VALUES, token_bets, unit_values

__all__ = ["Monitor"]

JUDGED_OTHERWISE = ("kernel_identity", "silence")


@dataclass(frozen=True, slots=True, eq=False)
class Monitor:
    """What every sequence of a pool tells a contract with slices `all`, by prompt and by replica.

    Attributes
    ----------
    rows : tuple of Row
        One a clause, c of them.
    factors : shape (m, c, k)
        By what a sequence multiplies the wealth of each bet; 1 where it tells nothing.
    tells, refutes : shape (m, c), bool
        Whether it tells a clause anything, and whether it refutes one as it stands.
    """

    contract: Contract
    pool: Pool
    rows: tuple[Row, ...]
    factors: Floats
    tells: NDArray[np.bool_]
    refutes: NDArray[np.bool_]

    @classmethod
    def of(cls, contract: Contract, pool: Pool) -> "Monitor":
        """Compute what every sequence tells."""
        clauses = [c for c in clauses_at(contract, Stage.OFFLINE_CI) if c.statistic not in JUDGED_OTHERWISE]
        rows = tuple(make_row(clause, Slice("all"), "all", 1.0) for clause in clauses)
        batch = PairBatch.of(list(pool.pairs))
        told = [_told(row, batch) for row in rows]
        factors, values = np.stack([f for f, _ in told], axis=1), np.stack([v for _, v in told], axis=1)
        certain = np.array([row.counterexample for row in rows])
        tau = np.array([row.tau for row in rows])
        return cls(contract, pool, rows, factors, ~np.isnan(values), certain & (values > tau))

    def scores(self, kinds: Places, places: Places) -> Floats:
        """Evidence beyond the threshold, the largest of all rows a sequence touches, nats; 0 is an alarm.

        Parameters
        ----------
        kinds, places : shape (units, streams)
            Kind of prompt and place in the pool of each sequence; replicas take turns.

        Returns
        -------
        shape (units, streams)
        """
        state = _State(self, kinds)
        return np.stack([state.fold(unit, kinds[unit], row) for unit, row in enumerate(places)])

    def gain(self) -> float:
        """Most that any bet gains on average over a healthy stream in one kind of prompt, nats.

        Far above zero means that the recorded sequences of that kind, resampled, break a limit by
        themselves: a few sequences need not obey what holds for the law they are from.
        """
        logs = np.log(np.maximum(self.factors, np.finfo(np.float64).tiny))
        each = [logs[first : first + size].mean(axis=0).max() for first, size in self.pool.healthy_spans()]
        return float(max(each)) * UNITS / len(self.pool.kinds)

    def thresholds(self, kinds: Places) -> Floats:
        """Threshold of every stream, slice instance and clause, nats, shape (streams, instances, c)."""
        order = _order(kinds, len(self.pool.kinds))
        plain, prompt, replica = self.contract.slices
        each = [self._limits(plain, [1] * kinds.shape[1])]
        each += [self._limits(prompt, column) for column in order.T.tolist()]
        each += [self._limits(replica, [1 + i] * kinds.shape[1]) for i in range(REPLICAS)]
        return np.stack(each, axis=1)

    def _limits(self, declared: Slice, orders: Sequence[int]) -> Floats:
        clauses = clauses_at(self.contract, Stage.OFFLINE_CI)
        budget = self.contract.false_alarms.at_most
        known = {
            order: -np.log(budget * share_of(self.contract, clauses, declared, order))
            for order in set(orders)
        }
        return np.repeat(np.array([known[order] for order in orders])[:, None], len(self.rows), axis=1)


class _State:
    """Wealth of every stream, slice instance, clause and bet."""

    def __init__(self, told: Monitor, kinds: Places) -> None:
        self.told, self.mass, streams = told, StartMass(), kinds.shape[1]
        self.thresholds = told.thresholds(kinds)
        shape = self.thresholds.shape
        self.wealth = np.zeros((*shape, told.factors.shape[2]))
        self.number, self.last = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.stream = np.arange(streams)

    def fold(self, unit: int, kind: NDArray[np.int64], places: NDArray[np.int64]) -> Floats:
        """One sequence of every stream; return its largest evidence beyond a threshold."""
        first = 1 + len(self.told.pool.kinds)
        instances = (np.zeros_like(kind), 1 + kind, np.full_like(kind, first + unit % REPLICAS))
        best = np.max([self._fold(unit, instance, places) for instance in instances], axis=0)
        return np.where(self.told.refutes[places].any(axis=1), np.inf, best)

    def _fold(self, unit: int, instance: NDArray[np.int64], places: NDArray[np.int64]) -> Floats:
        at, tells = (self.stream, instance), self.told.tells[places]
        self.number[at] += tells
        number = self.number[at]
        elapsed = np.where(number > 1, unit - self.last[at], 0) / UNITS
        mass = np.where(tells, self.mass.of(np.maximum(number, 1), elapsed), 0.0)
        self.last[at] = np.where(tells, unit, self.last[at])
        wealth = grown(self.wealth[at], mass[:, :, None], self.told.factors[places])
        self.wealth[at] = wealth
        with np.errstate(divide="ignore"):
            evidence = np.log(mean_wealth(wealth, axis=2)) - self.thresholds[at]
        return np.asarray(np.where(tells, evidence, -np.inf).max(axis=1))


def _told(row: Row, batch: PairBatch) -> tuple[Floats, Floats]:
    """Factors (m, k) and values (m,) on the test's scale of every sequence."""
    values = row.scale.down(_values(row.clause, batch))
    if row.entry.test is Test.CONDITIONAL_MEAN:
        up = multipliers_of(token_bets(batch, row.clause, None, row.up))
    else:
        up = multipliers(row, values)[0]
    return np.where(np.isnan(values)[:, None], 1.0, up), values


def _values(clause: Clause, batch: PairBatch) -> Floats:
    """Values of every sequence; all of them are paired."""
    if clause.statistic in UNIT_VALUES:
        return unit_values(batch, clause)
    return np.ones(len(batch))


def _order(kinds: Places, many: int) -> NDArray[np.int64]:
    """How early each kind of prompt appears in each stream, from 1, shape (streams, many)."""
    met = np.stack(
        [np.where((kinds == k).any(axis=0), (kinds == k).argmax(axis=0), len(kinds)) for k in range(many)]
    )
    return np.asarray(met.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable").T + 1)
