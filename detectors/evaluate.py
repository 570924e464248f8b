"""Evaluate: outcomes in, one verdict a clause and slice out.

`Evaluator` owns the rows, their sequential state, the recent fingerprints and the exemplars.
It is pure apart from its own state, picklable, and does no I/O.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from paritas.contracts.catalogue import Test
from paritas.contracts.derive import estimator_of
from paritas.contracts.model import Clause, Contract, Estimator, Slice, Stage
from paritas.detectors.bank import Bank, Crossings
from paritas.detectors.diagnosis import Recent, fingerprints
from paritas.detectors.evidence import PairBatch
from paritas.detectors.identity import IdentityLog
from paritas.detectors.pairs import Floats, PairedTrace, PairOutcome
from paritas.detectors.rows import Row, clauses_at, make_row, share_of
from paritas.detectors.slices import SliceBook, token_mask
from paritas.detectors.statistics import Mask, gradient_bias, token_bets, unit_values
from paritas.records import PairReason, Sampling, State

__all__ = ["Change", "Crossing", "Evaluator", "SliceState"]

T = TypeVar("T")
NS = 1_000_000_000
EXEMPLARS = 5
# Outcomes that are not sequences of their own: they repeat one that already counted.
REPEATS = (PairReason.DUPLICATE, PairReason.LATE)
# Judged from what reported itself, not pair by pair.
STATES = ("kernel_identity", "silence")
REMEMBERED = 1024  # weights versions and kernels, so that an old one coming late is not taken for new
BATCH = 512  # sequences vectorised together; bounds memory, changes no result


class Change(StrEnum):
    """What happened to a row."""

    VIOLATED = "violated"
    RECOVERED = "recovered"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Crossing:
    """One row changed its state at one unit.

    Attributes
    ----------
    slice, declared : str
        Name of the slice instance, and of the slice the contract declares it by.
    index : int
        Row in the evaluator; -1 for the kernel identity.
    event_ns : int
        Start time of the deciding sequence.
    """

    change: Change
    clause: Clause
    slice: str
    declared: str
    index: int
    event_ns: int
    weights_version: str


@dataclass(slots=True)
class SliceState:
    """What is remembered of one slice instance besides its rows.

    Attributes
    ----------
    lag, allowed_lag : int
        Largest weights lag of sequences that were refused for it, and of those that paired.
    shifted : int
        Sequences whose token ids agree after a move by one.
    worst : list of (value, trace id)
        The pairs with the largest mean |ell|, worst first.
    """

    recent: Recent
    inference: Sampling = Sampling()
    train: Sampling = Sampling()
    lag: int = 0
    allowed_lag: int = 0
    shifted: int = 0
    worst: list[tuple[float, str]] = field(default_factory=list)


class Evaluator:
    """Judges every clause of one contract in every slice.

    Parameters
    ----------
    contract : Contract
    stage : Stage
        Clauses of other stages are left out.
    recover : bool
        Live streams may recover by a certificate; a recording is judged as a whole.
    """

    def __init__(self, contract: Contract, *, stage: Stage, recover: bool) -> None:
        self.contract = contract
        self.clauses = clauses_at(contract, stage)
        biased = [c for c in self.clauses if c.statistic == "gradient_bias"]
        self.estimators = {c.id: estimator_of(contract, c) for c in biased}
        self.book = SliceBook(contract.slices)
        self.bank = Bank(period_ns=round(contract.false_alarms.per_s * NS), recover=recover)
        self.rows: list[Row] = []
        self.index: dict[tuple[str, str], int] = {}
        self.states: dict[str, SliceState] = {}
        self.identity = IdentityLog(contract.kernels)
        self.reasons: dict[str, int] = {}
        self.versions: dict[str, None] = {}
        self.weights_version = ""
        self._kernels: dict[tuple[str, str], None] = {}

    def observe(self, outcomes: Sequence[PairOutcome]) -> Iterator[Crossing]:
        """Fold outcomes in, in order, and yield each change of a row's state as it happens.

        While a crossing is being handled the evaluator stands exactly at the deciding unit; how
        outcomes are cut into calls does not matter.  The iterator must be exhausted.
        """
        start = 0
        while start < len(outcomes):
            stop = self._cut(outcomes, start + BATCH)
            yield from self._observe(outcomes[start:stop])
            start = stop

    def _cut(self, outcomes: Sequence[PairOutcome], stop: int) -> int:
        """First end at or after `stop` that does not cut a unit in two."""
        while stop < len(outcomes) and self._unit_key(outcomes[stop]) == self._unit_key(outcomes[stop - 1]):
            stop += 1
        return min(stop, len(outcomes))

    def _observe(self, outcomes: Sequence[PairOutcome]) -> Iterator[Crossing]:
        batch = PairBatch.of([o.pair for o in outcomes if o.pair is not None])
        table, sums = _Table(batch, self.estimators), fingerprints(batch)
        places = iter(range(len(batch)))
        for _, unit in groupby(outcomes, key=self._unit_key):
            members: list[_Member] = []
            for outcome in unit:
                self.reasons[outcome.reason] = self.reasons.get(outcome.reason, 0) + 1
                if outcome.pair is not None:
                    place = next(places)
                    members.append(_Member(outcome, outcome.pair, table.at(place), sums[place]))
                elif outcome.reason not in REPEATS:
                    yield from self._fold_loss(outcome)
            if members:
                yield from self._fold_unit(members)

    def _unit_key(self, outcome: PairOutcome) -> tuple[str, str]:
        """Outcomes with equal keys that stand together are one unit."""
        grouped = self.contract.compare.unit == "group" and outcome.group_id
        return outcome.run_id, f"group:{outcome.group_id}" if grouped else outcome.sequence_id

    def _fold_loss(self, outcome: PairOutcome) -> Iterator[Crossing]:
        """A sequence without a partner: it counts against pairing, and nowhere else."""
        for declared, name in self.book.instances(outcome):
            state = self._state(name)
            state.shifted += 1 if outcome.facts.get("shift") else 0
            state.lag = max(state.lag, int(float(outcome.facts.get("lag", 0))))
            for clause in self._clauses_of(declared):
                if clause.statistic == "pairing_rate":
                    index = self.row(clause, declared, name)
                    yield from self.fold_value(index, 0.0, outcome.event_ns)

    def fold_value(self, index: int, value: float, event_ns: int) -> Iterator[Crossing]:
        """Fold one value, in the statistic's unit, into one row."""
        row = self.rows[index]
        y = row.scale.down(np.array([value]))
        growth, decline = _factors(row, y)
        changed = self.bank.fold(np.array([index]), y, growth, decline, event_ns)
        yield from self._crossings(changed, event_ns)

    def _fold_unit(self, members: Sequence["_Member"]) -> Iterator[Crossing]:
        """Fold one sequence, or the mean of one prompt group, into the rows it touches."""
        cells: dict[int, list[_Cell]] = {}
        for member in members:
            yield from self._note_weights(member.pair)
            yield from self._note_kernels(member.pair)
            instances = list(self.book.instances(member.outcome))
            for _, name in instances:
                self._note_slice(name, member.pair, member.sums)
            for index, cell in self._cells(instances, member.columns):
                cells.setdefault(index, []).append(cell)
        if cells:
            yield from self._fold_cells(cells, members[0].outcome.event_ns)

    def _fold_cells(self, cells: Mapping[int, list["_Cell"]], event_ns: int) -> Iterator[Crossing]:
        rows = np.array(list(cells), dtype=np.int64)
        joined = [_join(self.rows[index], parts) for index, parts in cells.items()]
        self.bank.tokens[rows] += np.array([cell.tokens for cell in joined])
        changed = self.bank.fold(
            rows,
            np.array([cell.scaled for cell in joined]),
            np.stack([cell.growth for cell in joined]),
            np.stack([cell.decline for cell in joined]),
            event_ns,
        )
        yield from self._crossings(changed, event_ns)

    def _crossings(self, changed: Crossings, event_ns: int) -> Iterator[Crossing]:
        for change, rows in ((Change.VIOLATED, changed.violated), (Change.RECOVERED, changed.recovered)):
            yield from (self._crossing(change, int(index), event_ns) for index in rows)

    def _crossing(self, change: Change, index: int, event_ns: int) -> Crossing:
        row = self.rows[index]
        names = row.name, row.declared.name
        return Crossing(change, row.clause, *names, index, event_ns, self.weights_version)

    def _cells(self, instances: Sequence[tuple[Slice, str]], columns: "_At") -> Iterator[tuple[int, "_Cell"]]:
        """Yield (row, cell) where the pair can tell; rows for which it cannot are counted as without."""
        for declared, name in instances:
            for clause in self._clauses_of(declared):
                index = self.row(clause, declared, name)
                cell = columns.cell(clause, declared)
                if cell is None:
                    self.bank.skip([index])
                else:
                    yield index, cell

    def _note_slice(self, name: str, pair: PairedTrace, sums: Floats) -> None:
        state = self._state(name)
        state.recent.fold(sums)
        state.inference, state.train = pair.sampling, pair.train_sampling
        state.allowed_lag = max(state.allowed_lag, pair.lag or 0)
        size = float(np.abs(pair.log_ratio).mean()) if pair.tokens else 0.0
        state.worst = sorted([*state.worst, (size, pair.trace_id)], key=lambda w: (-w[0], w[1]))[:EXEMPLARS]

    def _state(self, name: str) -> SliceState:
        return self.states.setdefault(name, SliceState(Recent()))

    def _note_weights(self, pair: PairedTrace) -> Iterator[Crossing]:
        """New weights supersede open incidents: they are neither resolved nor carried over."""
        version = pair.weights_version
        if not version or version in self.versions:
            return
        known = bool(self.versions)
        _remember(self.versions, version)
        if known:
            for index in np.flatnonzero(self.bank.violated):
                yield self._crossing(Change.SUPERSEDED, int(index), pair.event_ns)
                self.bank.restart_row(int(index))
        self.weights_version = version

    def _note_kernels(self, pair: PairedTrace) -> Iterator[Crossing]:
        """A new kernel restarts every certificate, but no monitor (statistics pitfall 9).

        New means not seen before: replicas of unlike hardware take turns, and that is one fleet.
        """
        kernels = (pair.inference.digest, pair.train.digest)
        before = self.identity.verdict()[0]
        self.identity.note(pair.inference)
        self.identity.note(pair.train)
        if self._kernels and kernels not in self._kernels:
            for index in range(len(self.rows)):
                self.bank.restart_certificate(index)
        _remember(self._kernels, kernels)
        if before is not State.VIOLATED and self.identity.verdict()[0] is State.VIOLATED:
            yield from self._identity_crossings(pair.event_ns)

    def _identity_crossings(self, event_ns: int) -> Iterator[Crossing]:
        for clause in self.clauses:
            if clause.statistic == "kernel_identity":
                name = next((s.name for s in self.contract.slices if not s.by), "all")
                yield Crossing(Change.VIOLATED, clause, name, name, -1, event_ns, self.weights_version)

    def _clauses_of(self, declared: Slice) -> Iterator[Clause]:
        """Clauses judged pair by pair in a slice."""
        applies = (c for c in self.clauses if not c.slices or declared.name in c.slices)
        return (c for c in applies if c.statistic not in STATES)

    def row(self, clause: Clause, declared: Slice, name: str) -> int:
        """Index of the row of a clause in a slice instance, made when first needed."""
        key = (clause.id, name)
        if key not in self.index:
            share = share_of(self.contract, self.clauses, declared, self.book.order(declared, name))
            alpha = self.contract.false_alarms.at_most * share
            row = make_row(clause, declared, name, alpha, estimator=self.estimators.get(clause.id))
            self.rows.append(row)
            self.index[key] = self.bank.add(row)
        return self.index[key]


