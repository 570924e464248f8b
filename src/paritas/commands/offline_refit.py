"""The refit gate over a recording: what it tested, and which sequences count."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from paritas.contracts.model import Contract
from paritas.detectors.crossings import Change, Crossing
from paritas.detectors.pairs import PairOutcome
from paritas.detectors.refit import RefitGate, RefitState, RefitVerdict, gated
from paritas.records import Finding, State, Verdict

__all__ = ["RecordingGate", "RefitResult", "refit_line"]


@dataclass(frozen=True, slots=True)
class RefitResult:
    """What the refit gate says of a recording.

    Attributes
    ----------
    versions : tuple of RefitVerdict
        One a weights version and replica, in order of first sight.
    sequences : mapping of str to int
        Paired sequences by what became of them, and `held_losses`.
    rejections : tuple of Verdict
        The refuted limit of each rejection, in the slice of its replica.
    diagnosis : tuple of Finding
        Causes of the rejections.
    """

    versions: tuple[RefitVerdict, ...]
    sequences: Mapping[str, int]
    rejections: tuple[Verdict, ...]
    diagnosis: tuple[Finding, ...]

    @property
    def states(self) -> frozenset[State]:
        """What the versions add to the states of the verdicts: a rejected one is violated, a held one undecided."""
        told = {
            RefitState.REJECTED: State.VIOLATED,
            RefitState.HELD: State.UNDECIDED,
            RefitState.ACCEPTED: State.CONFORMING,
        }
        return frozenset(told[one.state] for one in self.versions)

    def as_dict(self) -> dict[str, object]:
        """JSON-ready values."""
        return {
            "versions": [asdict(one) for one in self.versions],
            "sequences": dict(self.sequences),
            "rejections": [asdict(one) for one in self.rejections],
            "diagnosis": [asdict(one) for one in self.diagnosis],
        }


@dataclass(slots=True)
class RecordingGate:
    """Holds back what does not count, and remembers what was rejected.

    Attributes
    ----------
    counted : list of PairOutcome
        What was judged, in order.
    """

    gate: RefitGate | None
    counted: list[PairOutcome] = field(default_factory=list)
    rejections: list[Verdict] = field(default_factory=list)
    diagnosis: list[Finding] = field(default_factory=list)

    @classmethod
    def of(cls, contract: Contract) -> "RecordingGate":
        """Return the gate a contract declares; without one everything counts."""
        return cls(None if contract.refit is None else RefitGate(contract, contract.refit))

    def observe(
        self,
        outcomes: Sequence[PairOutcome],
        judge: Callable[[Sequence[PairOutcome]], Iterator[Crossing]],
    ) -> Iterator[Crossing]:
        """Judge what counts and yield its crossings."""

        def counting(some: Sequence[PairOutcome]) -> Iterator[Crossing]:
            self.counted.extend(some)
            yield from judge(some)

        if self.gate is None:
            yield from counting(outcomes)
            return
        for crossing in gated(self.gate, outcomes, counting):
            if not crossing.refit:
                yield crossing
            elif crossing.change is Change.VIOLATED:
                self._note(self.gate, crossing)

    def _note(self, gate: RefitGate, crossing: Crossing) -> None:
        report = gate.report(crossing)
        self.rejections.append(report.verdict)
        self.diagnosis.extend(report.diagnosis)

    def result(self) -> RefitResult | None:
        """What the gate says; None without one."""
        if self.gate is None:
            return None
        return RefitResult(
            self.gate.verdicts(), dict(self.gate.sequences), tuple(self.rejections), tuple(self.diagnosis)
        )


def refit_line(one: RefitVerdict) -> str:
    """What became of one weights version on one replica, for a person.

    Examples
    --------
    >>> from paritas.detectors.refit import RefitReason
    >>> refit_line(RefitVerdict("r", "7", "r2", RefitState.REJECTED, RefitReason.REFUTED, "token-tv", 900, 12))
    'weights 7 on r2: rejected after 12 sequences (900 tokens): token-tv refuted'
    """
    where = f" on {one.replica}" if one.replica else ""
    why = f"{one.clause} {one.reason}" if one.clause else one.reason.value.replace("_", " ")
    return f"weights {one.weights_version}{where}: {one.state} after {one.sequences} sequences ({one.tokens} tokens): {why}"
