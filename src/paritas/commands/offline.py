"""Judge a recording offline: readers, pairing, evidence, verdicts, causes, peer numbers.

Composition of collectors and detectors; the stages themselves live in those rooms.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import IntEnum
from itertools import chain
from pathlib import Path

from paritas.collectors.accounting import Accounting
from paritas.collectors.dumps import Problem, ReadOptions, read_dump, read_recorded
from paritas.collectors.dumps.sides import check_sides
from paritas.commands.jsonable import finite
from paritas.commands.observed import observed_of
from paritas.commands.offline_refit import RecordingGate, RefitResult
from paritas.contracts.attempts import NO_GATE, GateLevel, level_of
from paritas.contracts.floors import floor_notes
from paritas.contracts.model import Contract, Gate, Stage
from paritas.contracts.plausible import Implausible, implausible
from paritas.detectors.cap import Recommendation, recommend_cap
from paritas.detectors.evaluate import Change, Evaluator
from paritas.detectors.explain import explain
from paritas.detectors.ledger import Ledger, ledgers
from paritas.detectors.pairing import Pairer
from paritas.detectors.pairs import PairedTrace, PairOutcome
from paritas.detectors.rosetta import rosetta
from paritas.detectors.sampling import is_sample
from paritas.detectors.verdicts import verdicts
from paritas.errors import UsageError
from paritas.records import Finding, PairReason, Reason, Role, State, TokenTrace, Verdict
from paritas.tokens import TokenHasher

__all__ = [
    "Exit",
    "Judgement",
    "dumped",
    "gate_of",
    "judge",
    "judge_dump",
    "judge_recording",
    "read_outcomes",
    "recorded",
]

# Tokens of a recording are hashed to be compared within this process and nowhere else.
LOCAL_KEY = b"paritas-check-local"


class Exit(IntEnum):
    """Exit codes of `paritas check`."""

    CONFORMING = 0
    VIOLATED = 1
    UNDECIDED = 3
    USAGE = 64


@dataclass(frozen=True, slots=True)
class Judgement:
    """Everything a recording says.

    Attributes
    ----------
    verdicts : tuple of Verdict
        One a clause and slice.
    diagnosis : tuple of Finding
        Causes of what is violated, the plain slices first.
    accounting : Accounting
        Tokens by role and status, sequences, problems by reason.
    pairs : mapping of str to int
        Sequences by how pairing ended.
    rosetta : mapping of str to float
        Peer metric name → value.
    problems : tuple of Problem
        The first problems met, with their places.
    reached : mapping of (clause, slice) to int
        After how many sequences a clause was first violated in a slice.
    assumptions : mapping of (clause, slice) to Ledger
        What each certificate of reward drift or gradient bias rests on.
    implausible : tuple of Implausible
        What is violated by more than rounding explains.
    cap : Recommendation or None
        Where a gradient bias is violated: the smallest truncation that certifies its limit.
    level : GateLevel
        What a pass in this judgement may spend.
    sampling : mapping of str to int
        Paired sequences by what they tell of the probability with which they were recorded.
    observed : mapping
        Which kernels and weights were seen, and when (`observed_of`); evidence is bound to it.
    refit : RefitResult or None
        What the refit gate says; None where the contract declares none.
    """

    contract: Contract
    verdicts: tuple[Verdict, ...]
    diagnosis: tuple[Finding, ...]
    accounting: Accounting
    pairs: Mapping[str, int]
    rosetta: Mapping[str, float]
    problems: tuple[Problem, ...]
    reached: Mapping[tuple[str, str], int]
    assumptions: Mapping[tuple[str, str], Ledger] = field(default_factory=dict)
    implausible: tuple[Implausible, ...] = ()
    cap: Recommendation | None = None
    level: GateLevel = NO_GATE
    sampling: Mapping[str, int] = field(default_factory=dict)
    observed: Mapping[str, object] = field(default_factory=dict)
    refit: RefitResult | None = None

    @property
    def exit_code(self) -> Exit:
        """1 if anything is violated, 0 if everything conforms, else 3: no data is never a pass.

        Weights that the refit gate rejected violate; weights that it still holds are undecided.
        """
        states = {v.state for v in self.verdicts} | (self.refit.states if self.refit else frozenset())
        if State.VIOLATED in states:
            return Exit.VIOLATED
        return Exit.CONFORMING if states == {State.CONFORMING} else Exit.UNDECIDED

    def as_dict(self) -> dict[str, object]:
        """JSON-ready values; what is not a number is null."""
        told = {
            "contract": {
                "name": self.contract.name,
                "version": self.contract.version,
                "digest": self.contract.digest,
            },
            "exit_code": int(self.exit_code),
            "gate": {**asdict(self.level), "pass_alpha": self.level.pass_alpha},
            "observed": dict(self.observed),
            "verdicts": [asdict(v) for v in self.verdicts],
            "diagnosis": [asdict(f) for f in self.diagnosis],
            "accounting": {
                **self.accounting.as_dict(),
                "pairs": dict(self.pairs),
                "sampling": dict(self.sampling),
            },
            "rosetta": dict(self.rosetta),
            "assumptions": [
                {"clause": clause, "slice": name, "entries": [asdict(e) for e in ledger.entries]}
                for (clause, name), ledger in self.assumptions.items()
            ],
            "implausible": [{**asdict(i), "says": str(i)} for i in self.implausible],
            "recommended_cap": None if self.cap is None else {**asdict(self.cap), "says": str(self.cap)},
            "refit": None if self.refit is None else self.refit.as_dict(),
            "floors": list(floor_notes(self.contract)),
            "problems": [asdict(p) for p in self.problems],
        }
        return {key: finite(value) for key, value in told.items()}


SHOWN_PROBLEMS = 20


def judge(
    contract: Contract,
    items: Iterable[TokenTrace | Problem],
    *,
    attempt: int | None = None,
    metrics: Path | None = None,
    stage: Stage = Stage.OFFLINE_CI,
) -> Judgement:
    """Judge traces, in any order, at a stage and by its gate, where the contract declares one.

    `attempt` is the number of this try of one candidate, from 1; `metrics` a file of exponential histograms by
    which runtime clauses are judged (docs/statistics.md).
    """
    reader = _Reader(contract)
    outcomes = list(reader.outcomes(items))
    evaluator = Evaluator(contract, stage=stage, recover=False)
    _observe_metrics(evaluator, metrics)
    refit = RecordingGate.of(contract)
    reached = _observe(evaluator, refit, outcomes)
    gate = gate_of(contract, stage)
    level = level_of(contract, gate, attempt)
    found = _gated(evaluator, gate, level)
    pairs = [o.pair for o in outcomes if o.pair is not None]
    return Judgement(
        contract,
        found,
        explain(evaluator, found),
        reader.accounting,
        {reason.value: evaluator.reasons.get(reason, 0) for reason in PairReason},
        rosetta(pairs),
        tuple(reader.problems),
        reached,
        ledgers(evaluator, found),
        implausible(contract, found, observed=_observed(pairs)),
        _cap(contract, found, refit.counted),
        level,
        evaluator.sampling.counts(),
        observed_of(pairs),
        refit.result(),
    )


def _observed(pairs: Sequence[PairedTrace]) -> dict[Role, Mapping[str, object]]:
    """What the kernels of the last pair reported."""
    return {kernel.role: kernel.fields() for pair in pairs[-1:] for kernel in (pair.inference, pair.train)}


def _cap(
    contract: Contract, found: Sequence[Verdict], outcomes: Sequence[PairOutcome]
) -> Recommendation | None:
    """Recommend a cap where a gradient bias is violated, for the tightest of the violated limits.

    None for a sample: its mean is not that of all sequences, and caps are certified by plain means.
    """
    limits = [v.limit for v in found if v.statistic == "gradient_bias" and v.state is State.VIOLATED]
    if not limits or is_sample(outcomes):
        return None
    return recommend_cap(outcomes, min(limits), by_group=contract.compare.unit == "group")


def read_outcomes(contract: Contract, items: Iterable[TokenTrace | Problem]) -> list[PairOutcome]:
    """Pair traces, in any order, and return how each sequence ended."""
    return list(_Reader(contract).outcomes(items))


def gate_of(contract: Contract, stage: Stage = Stage.OFFLINE_CI) -> Gate:
    """Return the declared gate of a stage, else one with the defaults."""
    declared = (gate for gate in contract.promotion.gates if gate.stage is stage)
    return next(declared, Gate(stage))


def _gated(evaluator: Evaluator, gate: Gate, level: GateLevel) -> tuple[Verdict, ...]:
    """Return the verdicts at the gate's level; nothing passes before the sequences it asks for."""
    found = verdicts(evaluator, pass_alpha=level.pass_alpha)
    if evaluator.reasons.get(PairReason.PAIRED, 0) >= gate.at_least_sequences:
        return found
    return tuple(_early(v, gate) if v.state is State.CONFORMING else v for v in found)