def _remember(table: dict[T, None], key: T) -> None:
    """Add a key to a table of at most `REMEMBERED`, the oldest leaves first."""
    table[key] = None
    while len(table) > REMEMBERED:
        del table[next(iter(table))]


class _Table:
    """Values and log-factors of a whole batch, computed once per clause and declared slice."""

    def __init__(self, batch: PairBatch, estimators: Mapping[str, Estimator]) -> None:
        self._batch = batch
        self._estimators = estimators
        self._columns: dict[tuple[str, str], _Column] = {}

    def at(self, place: int) -> "_At":
        """The table at one pair."""
        return _At(self, place)

    def column(self, clause: Clause, declared: Slice) -> "_Column":
        """Return the column of a clause in a declared slice, computing it the first time."""
        key = (clause.id, declared.name)
        if key not in self._columns:
            self._columns[key] = self._compute(clause, declared)
        return self._columns[key]

    def _raw(self, clause: Clause, mask: Mask, estimator: Estimator | None) -> Floats:
        """Values of each pair in the statistic's own unit."""
        if clause.statistic == "pairing_rate":
            return np.ones(len(self._batch))  # every pair of a batch was paired
        if estimator is not None:
            return gradient_bias(self._batch, estimator, mask)
        return unit_values(self._batch, clause, mask)

    def _compute(self, clause: Clause, declared: Slice) -> "_Column":
        mask = token_mask(declared.match, self._batch)
        estimator = self._estimators.get(clause.id)
        row = make_row(clause, declared, declared.name, 1.0, estimator=estimator)
        raw = self._raw(clause, mask, estimator)
        scaled = row.scale.down(raw)
        growth, decline = _factors(row, scaled)
        if row.entry.test is Test.CONDITIONAL_MEAN:
            growth = token_bets(self._batch, clause, mask, row.up)
        return _Column(raw, scaled, growth, decline, self._batch.counts(mask))


