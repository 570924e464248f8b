"""The JSON of `paritas check` or `certify` as a statement that can be signed.

What the report says is signed as it stands: also a contract or a stage other than the promotion's, which
the controller then refuses by name.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from paritas import __version__
from paritas.contracts.model import Stage
from paritas.controller.promotion.model import Candidate, Gate, GateVerdict, Promotion
from paritas.controller.promotion.statement import ClauseVerdict, Statement, Window
from paritas.errors import UsageError
from paritas.records import Reason, State

__all__ = ["Times", "candidate_in", "read_report", "statement_from"]

LIMIT_BYTES = 64 << 20
HINT = "paritas check CONTRACT --stage STAGE … --json writes one"
HEADLINES = {0: GateVerdict.PASS, 1: GateVerdict.FAIL}
REAL_NS = 10**18  # 2001: recordings count in seconds from 0 where they were given no time
NUMBERS = ("estimate", "lower", "upper", "limit", "log10_e", "log10_pass")

Report = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Times:
    """When: of the signature, until when it holds, and of the sequences where the person says so; Unix ns."""

    issued_ns: int
    expires_ns: int
    begun_ns: int | None = None
    ended_ns: int | None = None


def read_report(path: Path) -> Report:
    """Return the report in a file.

    Raises
    ------
    UsageError
        It cannot be read, or is no report of a version that tells who was observed.
    """
    try:
        with path.open("rb") as file:
            told = json.loads(file.read(LIMIT_BYTES))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", hint=HINT) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not JSON", hint=HINT) from error
    wanted = {"contract", "exit_code", "gate", "observed", "verdicts"}
    if not isinstance(told, dict) or not wanted <= set(told):
        raise UsageError(f"{path}: is no report of `paritas check`", hint=HINT)
    return told


def candidate_in(report: Report, *, reference: str = "", weights: str = "") -> Candidate:
    """Return the kernels and weights that a report observed; what it does not tell is as given.

    Raises
    ------
    UsageError
        It saw none or several kernels in one role: that is no candidate.
    """
    given = Candidate("", reference=reference, weights=weights)
    found = _seen(report, given)
    if not found.inference:
        raise UsageError("the report saw no inference kernel: it holds no pair", hint=HINT)
    return found


def _seen(report: Report, given: Candidate) -> Candidate:
    """What was observed; what was not is as given, such as of an empty recording, which is judged as one."""
    told = report["observed"]
    seen = {"weights": told["weights"], **{r: told["kernels"][r] for r in ("inference", "train")}}
    return replace(given, **{what: _only(found, what) for what, found in seen.items() if found})


def _only(found: list[str], what: str) -> str:
    if len(found) == 1:
        return found[0]
    raise UsageError(
        f"the report saw {len(found)} different {what}: no one candidate", hint="judge one at a time"
    )


def statement_from(
    report: Report, promotion: Promotion, times: Times, *, missing: tuple[str, ...] = ()
) -> Statement:
    """Return what a report says of the gate that a promotion is at.

    Raises
    ------
    UsageError
        The report is damaged, or names no single kernel.
    """
    try:
        return _statement(report, promotion, times, missing)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"the report is damaged: {error}", hint=HINT) from error


def _statement(report: Report, promotion: Promotion, times: Times, missing: tuple[str, ...]) -> Statement:
    level, contract = report["gate"], report["contract"]
    stage = Stage(level["stage"])
    return Statement(
        promotion_id=promotion.promotion_id,
        gate=Gate(stage, promotion.gate.step if stage is promotion.gate.stage else 0),
        attempt=level["attempt"] or (promotion.attempt if stage is Stage.FULL else 0),
        nonce=promotion.nonce,
        contract=contract["name"],
        contract_version=contract["version"],
        contract_digest=contract["digest"],
        candidate=_seen(report, promotion.candidate),
        verdict=HEADLINES.get(report["exit_code"], GateVerdict.INSUFFICIENT),
        alpha=float(level["pass_alpha"]),
        window=_window(report["observed"], times),
        clauses=tuple(map(_clause, report["verdicts"])),
        issued_ns=times.issued_ns,
        expires_ns=times.expires_ns,
        missing=missing,
        verifier=f"paritas {__version__}",
    )


def _window(observed: Mapping[str, Any], times: Times) -> Window:
    begun, ended = (t if t is None or t >= REAL_NS else 0 for t in (observed["from_ns"], observed["to_ns"]))
    return Window(
        begun if times.begun_ns is None else times.begun_ns,
        ended if times.ended_ns is None else times.ended_ns,
        observed["sequences"],
        observed["tokens"],
    )


def _clause(verdict: Mapping[str, Any]) -> ClauseVerdict:
    told = {f.name: verdict[f.name] for f in fields(ClauseVerdict)}
    for name in NUMBERS:
        told[name] = float("nan") if told[name] is None else float(told[name])
    return ClauseVerdict(**{**told, "state": State(told["state"]), "reason": Reason(told["reason"])})