def _early(verdict: Verdict, gate: Gate) -> Verdict:
    return replace(
        verdict,
        state=State.UNDECIDED,
        reason=Reason.NEEDS_MORE_UNITS,
        needed_units=max(verdict.needed_units, gate.at_least_sequences),
    )


def _observe(
    evaluator: Evaluator, refit: RecordingGate, outcomes: Sequence[PairOutcome]
) -> dict[tuple[str, str], int]:
    """Return after how many sequences that count each clause was first violated in each slice."""
    reached: dict[tuple[str, str], int] = {}
    counted = refit.observe(outcomes, evaluator.observe)
    for crossing in chain(counted, evaluator.close_windows(is_end=True)):
        if crossing.change is Change.VIOLATED:
            reached.setdefault((crossing.clause.id, crossing.slice), sum(evaluator.reasons.values()))
    return reached


def _observe_metrics(evaluator: Evaluator, metrics: Path | None) -> None:
    """Judge runtime clauses by the histograms of a file, in the order of their ends."""
    if metrics is None:
        return
    from paritas.commands.otlp_metrics import METRICS, MetricsReader  # protobuf, which few judgements need

    reader = MetricsReader(metrics)
    points = sorted(reader.points(), key=lambda point: point.event_ns)
    if not points:
        passed = ", ".join(f"{n} {why}" for why, n in reader.passed.items()) or "no data points"
        hint = f"known are exponential histograms called {', '.join(METRICS)}"
        raise UsageError(f"{metrics}: no histogram of latencies ({passed})", hint=hint)
    for _ in evaluator.observe_points(points, is_end=True):
        continue


