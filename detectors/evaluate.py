"""Evaluate: outcomes in, one verdict a clause and slice out.

`Evaluator` owns the rows, their sequential state, the recent fingerprints and the exemplars.
It is pure apart from its own state, picklable, and does no I/O.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from paritas.contracts.derive import estimator_of
from paritas.contracts.model import Clause, Contract, Slice, Stage
from paritas.detectors.bank import Bank, Crossings
from paritas.detectors.diagnosis import Recent, fingerprints
from paritas.detectors.evidence import PairBatch
from paritas.detectors.identity import IdentityLog
from paritas.detectors.pairs import Floats, PairedTrace, PairOutcome
from paritas.detectors.rows import Row, clauses_at, make_row, share_of
from paritas.detectors.slices import SliceBook
from paritas.detectors.table import Entries, Table, factors, joined
from paritas.records import KernelIdentity, PairReason, Sampling, State

__all__ = ["Change", "Crossing", "Evaluator", "SliceState"]

T = TypeVar("T")
NS = 1_000_000_000
EXEMPLARS = 5
# Outcomes that are not sequences of their own: they repeat one that already counted.
REPEATS = (PairReason.DUPLICATE, PairReason.LATE)
# Judged from what reported itself, not pair by pair.
STATES = ("kernel_identity", "silence")
REMEMBERED = 1024  # weights versions and kernels, so that an old one coming late is not taken for new
# Vectorised together, whichever is reached first; bounds memory and stays in cache, changes no result.
BATCH_SEQUENCES = 512
BATCH_TOKENS = 32_768


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
    no_data : bool
        Whether it is about missing data rather than about a limit.
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
    no_data: bool = False


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
        self.has_gap = False  # records are missing now: nothing passes
        self._kernels: dict[tuple[str, str], None] = {}
        self._last_kernels: tuple[KernelIdentity, KernelIdentity] | None = None
        self._columns = tuple((c, s) for s in contract.slices for c in self._clauses_of(s))
        self._plans: dict[tuple[str, ...], _Plan] = {}

    def observe(self, outcomes: Sequence[PairOutcome]) -> Iterator[Crossing]:
        """Fold outcomes in, in order, and yield each change of a row's state as it happens.

        While a crossing is being handled the evaluator stands exactly at the deciding unit; how
        outcomes are cut into calls does not matter.  The iterator must be exhausted.
        """
        start = 0
        while start < len(outcomes):
            stop = self._cut(outcomes, start)
            yield from self._observe(outcomes[start:stop])
            start = stop

    def _cut(self, outcomes: Sequence[PairOutcome], start: int) -> int:
        """End of the batch that begins at `start`: full, and no unit cut in two."""
        stop, tokens = start, 0
        while stop < min(start + BATCH_SEQUENCES, len(outcomes)) and tokens < BATCH_TOKENS:
            pair = outcomes[stop].pair
            tokens += pair.tokens if pair is not None else 0
            stop += 1
        while stop < len(outcomes) and self._unit_key(outcomes[stop]) == self._unit_key(outcomes[stop - 1]):
            stop += 1
        return stop

    def _observe(self, outcomes: Sequence[PairOutcome]) -> Iterator[Crossing]:
        batch = PairBatch.of([o.pair for o in outcomes if o.pair is not None])
        table = Table.of(batch, self._columns, self.estimators)
        sums = fingerprints(batch)
        places = iter(range(len(batch)))
        for _, unit in groupby(outcomes, key=self._unit_key):
            members: list[_Member] = []
            for outcome in unit:
                self.reasons[outcome.reason] = self.reasons.get(outcome.reason, 0) + 1
                if outcome.pair is not None:
                    place = next(places)
                    members.append(_Member(outcome, outcome.pair, table, place, sums[place]))
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
        growth, decline = factors(row, y)
        changed = self.bank.fold(np.array([index]), y, growth, decline, event_ns)
        yield from self._crossings(changed, event_ns)

    def _fold_unit(self, members: Sequence["_Member"]) -> Iterator[Crossing]:
        """Fold one sequence, or the mean of one prompt group, into the rows it touches."""
        touched: list[tuple[NDArray[np.int64], Entries]] = []
        for member in members:
            yield from self._note_weights(member.pair)
            yield from self._note_kernels(member.pair)
            instances = list(self.book.instances(member.outcome))
            for _, name in instances:
                self._note_slice(name, member.pair, member.sums)
            touched.append(self._entries(instances, member))
        rows, entries = touched[0] if len(touched) == 1 else self._grouped(touched)
        if len(rows):
            self.bank.tokens[rows] += entries.tokens
            parts = (entries.scaled, entries.growth, entries.decline)
            changed = self.bank.fold(rows, *parts, members[0].outcome.event_ns)
            yield from self._crossings(changed, members[0].outcome.event_ns)

    def _entries(
        self, instances: Sequence[tuple[Slice, str]], member: "_Member"
    ) -> tuple[NDArray[np.int64], Entries]:
        """Rows for which the pair can tell, and what; the others are counted as without."""
        plan = self._plan(instances)
        known = member.table.known[member.place, plan.columns]
        self.bank.skip(plan.rows[~known])
        return plan.rows[known], member.table.at(member.place, plan.columns[known])

    def _plan(self, instances: Sequence[tuple[Slice, str]]) -> "_Plan":
        """Rows and table columns of a combination of slices, worked out when first met."""
        key = tuple(name for _, name in instances)
        if key not in self._plans:
            if len(self._plans) >= REMEMBERED:
                self._plans.clear()
            held = {declared.name: name for declared, name in instances}
            pairs = [
                (self.row(clause, declared, held[declared.name]), column)
                for column, (clause, declared) in enumerate(self._columns)
                if declared.name in held
            ]
            self._plans[key] = _Plan(*np.array(pairs, dtype=np.int64).reshape(-1, 2).T)
        return self._plans[key]

    def _grouped(
        self, touched: Sequence[tuple[NDArray[np.int64], Entries]]
    ) -> tuple[NDArray[np.int64], Entries]:
        """Join the members of a group row by row."""
        members: dict[int, list[Entries]] = {}
        for rows, entries in touched:
            for i, row in enumerate(rows.tolist()):
                one = slice(i, i + 1)
                part = (entries.scaled[one], entries.growth[one], entries.decline[one], entries.tokens[one])
                members.setdefault(row, []).append(Entries(*part))
        return np.array(list(members), dtype=np.int64), joined(
            [self.rows[row] for row in members], list(members.values())
        )

    def _crossings(self, changed: Crossings, event_ns: int) -> Iterator[Crossing]:
        for change, rows in ((Change.VIOLATED, changed.violated), (Change.RECOVERED, changed.recovered)):
            yield from (self._crossing(change, int(index), event_ns) for index in rows)

    def _crossing(self, change: Change, index: int, event_ns: int) -> Crossing:
        row = self.rows[index]
        names = row.name, row.declared.name
        return Crossing(change, row.clause, *names, index, event_ns, self.weights_version)

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
        """A new kernel restarts every certificate, but no monitor.

        New means not seen before: replicas of unlike hardware take turns, and that is one fleet.
        """
        if (pair.inference, pair.train) == self._last_kernels:
            return
        self._last_kernels = pair.inference, pair.train
        kernels = (pair.inference.digest, pair.train.digest)
        before = self.identity.verdict()[0]
        self.identity.note(pair.inference)
        self.identity.note(pair.train)
        if self._kernels and kernels not in self._kernels:
            self.restart_certificates()
        _remember(self._kernels, kernels)
        if before is not State.VIOLATED and self.identity.verdict()[0] is State.VIOLATED:
            yield from self._identity_crossings(pair.event_ns)

    def restart_certificates(self) -> None:
        """Begin every PASS process again; monitors go on."""
        for index in range(len(self.rows)):
            self.bank.restart_certificate(index)

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


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """Rows and table columns of one combination of slices, both shape (r,), int64."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Member:
    """One paired sequence of a unit, and where it stands in the table of its batch."""

    outcome: PairOutcome
    pair: PairedTrace
    table: Table
    place: int
    sums: Floats
