"""The refit gate: the first tokens of each weights version on each replica are tested before they count.

A failed weight sync shows at once and in full, while the monitors of a slice must tell it from all the
sequences of the old weights.  So each (weights version, replica) gets an e-process of its own, from its
first sequence, against the contract's declared limits on `tv` and `mean_ratio`.  Its sequences
are `held`: they go into no verdict until the version is accepted, and none of a rejected one ever does.

The tested sequences do not count afterwards either: what decides whether later ones count must not be
among what is counted, or a certificate would rest on chosen values (docs/repair.md).

Test number k has ``alpha / (k (k + 1))``, so that the probability of any false rejection, ever, is at most alpha.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import isnan
from typing import TypeVar

from paritas.contracts.model import Clause, Contract, Refit, Stage
from paritas.contracts.refit import is_refit_clause
from paritas.detectors.crossings import Change, Crossing
from paritas.detectors.diagnosis import diagnose
from paritas.detectors.escalate import Report
from paritas.detectors.explain import scene_of
from paritas.detectors.measures import Columns
from paritas.detectors.pairs import PairedTrace, PairOutcome
from paritas.detectors.refit_process import RefitTest
from paritas.detectors.rows import clauses_at
from paritas.detectors.sampling import weight_of
from paritas.detectors.slices import name_value
from paritas.detectors.units import Batch

__all__ = ["RefitGate", "RefitReason", "RefitState", "RefitStep", "RefitVerdict", "gated"]

REPLICA = "replica"
TOGETHER = 128  # outcomes measured at once; changes no result
REMEMBERED = 1024  # (version, replica) whose verdict is remembered; an older one is tested again
Key = tuple[str, str, str]  # run, weights version, replica
Place = tuple[str, str]  # run, replica
K = TypeVar("K")
V = TypeVar("V")


class RefitState(StrEnum):
    """What becomes of the sequences of a weights version on a replica."""

    ACCEPTED = "accepted"
    HELD = "held"
    REJECTED = "rejected"


class RefitReason(StrEnum):
    """Why."""

    CERTIFIED = "certified"  # every limit is certified to be kept
    NOT_REFUTED = "not_refuted"  # the first tokens refute no limit; the monitors go on
    NEEDS_MORE_TOKENS = "needs_more_tokens"
    REFUTED = "refuted"  # a limit is refuted


@dataclass(frozen=True, slots=True)
class RefitVerdict:
    """What the gate says of one weights version on one replica.

    Attributes
    ----------
    clause : str
        The clause that was refuted; empty if none.
    tokens, sequences : int
        What was tested so far.
    """

    run_id: str
    weights_version: str
    replica: str
    state: RefitState = RefitState.HELD
    reason: RefitReason = RefitReason.NEEDS_MORE_TOKENS
    clause: str = ""
    tokens: int = 0
    sequences: int = 0


@dataclass(frozen=True, slots=True)
class RefitStep:
    """What one outcome did: whether it may be judged, and which rejections began or ended."""

    counts: bool
    crossings: tuple[Crossing, ...] = ()


@dataclass(slots=True)
class _Rejection:
    """A rejection whose incident is open."""

    clause: Clause
    slice: str
    declared: str
    version: str
    place: Place
    last_ns: int  # start of the newest sequence of that version there

    def crossing(self, change: Change, event_ns: int) -> Crossing:
        names = self.slice, self.declared
        return Crossing(change, self.clause, *names, -1, event_ns, self.version, refit=True)


class RefitGate:
    """Pure stage between pairing and evaluation.

    Parameters
    ----------
    contract : Contract
    refit : Refit
        Its section `refit`.

    Attributes
    ----------
    sequences : dict
        Paired sequences by what became of them: `accepted`, `held`, `rejected`.  Losses on a replica
        that is held are `held_losses`: without its pairs they would look like bad pairing.
    versions : dict
        Finished tests by how they ended: `accepted`, `rejected`.
    reasons : dict
        The same by state and reason.
    started : int
        Tests begun; one of a version that is forgotten and comes again is begun anew.
    """

    def __init__(self, contract: Contract, refit: Refit) -> None:
        self._refit = refit
        self._by_group = contract.compare.unit == "group"
        whole = [part for part in contract.slices if part.match is None]
        self._plain = next((part.name for part in whole if not part.by), whole[0].name)
        self._by_replica = next((part for part in whole if part.by == (REPLICA,)), None)
        clauses = [c for c in clauses_at(contract, Stage.FULL) if is_refit_clause(contract, c)]
        self._columns = replace(
            Columns.of([(clause, whole[0]) for clause in clauses], {}),
            sampled_at_least=contract.compare.sampled_at_least,
        )
        self.sequences: dict[str, int] = {}
        self.versions: dict[str, int] = {}
        self.reasons: dict[tuple[str, str], int] = {}
        self._verdicts: OrderedDict[Key, RefitVerdict] = OrderedDict()
        self._tests: dict[Key, RefitTest] = {}
        self._newest: OrderedDict[Place, Key] = OrderedDict()
        self._replicas: dict[str, None] = {}
        self._open: dict[tuple[str, str], _Rejection] = {}  # by clause and slice
        self._reports: dict[tuple[str, str], Report] = {}
        self.started = 0

    @property
    def held(self) -> int:
        """Versions and replicas under test now."""
        return len(self._tests)

    def verdicts(self) -> tuple[RefitVerdict, ...]:
        """What is known of every remembered version and replica, in order of first sight."""
        return tuple(map(self._told, self._verdicts))

    def _told(self, key: Key) -> RefitVerdict:
        test = self._tests.get(key)
        verdict = self._verdicts[key]
        return verdict if test is None else replace(verdict, tokens=test.tokens, sequences=test.sequences)

    def report(self, crossing: Crossing) -> Report:
        """Return what an escalation says of a crossing of this gate."""
        return self._reports[crossing.clause.id, crossing.slice]

    def take(self, outcomes: Sequence[PairOutcome]) -> Iterator[RefitStep]:
        """Learn of the next outcomes, in the order in which they are judged; yield a step for each.

        How they are cut into calls changes nothing.
        """
        for start in range(0, len(outcomes), TOGETHER):
            some = outcomes[start : start + TOGETHER]
            new = [o for o in some if self._may_be_tested(o)]
            batch = Batch.of(new, self._columns, by_group=False) if new and not self._by_group else None
            place = {id(outcome): i for i, outcome in enumerate(new)}
            yield from (self._step(o, batch, place.get(id(o), -1)) for o in some)

    def _may_be_tested(self, outcome: PairOutcome) -> bool:
        known = None if outcome.pair is None else self._verdicts.get(_key(outcome.pair))
        return self._tells(outcome.pair) and (known is None or known.state is RefitState.HELD)

    def _tells(self, pair: PairedTrace | None) -> bool:
        """Whether a pair tells of the drift of a known version, and how much it counts is known."""
        least = self._columns.sampled_at_least
        if pair is None or not pair.weights_version or not pair.tokens:
            return False
        return least is None or not isnan(weight_of(pair.attributes, least))

    def _step(self, outcome: PairOutcome, batch: Batch | None, place: int) -> RefitStep:
        pair = outcome.pair
        if pair is None:
            return RefitStep(self._loss_counts(outcome))
        if not self._tells(pair):  # clauses about broken tokens, and who counts the unknown, need it
            return RefitStep(counts=True)
        key = _key(pair)
        ended = () if key in self._verdicts else self._start(key, pair)
        match self._verdicts[key].state:
            case RefitState.HELD:
                self._fold(key, outcome, batch, place)
                return RefitStep(False, (*ended, *self._test(key, outcome)))
            case RefitState.ACCEPTED:
                self._count(RefitState.ACCEPTED)
                return RefitStep(True, self._rolled_back(key, pair))
            case RefitState.REJECTED:
                self._count(RefitState.REJECTED)
                self._see_again(key, pair)
                return RefitStep(counts=False)

    def _loss_counts(self, outcome: PairOutcome) -> bool:
        key = self._newest.get((outcome.run_id, outcome.attributes.get(REPLICA, "")))
        held = key in self._tests
        if held:
            self.sequences["held_losses"] = self.sequences.get("held_losses", 0) + 1
        return not held

    def _count(self, state: RefitState) -> None:
        self.sequences[state.value] = self.sequences.get(state.value, 0) + 1

    def _start(self, key: Key, pair: PairedTrace) -> tuple[Crossing, ...]:
        """Begin a test; what was rejected of other weights there is superseded."""
        self.started += 1
        share = self._refit.alpha / (self.started * (self.started + 1))
        self._verdicts[key] = RefitVerdict(*key)
        self._tests[key] = RefitTest.of(self._columns, share / len(self._columns.rows))
        place = (key[0], key[2])
        self._newest[place] = key
        self._newest.move_to_end(place)
        for old in _beyond(self._verdicts):
            self._tests.pop(old, None)
        _beyond(self._newest)
        return self._end(place, Change.SUPERSEDED, pair.event_ns)

    def _end(self, place: Place, change: Change, event_ns: int) -> tuple[Crossing, ...]:
        """Close the rejections of a place."""
        found = [name for name, one in self._open.items() if one.place == place]
        return tuple(self._open.pop(name).crossing(change, event_ns) for name in found)

    def _fold(self, key: Key, outcome: PairOutcome, batch: Batch | None, place: int) -> None:
        """Fold one pair into its test; one that was forgotten since `take` began is measured again."""
        self._count(RefitState.HELD)
        if self._by_group:
            self._tests[key].take_member(outcome, self._columns)
        elif batch is None or place < 0:
            self._tests[key].take(Batch.of([outcome], self._columns, by_group=False), 0)
        else:
            self._tests[key].take(batch, place)

    def _test(self, key: Key, outcome: PairOutcome) -> tuple[Crossing, ...]:
        test = self._tests[key]
        if test.refuted() is None and test.tokens >= self._refit.tokens:
            test.close(self._columns)
            if test.refuted() is None:
                self._accept(key, test)
        column = test.refuted()
        return () if column is None else self._reject(key, test, column, outcome)

    def _accept(self, key: Key, test: RefitTest) -> None:
        reason = RefitReason.CERTIFIED if test.is_certified() else RefitReason.NOT_REFUTED
        self._decide(key, RefitState.ACCEPTED, reason)

    def _decide(self, key: Key, state: RefitState, reason: RefitReason, clause: str = "") -> None:
        self._verdicts[key] = replace(self._told(key), state=state, reason=reason, clause=clause)
        del self._tests[key]
        self.versions[state.value] = self.versions.get(state.value, 0) + 1
        told = (state.value, reason.value)
        self.reasons[told] = self.reasons.get(told, 0) + 1

    def _reject(self, key: Key, test: RefitTest, column: int, outcome: PairOutcome) -> tuple[Crossing, ...]:
        """Decide, and open an incident unless this version is already rejected in the same slice."""
        clause, (name, declared) = self._columns.rows[column].clause, self._slice_of(key[2])
        self._decide(key, RefitState.REJECTED, RefitReason.REFUTED, clause.id)
        before = self._open.get((clause.id, name))
        if before is not None and before.version == key[1]:
            return ()
        verdict = test.verdict(column, self._columns, name)
        found = diagnose(scene_of(test.state, [verdict]), name)
        worst = tuple(trace_id for _, trace_id in test.state.worst)
        self._reports[clause.id, name] = Report(verdict, found, worst)
        ended = () if before is None else (before.crossing(Change.SUPERSEDED, outcome.event_ns),)
        now = _Rejection(clause, name, declared, key[1], (key[0], key[2]), outcome.event_ns)
        self._open[clause.id, name] = now
        return (*ended, now.crossing(Change.VIOLATED, outcome.event_ns))

    def _slice_of(self, replica: str) -> tuple[str, str]:
        """Name of the slice instance of a replica, and of its declared slice; the first plain one without."""
        declared = self._by_replica
        if declared is None or not replica:
            return self._plain, self._plain
        if len(self._replicas) < declared.at_most:
            self._replicas[replica] = None
        value = name_value(REPLICA, replica) if replica in self._replicas else f"{declared.name}=other"
        return value, declared.name

    def _rolled_back(self, key: Key, pair: PairedTrace) -> tuple[Crossing, ...]:
        """An accepted version that starts sequences later than a rejected one took its place again."""
        place = (key[0], key[2])
        if any(one.place == place and one.last_ns >= pair.event_ns for one in self._open.values()):
            return ()
        return self._end(place, Change.RECOVERED, pair.event_ns)

    def _see_again(self, key: Key, pair: PairedTrace) -> None:
        for one in self._open.values():
            if one.place == (key[0], key[2]) and one.version == key[1]:
                one.last_ns = max(one.last_ns, pair.event_ns)


def gated(
    gate: RefitGate,
    outcomes: Sequence[PairOutcome],
    observe: Callable[[Sequence[PairOutcome]], Iterator[Crossing]],
) -> Iterator[Crossing]:
    """Judge by `observe` what counts; a rejection of weights stands exactly where it was decided."""
    counted: list[PairOutcome] = []
    for outcome, step in zip(outcomes, gate.take(outcomes), strict=True):
        if step.crossings:
            yield from observe(counted)
            yield from step.crossings
            counted = []
        if step.counts:
            counted.append(outcome)
    yield from observe(counted)


def _key(pair: PairedTrace) -> Key:
    return pair.run_id, pair.weights_version, pair.attributes.get(REPLICA, "")


def _beyond(table: "OrderedDict[K, V]") -> list[K]:
    """Take the oldest entries beyond `REMEMBERED` out of a table and return their keys."""
    return [table.popitem(last=False)[0] for _ in range(max(len(table) - REMEMBERED, 0))]
