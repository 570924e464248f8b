"""Evaluate: outcomes in, one verdict a clause and slice out.

`Evaluator` owns the rows, their sequential state, the recent fingerprints and the exemplars.
It is pure apart from its own state, picklable, and does no I/O.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from paritas.contracts.derive import estimator_of
from paritas.contracts.model import Clause, Contract, Slice, Stage
from paritas.detectors.agents import AGENT_SILENCE, AgentBook
from paritas.detectors.bank import Bank, Crossings
from paritas.detectors.bets import multipliers
from paritas.detectors.crossings import Change, Crossing
from paritas.detectors.diagnosis import Recent, Whereabouts
from paritas.detectors.identity import IdentityLog
from paritas.detectors.ledger import is_certificate
from paritas.detectors.measures import Columns
from paritas.detectors.pairs import PairedTrace, PairOutcome
from paritas.detectors.placement import Placement, Plan
from paritas.detectors.rows import Row, clauses_at, make_row, share_of
from paritas.detectors.runs import fold_alone, fold_run
from paritas.detectors.sampling import SamplingBook
from paritas.detectors.slice_states import SliceState
from paritas.detectors.timing_points import PointBook, PointWindow
from paritas.detectors.trial import put_back, state_of
from paritas.detectors.units import REPEATS, Batch, cut
from paritas.detectors.windows import Window, WindowBook, is_windowed
from paritas.detectors.witness import WitnessBook
from paritas.records import KernelIdentity, State
from paritas.records.timing import TimingPoint

__all__ = ["REPEATS", "Change", "Crossing", "Evaluator", "SliceState"]

T = TypeVar("T")
NS = 1_000_000_000
# Judged from what reported itself, not pair by pair.
STATES = ("kernel_identity", "silence", AGENT_SILENCE)
REMEMBERED = 1024  # weights versions and kernels, so that an old one coming late is not taken for new
RECENT_KERNELS = 16  # pairs of kernels that take turns
BATCH_SEQUENCES = 512  # folded together; changes no result
SHORTEST_RUN = 4  # units tried together right after one that changed a state


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
        asked = [(c, s) for s in contract.slices for c in self._clauses_of(s)]
        sampled = contract.compare.sampled_at_least
        self.columns = replace(Columns.of(asked, self.estimators), sampled_at_least=sampled)
        self.sampling = SamplingBook(sampled)
        self.placement = Placement(
            contract.slices, [self.columns.of_slice(self._clauses_of(s), s) for s in contract.slices]
        )
        self.book = self.placement.book
        windowed = tuple(c for c in self.clauses if is_windowed(c))
        self.windows = WindowBook(windowed, contract.slices, self.book, contract.compare.sampled_at_least)
        self._plain = frozenset(s.name for s in contract.slices if not s.by)
        self.points = PointBook(
            tuple(c for c in windowed if c.quantile is not None), contract.slices, self.book
        )
        self.blur: dict[int, float] = {}  # row → summed width of the shares that histograms told
        self.bank = Bank(period_ns=round(contract.false_alarms.per_s * NS), recover=recover)
        self.rows: list[Row] = []
        self.index: dict[tuple[str, str], int] = {}
        self.states: dict[str, SliceState] = {}
        self.identity = IdentityLog(contract.kernels)
        self.agents = AgentBook(tuple(c for c in self.clauses if c.statistic == AGENT_SILENCE))
        self.reasons: dict[str, int] = {}
        self.versions: dict[str, None] = {}
        self.weights_version = ""
        certified = frozenset(s.name for c, s in asked if is_certificate(c, contract))
        self.witnesses = WitnessBook(certified)
        self.has_gap = False  # records are missing now: nothing passes
        self._kernels: dict[tuple[str, str], None] = {}
        self._recent_kernels: list[tuple[KernelIdentity, KernelIdentity]] = []
        self._run_length = BATCH_SEQUENCES

    def observe(self, outcomes: Sequence[PairOutcome]) -> Iterator[Crossing]:
        """Fold outcomes in, in order, and yield each change of a row's state as it happens.

        While a crossing is being handled the evaluator stands exactly at the deciding unit; how
        outcomes are cut into calls does not matter.  The iterator must be exhausted.
        """
        start = known = 0
        for stop, over in self.windows.closings(outcomes):
            news = self._brings_news(outcomes, known, stop)
            known = stop
            loud = [w for w in over if news or not self._fold_quietly(w)]
            if loud:
                yield from self._observe_units(outcomes[start:stop])
                yield from self._fold_windows(loud)
                start = stop
        yield from self._observe_units(outcomes[start:])

    def _brings_news(self, outcomes: Sequence[PairOutcome], start: int, stop: int) -> bool:
        """Whether some outcomes bring weights or kernels that may restart rows."""
        return any(o.pair is not None and self._is_new(o.pair) for o in outcomes[start:stop])

    def _fold_quietly(self, window: Window) -> bool:
        """Fold a window ahead of the units before it; False, and nothing folded, where that could be seen."""
        index = self.row(window.clause, window.declared, window.name)
        if self.bank.violated[index]:
            return False
        before = state_of(self.bank, index)
        if not list(self._fold_windows([window])):
            return True
        put_back(self.bank, index, before)
        return False

    def close_windows(self, *, is_end: bool) -> Iterator[Crossing]:
        """Judge the windows that silence, or the end of the input, closes."""
        yield from self._fold_windows(self.windows.close(is_end=is_end))

    def observe_points(self, points: Sequence[TimingPoint], *, is_end: bool = False) -> Iterator[Crossing]:
        """Judge runtime clauses by histograms, in the order of the points; single timings of the same are left out."""
        over = [*self.points.take(points), *(self.points.close() if is_end else ())]
        told = {point.statistic for point in points}
        self.windows.clauses = tuple(c for c in self.windows.clauses if c.statistic not in told)
        for window in over:
            index = self.row(window.clause, window.declared, window.name)
            yield from self._fold_between(index, window)

    def _fold_between(self, index: int, window: PointWindow) -> Iterator[Crossing]:
        """Fold a share that is known between two ends: each test bets on the end that is worse for it."""
        row, (least, most) = self.rows[index], window.shares
        ends = row.scale.down(np.array([least, most]))
        up, down = multipliers(row, ends[:1])[0], multipliers(row, ends[1:])[1]
        self.blur[index] = self.blur.get(index, 0.0) + most - least
        changed = self.bank.multiply(np.array([index]), ends[1:], up, down, window.event_ns)
        yield from self._crossings(changed, window.event_ns)

    def _fold_windows(self, over: Sequence[Window]) -> Iterator[Crossing]:
        for window in over:
            index = self.row(window.clause, window.declared, window.name)
            self.bank.without[index] += window.without
            if window.value is not None:
                self.bank.tokens[index] += window.tokens
                yield from self.fold_value(index, window.value, window.event_ns)

    def _observe_units(self, outcomes: Sequence[PairOutcome]) -> Iterator[Crossing]:
        start, by_group = 0, self.contract.compare.unit == "group"
        while start < len(outcomes):
            stop = cut(outcomes, start, sequences=BATCH_SEQUENCES, by_group=by_group)
            yield from self._observe(Batch.of(outcomes[start:stop], self.columns, by_group=by_group))
            self.sampling.count(outcomes[start:stop])
            self.witnesses.note(outcomes[start:stop], self._instances)
            start = stop

    def _instances(self, outcome: PairOutcome) -> Iterable[tuple[Slice, str]]:
        """Slice instances an outcome belongs to."""
        plan = self.placement.known(outcome)
        return self.book.instances(outcome) if plan is None else plan.instances

    def _observe(self, batch: Batch) -> Iterator[Crossing]:
        """Fold runs of ordinary units together, and one by one those that change something."""
        unit = 0
        while unit < len(batch):
            stop, plans = self._ordinary(batch, unit, min(unit + self._run_length, len(batch)))
            folded = self._fold_run(batch, range(unit, stop), plans)
            unit += folded
            if folded == self._run_length or unit == len(batch):
                self._run_length = min(2 * self._run_length, BATCH_SEQUENCES)
                continue
            if unit < stop:
                self._run_length = max(folded, SHORTEST_RUN)
            yield from self._fold_unit(batch, unit)
            unit += 1

    def _ordinary(self, batch: Batch, first: int, last: int) -> tuple[int, list[Plan]]:
        """End of the units from `first` on, but before `last`, that bring nothing new; plans of their outcomes."""
        plans: list[Plan] = []
        tellers, starts = batch.tellers.tolist(), batch.told
        for unit in range(first, last):
            told = tellers[starts[unit] : starts[unit + 1]]
            found = [self._plan(batch.outcomes[i]) for i in told]
            known = [plan for plan in found if plan is not None]
            is_own = len(told) > 1 or self.sampling.at_least is not None  # a loss there is folded by itself
            if len(known) < len(told) or (is_own and any(map(batch.is_loss, told))):
                return unit, plans
            plans += known
        return last, plans

    def _plan(self, outcome: PairOutcome) -> Plan | None:
        """Plan of an outcome, or None if it brings something new."""
        if outcome.pair is not None and self._is_new(outcome.pair):
            return None
        return self.placement.known(outcome)

    def _is_new(self, pair: PairedTrace) -> bool:
        """Whether the weights or the kernels were not seen before."""
        if pair.weights_version and pair.weights_version not in self.versions:
            return True
        return (pair.inference, pair.train) not in self._recent_kernels

    def _fold_run(self, batch: Batch, units: range, plans: Sequence[Plan]) -> int:
        """Fold units together up to the first that changes a row's state; return how many were."""
        first, last = batch.told[units.start], batch.told[units.stop]
        runs = batch.runs(batch.tellers[first:last], plans, self.placement)
        folded = fold_run(self.bank, runs, units.start, units.stop)
        if folded < len(units):
            return self._fold_again(batch, units[:folded], plans)
        batch.count(units, self.reasons)
        for run in runs:
            for name, outcomes in run.by_name():
                self._note(name, batch, outcomes)
        return folded

    def _fold_again(self, batch: Batch, units: range, plans: Sequence[Plan]) -> int:
        """Fold the units before the one that changes something."""
        told = batch.told[units.stop] - batch.told[units.start]
        return self._fold_run(batch, units, plans[:told])

    def _note(self, name: str, batch: Batch, outcomes: NDArray[np.int64]) -> None:
        """Remember what some outcomes of a batch tell one slice instance."""
        places = batch.places[outcomes]
        is_loss = places == len(batch.pairs)
        for i in outcomes[is_loss].tolist():
            self._state(name).note_loss(batch.outcomes[i])
        if not is_loss.all():
            self._state(name).note(batch, places[~is_loss])
            if self.sampling.at_least is not None:
                self.sampling.note(name, (batch.pairs[i] for i in places[~is_loss].tolist()))

    def _fold_unit(self, batch: Batch, unit: int) -> Iterator[Crossing]:
        """Fold one sequence, or the mean of one prompt group, into the rows it touches."""
        batch.count(range(unit, unit + 1), self.reasons)
        told = batch.tellers_of(unit)
        is_loss = batch.places[told] == len(batch.pairs)
        for i in told[is_loss].tolist():
            yield from self._fold_loss(batch.outcomes[i])
        plans: list[Plan] = []
        for i in told[~is_loss].tolist():
            plan = yield from self._met(batch.outcomes[i])
            for _, name in plan.instances:
                self._note(name, batch, np.array([i]))
            plans.append(plan)
        runs = batch.runs(told[~is_loss], plans, self.placement)
        if runs:
            event_ns = int(runs[0].event_ns[0])
            for changed in fold_alone(self.bank, runs):
                yield from self._crossings(changed, event_ns)

    def _met(self, outcome: PairOutcome) -> Generator[Crossing, None, Plan]:
        """Note what is new about a pair; return its plan."""
        if outcome.pair is not None:
            yield from self._note_weights(outcome.pair)
            yield from self._note_kernels(outcome.pair)
        return self.placement.place(outcome, self._rows_of)

    def _fold_loss(self, outcome: PairOutcome) -> Iterator[Crossing]:
        """A sequence without a partner: it counts against pairing, and nowhere else."""
        for declared, name in self.book.instances(outcome):
            self._state(name).note_loss(outcome)
            for clause in self._clauses_of(declared):
                if clause.statistic == "pairing_rate":
                    index = self.row(clause, declared, name)
                    weight = self.sampling.weight_of_loss(outcome, name)
                    away = (1.0 - weight) * self.rows[index].limit  # from zero towards the limit
                    yield from self.fold_value(index, away, outcome.event_ns)

    def fold_value(self, index: int, value: float, event_ns: int) -> Iterator[Crossing]:
        """Fold one value, in the statistic's unit, into one row."""
        row = self.rows[index]
        y = row.scale.down(np.array([value]))
        changed = self.bank.multiply(np.array([index]), y, *multipliers(row, y), event_ns)
        yield from self._crossings(changed, event_ns)

    def _rows_of(self, declared: Slice, name: str) -> NDArray[np.int64]:
        """Rows of an instance of a declared slice."""
        return np.array([self.row(c, declared, name) for c in self._clauses_of(declared)], dtype=np.int64)

    def _crossings(self, changed: Crossings, event_ns: int) -> Iterator[Crossing]:
        for change, rows in ((Change.VIOLATED, changed.violated), (Change.RECOVERED, changed.recovered)):
            yield from (self._crossing(change, int(index), event_ns) for index in rows)

    def _crossing(self, change: Change, index: int, event_ns: int) -> Crossing:
        row = self.rows[index]
        names = row.name, row.declared.name
        return Crossing(change, row.clause, *names, index, event_ns, self.weights_version)

    def _state(self, name: str) -> SliceState:
        if name not in self.states:  # a value of a `by` slice is itself a place and has none
            self.states[name] = SliceState(Recent(), whereabouts=Whereabouts(is_followed=name in self._plain))
        return self.states[name]

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
        if (pair.inference, pair.train) in self._recent_kernels:
            return
        self._recent_kernels = [(pair.inference, pair.train), *self._recent_kernels[: RECENT_KERNELS - 1]]
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
        self.sampling.restart()
        for index in range(len(self.rows)):
            self.bank.restart_certificate(index)

    def _identity_crossings(self, event_ns: int) -> Iterator[Crossing]:
        for clause in self.clauses:
            if clause.statistic == "kernel_identity":
                name = next((s.name for s in self.contract.slices if not s.by), "all")
                yield Crossing(Change.VIOLATED, clause, name, name, -1, event_ns, self.weights_version)

    def _clauses_of(self, declared: Slice) -> tuple[Clause, ...]:
        """Clauses judged pair by pair in a slice."""
        applies = (c for c in self.clauses if not c.slices or declared.name in c.slices)
        return tuple(c for c in applies if c.statistic not in STATES and not is_windowed(c))

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
