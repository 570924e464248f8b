"""The detector as one picklable object: records and time in, escalations out.

decode → pair → evaluate → escalate, with deduplication by (agent, epoch, seq) in front.  It does
no I/O; `paritas up`, the test of a contract and a Flink operator drive the same object.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from paritas.contracts.model import Clause, Contract, Stage
from paritas.detectors.agents import AGENT_SILENCE
from paritas.detectors.escalate import Escalator, Report
from paritas.detectors.evaluate import Change, Crossing, Evaluator
from paritas.detectors.explain import explain_slice
from paritas.detectors.gaps import GapBook
from paritas.detectors.idle import IDLE_S, IdleTicks
from paritas.detectors.pairing import Pairer, PairerLimits
from paritas.detectors.pairs import PairOutcome
from paritas.detectors.refit import RefitGate, gated
from paritas.detectors.rosetta import RecentRosetta
from paritas.detectors.sequences import Taken
from paritas.detectors.starts import believed
from paritas.detectors.verdicts import verdict_of, verdicts
from paritas.records import Escalation, Role, State, TokenStatus, TokenTrace, Verdict
from paritas.wire import Gap, Roster

__all__ = ["Detector", "TraceAccount"]

NS = 1_000_000_000
REMEMBERED_RECORDS = (
    500_000  # (agent, epoch, seq) kept for deduplication: a restart resends seconds, not hours
)


@dataclass(slots=True)
class TraceAccount:
    """What went in, by kind; shown and exported.

    Attributes
    ----------
    tokens : dict
        (role, status) → tokens.
    traces : dict
        role → traces.
    """

    tokens: dict[tuple[str, str], int] = field(default_factory=dict)
    traces: dict[str, int] = field(default_factory=dict)

    def add(self, trace: TokenTrace) -> None:
        """Count one trace and its tokens by status."""
        self.count(trace.kernel.role, trace.counts())

    def count(self, kernel: Role, counts: Mapping[TokenStatus, int]) -> None:
        """Count one trace of a kernel by its tokens' status."""
        role = kernel.value
        self.traces[role] = self.traces.get(role, 0) + 1
        for status, n in counts.items():
            key = (role, status.name.lower())
            self.tokens[key] = self.tokens.get(key, 0) + n


