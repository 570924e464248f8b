"""The statement a verdict is signed as: in-toto statement v1 with our predicate, in canonical JSON.

Numbers with a fraction are texts (``repr`` of a double: the shortest that reads back to the same bits), so
that two languages hash one statement alike.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from paritas.contracts.model import Stage
from paritas.controller.promotion.model import Candidate, Gate, GateVerdict
from paritas.errors import PermanentError
from paritas.records import Reason, State

__all__ = [
    "PAYLOAD_TYPE",
    "PREDICATE_TYPE",
    "ClauseVerdict",
    "Statement",
    "Window",
    "candidate_digest",
    "statement_of",
    "statement_payload",
]

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://paritas.dev/contract-verdict/v0.1"
DIGEST = "blake2b128"  # BLAKE2b with 16 bytes, which has no name of its own among in-toto's


@dataclass(frozen=True, slots=True)
class ClauseVerdict:
    """What one clause says of one slice, as it is signed."""

    clause: str
    slice: str
    state: State
    reason: Reason
    statistic: str
    estimate: float
    lower: float
    upper: float
    limit: float
    log10_e: float
    log10_pass: float
    units: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Window:
    """What was looked at; times are Unix ns, 0 where the records carried none."""

    from_ns: int
    to_ns: int
    sequences: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Statement:
    """One verdict on one candidate at one gate of one promotion.

    Attributes
    ----------
    alpha : float
        Error probability that a pass in it spent.
    issued_ns, expires_ns : int
        Unix ns.
    missing : tuple of str
        What should have been there and was not, such as agents that did not report.
    """

    promotion_id: str
    gate: Gate
    attempt: int
    nonce: str
    contract: str
    contract_version: str
    contract_digest: str
    candidate: Candidate
    verdict: GateVerdict
    alpha: float
    window: Window
    clauses: tuple[ClauseVerdict, ...]
    issued_ns: int
    expires_ns: int
    missing: tuple[str, ...] = ()
    verifier: str = "paritas"


def candidate_digest(candidate: Candidate) -> str:
    """Return BLAKE2b-128 over the candidate's digests, 32 lowercase hex characters.

    Examples
    --------
    >>> len(candidate_digest(Candidate("aa", weights="step-7")))
    32
    """
    return hashlib.blake2b(_canonical(asdict(candidate)), digest_size=16).hexdigest()


def statement_payload(statement: Statement) -> bytes:
    """Return the canonical JSON that is signed."""
    told = {
        "_type": STATEMENT_TYPE,
        "subject": _subjects(statement.candidate),
        "predicateType": PREDICATE_TYPE,
        "predicate": _predicate(statement),
    }
    return _canonical(told)


def statement_of(payload: bytes) -> Statement:
    """Return the statement a payload tells.

    Raises
    ------
    PermanentError
        It is no such statement, or its subjects are not those its predicate speaks of.
    """
    try:
        told = json.loads(payload)
        is_ours = told["_type"] == STATEMENT_TYPE and told["predicateType"] == PREDICATE_TYPE
        statement = _read(dict(told["predicate"])) if is_ours else None
        subjects = told["subject"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PermanentError("holds no contract verdict") from error
    if statement is None:
        raise PermanentError(f"is not a statement {STATEMENT_TYPE} of a verdict {PREDICATE_TYPE}")
    if subjects != _subjects(statement.candidate):
        raise PermanentError("names other subjects than its verdict is of")
    return statement


def _subjects(candidate: Candidate) -> list[dict[str, object]]:
    told = {"candidate": candidate_digest(candidate), **asdict(candidate)}
    return [{"name": name, "digest": {DIGEST: value}} for name, value in sorted(told.items()) if value]


def _predicate(s: Statement) -> dict[str, object]:
    return {
        "promotion": {"id": s.promotion_id, "nonce": s.nonce, "attempt": s.attempt},
        "stage": str(s.gate.stage),
        "step": s.gate.step,
        "contract": {"name": s.contract, "version": s.contract_version, "digest": s.contract_digest},
        "candidate": asdict(s.candidate),
        "verdict": str(s.verdict),
        "alpha": number_text(s.alpha),
        "window": asdict(s.window),
        "clauses": [_told(c) for c in s.clauses],
        "issued_ns": s.issued_ns,
        "expires_ns": s.expires_ns,
        "missing": list(s.missing),
        "verifier": s.verifier,
    }


def _told(clause: ClauseVerdict) -> dict[str, object]:
    return {k: number_text(v) if isinstance(v, float) else v for k, v in asdict(clause).items()}


def number_text(value: float) -> str:
    """Return the canonical text of a double.

    Examples
    --------
    >>> [number_text(x) for x in (0.1, 1e-9, float("nan"), float("-inf"))]
    ['0.1', '1e-09', 'nan', '-inf']
    """
    return repr(float(value))


def _canonical(value: object) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def _read(p: dict[str, Any]) -> Statement:
    """The predicate as a record; KeyError, TypeError or ValueError where it is not one."""
    promotion, contract = p["promotion"], p["contract"]
    window = {name: _whole(value) for name, value in _exact(Window, p["window"]).items()}
    return Statement(
        promotion_id=_text(promotion["id"]),
        gate=Gate(Stage(p["stage"]), _whole(p["step"])),
        attempt=_whole(promotion["attempt"]),
        nonce=_text(promotion["nonce"]),
        contract=_text(contract["name"]),
        contract_version=_text(contract["version"]),
        contract_digest=_text(contract["digest"]),
        candidate=Candidate(**{k: _text(v) for k, v in _exact(Candidate, p["candidate"]).items()}),
        verdict=GateVerdict(p["verdict"]),
        alpha=_number(p["alpha"]),
        window=Window(**window),
        clauses=tuple(_clause(entry) for entry in p["clauses"]),
        issued_ns=_whole(p["issued_ns"]),
        expires_ns=_whole(p["expires_ns"]),
        missing=tuple(_text(name) for name in p["missing"]),
        verifier=_text(p["verifier"]),
    )


def _clause(entry: Mapping[str, Any]) -> ClauseVerdict:
    told = _exact(ClauseVerdict, entry)
    readers: dict[str, Callable[[Any], Any]] = {
        "state": State,
        "reason": Reason,
        "units": _whole,
        "tokens": _whole,
    }
    readers |= dict.fromkeys(("clause", "slice", "statistic"), _text)
    return ClauseVerdict(**{k: readers.get(k, _number)(v) for k, v in told.items()})


def _exact(record: type, told: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record, all of them and no others."""
    if set(told) != {f.name for f in fields(record)}:
        raise KeyError(record.__name__)
    return dict(told)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise TypeError("not a whole number")
    return value


def _number(value: object) -> float:
    read = float(_text(value))
    if number_text(read) != value and not math.isnan(read):
        raise ValueError("not a number in its canonical text")
    return read