class _Reader:
    """Pairs what a reader yields and keeps count."""

    def __init__(self, contract: Contract) -> None:
        self._pairer = Pairer(contract.compare)
        self.accounting = Accounting()
        self.problems: list[Problem] = []

    def outcomes(self, items: Iterable[TokenTrace | Problem]) -> Iterator[PairOutcome]:
        """Yield how each sequence ended; time stands still, so nothing expires."""
        for item in items:
            self.accounting.add(item)
            if isinstance(item, TokenTrace):
                yield from self._pairer.process(item, 0)
            elif len(self.problems) < SHOWN_PROBLEMS:
                self.problems.append(item)
        yield from self._pairer.flush(0)


def judge_recording(contract: Contract, serve: Path, train: Path, *, attempt: int | None = None) -> Judgement:
    """Judge a recorded pair of files.

    Raises
    ------
    UsageError
        If a file is not there, is no file, or is surely not what its side asks for (`check_sides`).
    """
    return judge(contract, recorded(serve, train, contract.compare.against), attempt=attempt)


def recorded(serve: Path, train: Path, against: Role = Role.INFERENCE) -> Iterator[TokenTrace | Problem]:
    """Read a recorded pair of files, each in the role of its side; raises as `judge_recording`."""
    check_sides(serve, train)
    options = _options()
    return chain(read_recorded(serve, against, options), read_recorded(train, Role.TRAIN, options))


def judge_dump(contract: Contract, path: Path, *, attempt: int | None = None) -> Judgement:
    """Judge a dump that holds both kernels; the format is recognised from its content.

    Raises
    ------
    UsageError
        If nothing is there or nothing in it is known.
    """
    return judge(contract, dumped(path), attempt=attempt)


def dumped(path: Path) -> Iterator[TokenTrace | Problem]:
    """Read a dump that holds both kernels; raises as `judge_dump`."""
    return read_dump(path, _options())


def _options() -> ReadOptions:
    return ReadOptions(TokenHasher(LOCAL_KEY))
