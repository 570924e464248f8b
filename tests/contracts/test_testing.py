"""A contract's own tests: what passes, and what a miss says."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from contract_cases import clause_contract

from paritas.contracts.model import Contract
from paritas.contracts.testing import Judged, MissReason, TestResult, run_tests
from paritas.records import Finding, Reason, State, Verdict

SPEC = "  tests: [{{name: t, given: {{trace: fixtures/x.jsonl}}, expect: [{expect}]}}]\n"


def verdict(state: State, where: str = "all") -> Verdict:
    return Verdict(
        "a",
        where,
        state,
        Reason.REFUTED,
        "tv",
        "numerical",
        0.05,
        0.04,
        math.nan,
        0.02,
        9.0,
        0.0,
        4.0,
        400,
        9000,
    )


def carrying(expect: str) -> Contract:
    slices = "  slices: [{name: all}, {name: replica, by: [replica]}]\n"
    return clause_contract("{id: a, statistic: tv, at_most: 0.02}", extra=slices + SPEC.format(expect=expect))


def run(expect: str, judged: Judged) -> TestResult:
    (result,) = run_tests(carrying(expect), lambda _contract, _serve, _train: judged)
    return result


EXPECT = "{clause: a, slice: all, state: violated}"
SOON = "{clause: a, slice: all, state: violated, at_most: 300 sequences}"
CAUSE = "{clause: a, slice: all, state: violated, cause: stale-weights}"
VIOLATED = Judged((verdict(State.VIOLATED),))


def test_a_state_that_is_reached_passes() -> None:
    assert run(EXPECT, VIOLATED) == TestResult("t", ())
    assert run(EXPECT, VIOLATED).is_passed


@pytest.mark.parametrize(
    ("expect", "judged", "reason", "text"),
    [
        (
            EXPECT,
            Judged((verdict(State.UNDECIDED),)),
            MissReason.OTHER_STATE,
            "a in all: expected violated, got undecided (refuted; 0.05 against 0.02, 400 sequences)",
        ),
        (
            "{clause: a, slice: 'replica=r2', state: violated}",
            Judged((verdict(State.VIOLATED), verdict(State.VIOLATED, "replica=r1"))),
            MissReason.NO_VERDICT,
            "a in replica=r2: expected violated, there is no verdict; slices with one: all, replica=r1",
        ),
        (
            SOON,
            Judged((verdict(State.VIOLATED),), (), {("a", "all", State.VIOLATED): 301}),
            MissReason.TOO_LATE,
            "a in all: expected violated within 300 sequences, reached after 301 sequences",
        ),
        (
            SOON,
            Judged((verdict(State.CONFORMING),)),
            MissReason.OTHER_STATE,
            "a in all: expected violated within 300 sequences, got conforming (refuted; 0.05 against 0.02, 400 sequences)",
        ),
        (
            CAUSE,
            Judged(
                (verdict(State.VIOLATED),),
                (Finding("temperature", "all", 0.9, {}, ""), Finding("stale-weights", "x", 0.9, {}, "")),
            ),
            MissReason.OTHER_CAUSE,
            "a in all: expected violated caused by stale-weights, the causes found are: temperature",
        ),
    ],
)
def test_a_miss_says_what_was_seen_instead(
    expect: str, judged: Judged, reason: MissReason, text: str
) -> None:
    (miss,) = run(expect, judged).misses
    assert (miss.reason, str(miss)) == (reason, text)


def test_reaching_a_state_in_time_is_enough_even_if_it_ends() -> None:
    judged = Judged((verdict(State.UNDECIDED),), (), {("a", "all", State.VIOLATED): 300})
    assert run(SOON, judged).is_passed


def test_the_right_cause_in_the_right_slice_passes() -> None:
    assert run(CAUSE, replace(VIOLATED, findings=(Finding("stale-weights", "all", 0.9, {}, ""),))).is_passed


def test_recordings_are_looked_for_beside_the_contract() -> None:
    seen: list[tuple[Path, Path]] = []

    def judge(_contract: Contract, serve: Path, train: Path) -> Judged:
        seen.append((serve, train))
        return VIOLATED

    contract = replace(carrying(EXPECT), file="some/where/c.yaml")
    list(run_tests(contract, judge))
    assert seen == [(Path("some/where/fixtures/x.jsonl"),) * 2]
