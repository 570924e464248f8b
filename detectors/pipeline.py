"""The detector as one picklable object: records and time in, escalations out.

decode → pair → evaluate → escalate, with deduplication by (agent, epoch, seq) in front.  It does
no I/O; `paritas up`, the test of a contract and a Flink operator drive the same object.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from paritas.contracts.model import Contract, Stage
from paritas.detectors.escalate import Escalator, Report
from paritas.detectors.evaluate import Crossing, Evaluator
from paritas.detectors.explain import explain_slice
from paritas.detectors.pairing import Pairer
from paritas.detectors.pairs import PairOutcome
from paritas.detectors.verdicts import verdict_of, verdicts
from paritas.records import Escalation, State, TokenTrace, Verdict

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
        role = trace.kernel.role.value
        self.traces[role] = self.traces.get(role, 0) + 1
        for status, n in trace.counts().items():
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
    """

    def __init__(
        self, contract: Contract, *, stage: Stage = Stage.FULL, recover: bool = True, deployment: str = ""
    ) -> None:
        self.contract = contract
        self.pairer = Pairer(contract.compare)
        self.evaluator = Evaluator(contract, stage=stage, recover=recover)
        self.escalator = Escalator(contract, deployment=deployment)
        self.account = TraceAccount()
        self.repeated_records = 0
        self._records: OrderedDict[tuple[str, ...], None] = OrderedDict()
        self._last_seen_ns: dict[str, int] = {}

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

    def process(self, traces: Iterable[TokenTrace], now_ns: int) -> Iterator[Escalation]:
        """Take decoded traces in order and yield the escalations they cause."""
        outcomes: list[PairOutcome] = []
        for trace in traces:
            self.account.add(trace)
            self._last_seen_ns[trace.kernel.role.value] = now_ns
            outcomes.extend(self.pairer.process(trace, now_ns))
        yield from self._escalate(self.evaluator.observe(outcomes))

    def tick(self, now_ns: int) -> Iterator[Escalation]:
        """Nothing arrived for a while: close cohorts, test silence, let dwell times end."""
        yield from self._escalate(self.evaluator.observe(list(self.pairer.tick(now_ns))))
        yield from self._escalate(self._silences(now_ns))
        yield from self.escalator.advance(now_ns)

    def flush(self, now_ns: int) -> Iterator[Escalation]:
        """End of input: what is still alone is unmatched."""
        yield from self._escalate(self.evaluator.observe(list(self.pairer.flush(now_ns))))

    def verdicts(self) -> tuple[Verdict, ...]:
        """One verdict for every clause and slice, as of now."""
        return verdicts(self.evaluator)

    def _escalate(self, crossings: Iterator[Crossing]) -> Iterator[Escalation]:
        for crossing in crossings:
            yield from self.escalator.cross(crossing, lambda c=crossing: self._report(c))  # type: ignore[misc]  # mypy cannot type a lambda's default

    def _report(self, crossing: Crossing) -> Report:
        verdict = verdict_of(self.evaluator, crossing.clause, crossing.slice)
        state = self.evaluator.states.get(crossing.slice)
        worst = tuple(trace_id for _, trace_id in state.worst) if state else ()
        violated = [v for v in self.verdicts() if v.slice == crossing.slice and v.state is State.VIOLATED]
        return Report(verdict, explain_slice(self.evaluator, violated or [verdict], crossing.slice), worst)

    def _silences(self, now_ns: int) -> Iterator[Crossing]:
        """Feed `silence` clauses the longest time any kernel has been silent."""
        if not self._last_seen_ns:
            return
        silent_s = max(now_ns - seen for seen in self._last_seen_ns.values()) / NS
        plain = next((s for s in self.contract.slices if not s.by and s.match is None), None)
        for clause in self.evaluator.clauses:
            if clause.statistic == "silence" and plain is not None:
                index = self.evaluator.row(clause, plain, plain.name)
                yield from self.evaluator.fold_value(index, silent_s, now_ns)
