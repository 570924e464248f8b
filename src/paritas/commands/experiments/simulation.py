"""Many streams through the detectors' own bank at once: row i of every stream side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.commands.experiments.boundary import Outcomes, Stream
from paritas.commands.experiments.result import Floats
from paritas.contracts.model import Compare, Contract, FalseAlarms, Promotion, Slice
from paritas.detectors.bank import Bank
from paritas.detectors.bets import multipliers
from paritas.detectors.rows import Row, make_row, share_of
from paritas.detectors.sequential import mean_wealth

__all__ = ["BUDGET", "Peaks", "Run", "contract_of", "simulate", "tiled"]

BUDGET = 0.05
CHUNK = 1000  # streams at a time: the bank's arrays stay small
PERIOD_NS = 604_800_000_000_000


@dataclass(frozen=True, slots=True)
class Run:
    """What is simulated.

    Attributes
    ----------
    streams, units : int
        Independent streams, and sequences of each in one period of the budget.
    replicas : int
        Values of the `by` slice that takes turns; 0 for all traffic alone.
    """

    streams: int
    units: int
    replicas: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Peaks:
    """Largest evidence each row of each stream ever had.

    Attributes
    ----------
    rows : tuple of Row
    alarm, passing : shape (rows, streams)
        Wealth against "kept" and against "exceeded"; the second of all traffic only, NaN elsewhere.
    """

    rows: tuple[Row, ...]
    alarm: Floats
    passing: Floats

    def alarms(self, level: float) -> Floats:
        """Share of streams in which each row alarms at its own `level`, shape (rows,)."""
        return np.asarray((self.alarm >= 1.0 / level).mean(axis=1))

    def any_alarm(self) -> float:
        """Share of streams in which any row alarms at its share of the budget."""
        thresholds = 1.0 / np.array([row.alpha for row in self.rows])
        return float((self.alarm >= thresholds[:, None]).any(axis=0).mean())

    def passes(self, level: float) -> Floats:
        """Share of streams in which each row passes though its mean is not below the limit."""
        return np.asarray((self.passing >= 1.0 / level).mean(axis=1))


def contract_of(clauses: Sequence[Stream], *, replicas: int) -> Contract:
    """A contract with these clauses, in all traffic and, if any, by replica."""
    by = (Slice("replica", by=("replica",), at_most=replicas),) if replicas else ()
    return Contract(
        name="boundary",
        version="1",
        owner="",
        policy="p",
        kernels={},
        compare=Compare(),
        slices=(Slice("all"), *by),
        false_alarms=FalseAlarms(BUDGET, PERIOD_NS / 1e9),
        budget=None,
        clauses=tuple(stream.clause for stream in clauses),
        escalation=(),
        on_controller_loss="hold",
        promotion=Promotion(),
        tests=(),
    )


def _rows_of(whole: Contract, replicas: int) -> tuple[Row, ...]:
    """Rows of all traffic, then of each replica, each with its share of the budget."""
    everything, *by = whole.slices
    names = [(everything, "all", 1)] + [(by[0], f"replica=r{j}", j + 1) for j in range(replicas)]
    return tuple(
        make_row(clause, declared, name, BUDGET * share_of(whole, whole.clauses, declared, order))
        for declared, name, order in names
        for clause in whole.clauses
    )


def simulate(told: Outcomes, clauses: Sequence[Stream], size: Run, seed: int) -> Peaks:
    """Give every stream `size.units` sequences, spread evenly over one period."""
    rows = _rows_of(contract_of(clauses, replicas=size.replicas), size.replicas)
    parts = [
        _Chunk(told, clauses, rows, min(CHUNK, size.streams - first), size).folded(
            np.random.default_rng([seed, first])
        )
        for first in range(0, size.streams, CHUNK)
    ]
    return Peaks(rows, *(np.concatenate(part, axis=1) for part in zip(*parts, strict=True)))


class _Chunk:
    """Some streams: row i of stream s stands at ``i * streams + s`` of one bank."""

    def __init__(
        self, told: Outcomes, clauses: Sequence[Stream], rows: tuple[Row, ...], streams: int, size: Run
    ) -> None:
        self.told, self.clauses, self.rows, self.streams, self.size = told, clauses, rows, streams, size
        self.bank = tiled(rows, streams)
        self.passing = np.zeros(len(clauses) * streams)
        self.tables = {
            stream.clause.id: stream.factors(row, told)
            for stream, row in zip(clauses, rows, strict=False)
            if stream.values is not None
        }

    def folded(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Fold all units; return the peaks, each of shape (rows, streams)."""
        for unit in range(self.size.units):
            self._fold(rng, unit)
        passing = np.full((len(self.rows), self.streams), np.nan)
        passing[: len(self.clauses)] = self.passing.reshape(-1, self.streams)
        return self.bank.best.reshape(-1, self.streams), passing

    def _fold(self, rng: np.random.Generator, unit: int) -> None:
        """One sequence of every stream, in all traffic and in the replica whose turn it is."""
        values, up, down = self._drawn(rng)
        event_ns = unit * PERIOD_NS // self.size.units
        for first in self._instances(unit):
            index = np.arange(first * len(values), (first + 1) * len(values))
            self.bank.multiply(index, values, up, down, event_ns)
        told = mean_wealth(self.bank.passing[: len(values)], axis=1)
        np.maximum(self.passing, told, out=self.passing)

    def _instances(self, unit: int) -> tuple[int, ...]:
        return (0, 1 + unit % self.size.replicas) if self.size.replicas else (0,)

    def _drawn(self, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        places = self.told.draw(rng, self.streams)
        parts = [
            self._of(stream, row, places, rng) for stream, row in zip(self.clauses, self.rows, strict=False)
        ]
        values, up, down = (np.concatenate(part) for part in zip(*parts, strict=True))
        return values, up, down

    def _of(
        self, stream: Stream, row: Row, places: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[Floats, Floats, Floats]:
        if stream.values is not None:
            scaled, up, down = self.tables[stream.clause.id]
            return scaled[places], up[places], down[places]
        scaled = row.scale.down(stream.drawn(rng, self.streams))
        return scaled, *multipliers(row, scaled)


def tiled(rows: Sequence[Row], streams: int, *, period_ns: int = PERIOD_NS) -> Bank:
    """A bank with every row once a stream."""
    bank = Bank(period_ns=period_ns, recover=False)
    for row in rows:
        bank.add(row)
    for name, column in vars(bank).items():
        if isinstance(column, np.ndarray):
            setattr(bank, name, np.repeat(column, streams, axis=0))
    return bank
