"""The tests a contract carries: recorded input in, expected verdicts out.

This module compares; it judges nothing.  Who judges a recording (`paritas.commands.carried`) is
passed in, so that contracts need no detectors.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from paritas.contracts.model import Contract, ContractTest, Expectation
from paritas.records import Finding, State, Verdict

__all__ = ["Judge", "Judged", "Miss", "MissReason", "TestResult", "run_tests"]


@dataclass(frozen=True, slots=True)
class Judged:
    """What a recording was found to be.

    Attributes
    ----------
    verdicts : tuple of Verdict
        The last verdict of every clause and slice.
    findings : tuple of Finding
        Named causes by slice.
    reached : mapping of (clause, slice, state) to int
        How many sequences had been read when the clause was first in that state in that slice.
    """

    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...] = ()
    reached: Mapping[tuple[str, str, State], int] = field(default_factory=dict)


class Judge(Protocol):
    """Judges a recording under a contract; `serve` and `train` are one path if one file holds both."""

    def __call__(self, contract: Contract, serve: Path, train: Path) -> Judged:
        """Return the verdicts."""
        ...


class MissReason(StrEnum):
    """Why an expectation was not met."""

    NO_VERDICT = "no_verdict"
    OTHER_STATE = "other_state"
    TOO_LATE = "too_late"
    OTHER_CAUSE = "other_cause"


@dataclass(frozen=True, slots=True)
class Miss:
    """One expectation that was not met, and what was seen instead."""

    expectation: Expectation
    reason: MissReason
    seen: str

    def __str__(self) -> str:
        e = self.expectation
        return f"{e.clause} in {e.slice}: expected {_wanted(e)}, {self.seen}"


def _wanted(e: Expectation) -> str:
    within = "" if e.at_most_sequences is None else f" within {e.at_most_sequences} sequences"
    return f"{e.state}{within}" + (f" caused by {e.cause}" if e.cause else "")


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test of the contract and what it missed; passed if nothing."""

    __test__ = False  # not a pytest class

    name: str
    misses: tuple[Miss, ...]

    @property
    def is_passed(self) -> bool:
        """Whether every expectation was met."""
        return not self.misses


def run_tests(contract: Contract, judge: Judge) -> Iterator[TestResult]:
    """Judge the recording of every test and compare; files are relative to the contract's file."""
    folder = Path(contract.file).parent
    for test in contract.tests:
        judged = judge(contract, folder / test.serve, folder / test.train)
        yield TestResult(test.name, tuple(_misses(test, judged)))


def _misses(test: ContractTest, judged: Judged) -> Iterator[Miss]:
    for expectation in test.expect:
        if (miss := _miss(expectation, judged)) is not None:
            yield miss


def _miss(expectation: Expectation, judged: Judged) -> Miss | None:
    """Return the first thing wrong with one expectation, or None if it is met."""
    key = (expectation.clause, expectation.slice, expectation.state)
    of_clause = {v.slice: v for v in judged.verdicts if v.clause == expectation.clause}
    if expectation.slice not in of_clause:
        slices = ", ".join(sorted(of_clause)) or "none"
        return Miss(expectation, MissReason.NO_VERDICT, f"there is no verdict; slices with one: {slices}")
    if expectation.at_most_sequences is not None:
        if (late := _late(expectation, judged.reached.get(key), of_clause[expectation.slice])) is not None:
            return late
    elif of_clause[expectation.slice].state is not expectation.state:
        return Miss(expectation, MissReason.OTHER_STATE, _state_text(of_clause[expectation.slice]))
    return _other_cause(expectation, judged.findings)


def _late(expectation: Expectation, reached: int | None, last: Verdict) -> Miss | None:
    if reached is None:
        return Miss(expectation, MissReason.OTHER_STATE, _state_text(last))
    if reached > (expectation.at_most_sequences or 0):
        return Miss(expectation, MissReason.TOO_LATE, f"reached after {reached} sequences")
    return None


def _state_text(verdict: Verdict) -> str:
    estimate, limit = f"{verdict.estimate:.4g}", f"{verdict.limit:.4g}"
    return f"got {verdict.state} ({verdict.reason}; {estimate} against {limit}, {verdict.units} sequences)"


def _other_cause(expectation: Expectation, findings: tuple[Finding, ...]) -> Miss | None:
    causes = sorted({f.cause for f in findings if f.slice == expectation.slice})
    if not expectation.cause or expectation.cause in causes:
        return None
    return Miss(expectation, MissReason.OTHER_CAUSE, f"the causes found are: {', '.join(causes) or 'none'}")