@dataclass(frozen=True, slots=True)
class _At:
    """One pair's row of the table."""

    table: _Table
    place: int

    def cell(self, clause: Clause, declared: Slice) -> "_Cell | None":
        """The pair's cell for one clause in one declared slice; None when it cannot tell."""
        c, i = self.table.column(clause, declared), self.place
        if np.isnan(c.raw[i]):
            return None
        return _Cell(float(c.scaled[i]), c.growth[i], c.decline[i], int(c.tokens[i]))


@dataclass(frozen=True, slots=True, eq=False)
class _Member:
    """One paired sequence of a unit."""

    outcome: PairOutcome
    pair: PairedTrace
    columns: _At
    sums: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Cell:
    """What one unit tells one row: value on the test's scale, log-factors of the bets, tokens."""

    scaled: float
    growth: Floats
    decline: Floats
    tokens: int


def _join(row: Row, parts: Sequence[_Cell]) -> _Cell:
    """Make one cell of a group's: the mean value; token bets multiply, since their null holds given every prefix."""
    if len(parts) == 1:
        return parts[0]
    mean = np.array([np.mean([p.scaled for p in parts])])
    growth, decline = _factors(row, mean)
    if row.entry.test is Test.CONDITIONAL_MEAN:
        growth = np.sum([p.growth for p in parts], axis=0)[None, :]
    return _Cell(float(mean[0]), growth[0], decline[0], sum(p.tokens for p in parts))


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """One clause in one declared slice over a batch; `raw` in the statistic's unit."""

    raw: Floats
    scaled: Floats
    growth: Floats
    decline: Floats
    tokens: NDArray[np.int64]


def _factors(row: Row, values: Floats) -> tuple[Floats, Floats]:
    """Log-factors of a row's bets for scaled values of shape (n,): two (n, k) arrays, nats."""
    gap = np.where(np.isnan(values), 0.0, values - row.tau)[:, None]
    ceiling = max(1.0 - row.tau, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.log1p(row.up * gap), np.log1p(-row.down * np.minimum(gap, ceiling))