class Detector:
    """All pure stages of one contract.

    Parameters
    ----------
    contract : Contract
    stage : Stage
        Clauses of other stages are left out.
    recover : bool
        Live streams may recover; a recording is judged as a whole.
    deployment : str
        Part of every escalation id.
    idle_s : float, seconds
        After so long without a trace in the log the newest cohort is over.
    """

    def __init__(
        self,
        contract: Contract,
        *,
        stage: Stage = Stage.FULL,
        recover: bool = True,
        deployment: str = "",
        idle_s: float = IDLE_S,
    ) -> None:
        self.contract = contract
        self.pairer = Pairer(contract.compare)
        self.evaluator = Evaluator(contract, stage=stage, recover=recover)
        self.escalator = Escalator(contract, deployment=deployment)
        self.refit = None if contract.refit is None else RefitGate(contract, contract.refit)
        self.account = TraceAccount()
        self.rosetta = RecentRosetta()
        self.gaps = GapBook(round((contract.compare.pair_within_s + PairerLimits().cohort_s) * NS))
        self._idle = IdleTicks(max(round(idle_s * NS), 1))
        self.repeated_records = 0
        self._records: OrderedDict[tuple[str, ...], None] = OrderedDict()
        self._last_seen_ns: dict[str, int] = {}
        self._first_seen_ns = 0
        self._without_data: set[tuple[str, str]] = set()

    def is_repeat(self, headers: Mapping[str, str]) -> bool:
        """Whether a record with these headers was already taken; remembers it if not.

        Records without the three headers cannot be recognised and are never repeats; their
        traces are still deduplicated by the pairing stage.
        """
        names = ("paritas-agent", "paritas-epoch", "paritas-seq")
        if any(name not in headers for name in names):
            return False
        key = tuple(headers[name] for name in names)
        if key in self._records:
            self.repeated_records += 1
            return True
        self._records[key] = None
        while len(self._records) > REMEMBERED_RECORDS:
            self._records.popitem(last=False)
        return False

    def process(
        self,
        traces: Iterable[TokenTrace],
        now_ns: int,
        *,
        gaps: Sequence[Gap] = (),
        agent: str = "",
        rosters: Sequence[Roster] = (),
    ) -> Iterator[Escalation]:
        """Take what a record held, in order, and yield the escalations it causes.

        Intervals of silence in the log before it are lived through first, so that judging a log
        again says what watching it said.  `agent` is who wrote the record, empty for nobody; `rosters` are whom it expects.
        """
        arrived = list(traces)
        yield from self._hear(agent, now_ns, rosters, is_news=bool(arrived or gaps))
        if arrived or gaps:
            yield from self.observe((self._matched(trace, now_ns) for trace in arrived), now_ns)
            yield from self.miss(gaps, now_ns)

    def follow(
        self,
        takens: Iterable[Taken],
        now_ns: int,
        *,
        gaps: Sequence[Gap] = (),
        agent: str = "",
        rosters: Sequence[Roster] = (),
    ) -> Iterator[Escalation]:
        """Take what matchers elsewhere made of the traces of one record; all else is as in `process`."""
        told = list(takens)
        yield from self._hear(agent, now_ns, rosters, is_news=bool(told or gaps))
        yield from self.observe((self._followed(taken, now_ns) for taken in told), now_ns)
        yield from self.miss(gaps, now_ns)

    def _hear(
        self, agent: str, now_ns: int, rosters: Sequence[Roster], *, is_news: bool
    ) -> Iterator[Escalation]:
        """A record came: time passes, unless it holds nothing and no clause asks who is there."""
        if is_news or self.evaluator.agents.clauses:
            yield from self.elapse(now_ns)
            yield from self.escalator.advance(now_ns)  # dwell times end also where traffic never pauses
            yield from self._escalate(self.evaluator.agents.hear(agent, now_ns, rosters))

    def miss(self, gaps: Sequence[Gap], now_ns: int) -> Iterator[Escalation]:
        """Learn of lost records: from now on nothing passes, until the log is whole again."""
        if self.gaps.note(gaps, now_ns):
            self.evaluator.has_gap = True
            yield from self._escalate(self._without(now_ns))

    def _matched(self, trace: TokenTrace, now_ns: int) -> Taken:
        self.pairer.cohorts.end(self.pairer.matcher.expire(now_ns))
        return self.pairer.matcher.take(believed(trace, now_ns), now_ns)

    def _followed(self, taken: Taken, now_ns: int) -> Taken:
        self.pairer.cohorts.end(self.pairer.matcher.expire(now_ns))
        return self.pairer.matcher.follow(taken, now_ns)

    def observe(self, takens: Iterable[Taken], now_ns: int) -> Iterator[Escalation]:
        """Take what the matching stage made of traces that came at one time, in the order of the log."""
        outcomes: list[PairOutcome] = []
        for taken in takens:
            self.account.count(taken.role, taken.counts)
            self._first_seen_ns = self._first_seen_ns or now_ns
            self._last_seen_ns[taken.role.value] = now_ns
            self._idle.start(now_ns)
            outcomes.extend(self.pairer.cohorts.take(taken, now_ns))
        yield from self._escalate(self._evaluate(outcomes))

    def _evaluate(self, outcomes: Sequence[PairOutcome]) -> Iterator[Crossing]:
        """Judge outcomes in order; what peers would print of them is summed beside it."""
        for outcome in outcomes:
            if outcome.pair is not None:
                self.rosetta.add(outcome.pair)
        if self.refit is None:
            yield from self.evaluator.observe(outcomes)
        else:
            yield from gated(self.refit, outcomes, self.evaluator.observe)

    def elapse(self, now_ns: int) -> Iterator[Escalation]:
        """Let the log's time pass to `now_ns`: a tick for each interval of silence that ended by then."""
        while (due_ns := self._idle.due(now_ns)) is not None:
            yield from self.tick(due_ns)
        yield from self._escalate(self.evaluator.agents.elapse(now_ns))
        self._mend(now_ns)

    def _mend(self, now_ns: int) -> None:
        """Evidence from before a gap and from after it is not joined."""
        if self.gaps.close(now_ns):
            self.evaluator.has_gap = False
            self.evaluator.restart_certificates()

    def tick(self, now_ns: int) -> Iterator[Escalation]:
        """Nothing arrived for a while: close cohorts, test silence, let dwell times end."""
        yield from self._escalate(self.evaluator.agents.elapse(now_ns))
        self._mend(now_ns)
        yield from self._escalate(self._evaluate(list(self.pairer.tick(now_ns))))
        yield from self._escalate(self.evaluator.close_windows(is_end=False))
        yield from self._escalate(self._silences(now_ns))
        yield from self._escalate(self._without(now_ns))
        yield from self.escalator.advance(now_ns)

    def flush(self, now_ns: int) -> Iterator[Escalation]:
        """End of input: what is still alone is unmatched."""
        yield from self._escalate(self._evaluate(list(self.pairer.flush(now_ns))))
        yield from self._escalate(self.evaluator.close_windows(is_end=True))

    def renewals(self, now_ns: int) -> Iterator[Escalation]:
        """Tell what fires or recovers again, so that actors know it lasts; nothing changes."""
        yield from self.escalator.renewals(now_ns)

    def verdicts(self) -> tuple[Verdict, ...]:
        """One verdict for every clause and slice, as of now."""
        return verdicts(self.evaluator)

    def _escalate(self, crossings: Iterator[Crossing]) -> Iterator[Escalation]:
        for crossing in crossings:
            yield from self.escalator.cross(crossing, lambda c=crossing: self._report(c))  # type: ignore[misc]  # mypy cannot type a lambda's default

    def _report(self, crossing: Crossing) -> Report:
        if crossing.refit and self.refit is not None:
            return self.refit.report(crossing)
        verdict = verdict_of(self.evaluator, crossing.clause, crossing.slice)
        if crossing.clause.statistic == AGENT_SILENCE:
            return Report(verdict, self.evaluator.agents.findings(verdict), ())
        state = self.evaluator.states.get(crossing.slice)
        worst = tuple(trace_id for _, trace_id in state.worst) if state else ()
        violated = [v for v in self.verdicts() if v.slice == crossing.slice and v.state is State.VIOLATED]
        return Report(verdict, explain_slice(self.evaluator, violated or [verdict], crossing.slice), worst)

    def _silences(self, now_ns: int) -> Iterator[Crossing]:
        """Judge `silence` clauses by how long the quieter kernel has been silent, as a state of now."""
        silent_s = max((now_ns - seen for seen in self._last_seen_ns.values()), default=0) / NS
        for clause, name, index in self._plain_rows():
            if clause.statistic != "silence":
                continue
            before = bool(self.evaluator.bank.violated[index])
            self.evaluator.bank.restart_row(index)
            after = any(
                c.change is Change.VIOLATED for c in self.evaluator.fold_value(index, silent_s, now_ns)
            )
            if after != before:
                change = Change.VIOLATED if after else Change.RECOVERED
                yield Crossing(change, clause, name, name, index, now_ns, self.evaluator.weights_version)

    def _without(self, now_ns: int) -> Iterator[Crossing]:
        """Say of each clause in a plain slice that it has no data: a gap, or none `pair_within` after the first trace."""
        waited_ns = round(self.contract.compare.pair_within_s * NS)
        is_late = now_ns - self._first_seen_ns >= waited_ns
        for clause, name, index in self._plain_rows():
            empty = self.gaps.is_open or (is_late and not self.evaluator.bank.units[index])
            known = (clause.id, name) in self._without_data
            if empty != known:
                change = Change.VIOLATED if empty else Change.RECOVERED
                told = Crossing(
                    change, clause, name, name, index, now_ns, self.evaluator.weights_version, no_data=True
                )
                (self._without_data.add if empty else self._without_data.discard)((clause.id, name))
                yield told

    def _plain_rows(self) -> Iterator[tuple[Clause, str, int]]:
        """Every clause that is judged by values, in every slice without `by`; nothing before the first trace."""
        if not self._last_seen_ns:
            return
        for declared in self.contract.slices:
            for clause in self.evaluator.clauses:
                applies = not clause.slices or declared.name in clause.slices
                if applies and not declared.by and clause.statistic not in ("kernel_identity", AGENT_SILENCE):
                    yield clause, declared.name, self.evaluator.row(clause, declared, declared.name)
