"""The verbs of `paritas promote`."""

import argparse
import getpass
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from paritas.clock import SystemClock
from paritas.commands.floor_limits import load_with_floors
from paritas.commands.output import say
from paritas.commands.promote_report import Times, candidate_in, read_report, statement_from
from paritas.commands.promote_text import (
    answer_dict,
    answer_text,
    detail_dict,
    detail_text,
    promotion_dict,
    promotion_line,
)
from paritas.commands.reaching import reach_by_token
from paritas.contracts.dump import canonical_json
from paritas.contracts.durations import parse_duration
from paritas.controller.promotion.evidence import LIMIT_BYTES, Evidence, read_evidence, sign_statement
from paritas.controller.promotion.fitting import time_text
from paritas.controller.promotion.model import Block, Blocked, Candidate, GateVerdict, Promotion, Standing
from paritas.controller.promotion.statement import statement_payload
from paritas.controller.promotion_client import Answer, PromotionClient
from paritas.errors import UsageError
from paritas.signing import private_key, trusted_keys

__all__ = ["abort", "advance", "start", "status", "submit", "verify"]

PASSED, FAILED, BLOCKED = 0, 1, 3
NS_PER_S = 1_000_000_000
MAX_EXPIRES_S = 3650 * 86_400.0
TIME_HINT = "write 2026-11-28T12:00:00+00:00"
STANDINGS = {Standing.RUNNING: PASSED, Standing.FULL: PASSED, Standing.PAUSED: BLOCKED}


def start(arguments: argparse.Namespace) -> int:
    """Begin a promotion."""
    contract = canonical_json(load_with_floors(arguments.contract, arguments))
    candidate = _candidate(arguments)
    with _client(arguments) as client:
        told = {"promotion_id": arguments.promotion, "actor": _actor(arguments)}
        promotion = client.start(contract, candidate, **told)
    _write(arguments, promotion_dict(promotion), promotion_line(promotion))
    return STANDINGS.get(promotion.standing, FAILED)


def _candidate(arguments: argparse.Namespace) -> Candidate:
    told = {name: getattr(arguments, name) for name in ("reference", "weights")}
    if arguments.from_check is not None:
        return candidate_in(read_report(arguments.from_check), **told)
    if not arguments.inference:
        hint = "give --from-check REPORT, or --inference DIGEST"
        raise UsageError("no candidate", hint=hint)
    return Candidate(arguments.inference, arguments.train, **told)


def status(arguments: argparse.Namespace) -> int:
    """Show one promotion, or all."""
    with _client(arguments) as client:
        if arguments.promotion:
            detail = client.get(arguments.promotion)
            _write(arguments, detail_dict(detail), detail_text(detail))
            return STANDINGS.get(detail.promotion.standing, FAILED)
        found = _all(client, include_over=arguments.all)
    lines = "\n".join(map(promotion_line, found)) or "no promotion"
    _write(arguments, {"promotions": [promotion_dict(p) for p in found]}, lines)
    return PASSED


def _all(client: PromotionClient, *, include_over: bool) -> list[Promotion]:
    found: list[Promotion] = []
    before = 0
    while True:
        page = client.page(include_over=include_over, before=before)
        found += page.promotions
        before = page.following
        if not before:
            return found


def advance(arguments: argparse.Namespace) -> int:
    """Go on after a pause, or under another version of the contract."""
    document = canonical_json(load_with_floors(arguments.contract, arguments)) if arguments.contract else ""
    with _client(arguments) as client:
        answer = client.advance(arguments.promotion, actor=_actor(arguments), contract=document)
    return _say(arguments, answer)


def abort(arguments: argparse.Namespace) -> int:
    """Stop for good; that it is stopped is success."""
    with _client(arguments) as client:
        answer = client.abort(arguments.promotion, actor=_actor(arguments), text=arguments.reason)
    _write(arguments, answer_dict(answer), answer_text(answer))
    return PASSED if answer.promotion.standing is Standing.ABORTED else FAILED


def submit(arguments: argparse.Namespace) -> int:
    """Sign a report, or take an envelope, and give it to the controller."""
    with _client(arguments) as client:
        envelope = _given(arguments) or _signed(arguments, client)
        if arguments.out is not None:
            _keep(arguments.out, envelope)
        answer = client.submit(arguments.promotion, envelope)
    return _say(arguments, answer)


def _given(arguments: argparse.Namespace) -> bytes:
    return b"" if arguments.envelope is None else _content(arguments.envelope)


def _signed(arguments: argparse.Namespace, client: PromotionClient) -> bytes:
    if arguments.key is None:
        raise UsageError(
            "no key to sign with", hint="--key FILE; paritas floor key PRIVATE.pem PUBLIC.pem makes one"
        )
    key, report = private_key(arguments.key), read_report(arguments.from_check)
    promotion = client.get(arguments.promotion).promotion
    statement = statement_from(report, promotion, _times(arguments), missing=tuple(arguments.missing))
    return sign_statement(statement, key)


def _times(arguments: argparse.Namespace) -> Times:
    now_ns = SystemClock().now_ns()
    sides = (_time(arguments.begun, "--from"), _time(arguments.ended, "--to"))
    return Times(now_ns, now_ns + round(_expires_s(arguments.expires) * NS_PER_S), *sides)


def _expires_s(text: str) -> float:
    try:
        lasts_s = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--expires: {text!r} is no duration", hint="write 30m, 24h or 7d") from error
    if lasts_s > MAX_EXPIRES_S:
        raise UsageError(f"--expires: {text!r} is too long", hint="at most 3650d")
    return lasts_s


def _time(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    try:
        told = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{option}: {text!r} is not a time", hint=TIME_HINT) from error
    if told.tzinfo is None:
        raise UsageError(f"{option}: {text!r} has no zone", hint=TIME_HINT)
    if told.timestamp() < 0:
        raise UsageError(f"{option}: {text!r} is not a time of this program", hint=TIME_HINT)
    return round(told.timestamp() * NS_PER_S)


def verify(arguments: argparse.Namespace) -> int:
    """Check a signature offline: nothing is asked of any controller, so not whether it moved one."""
    found = read_evidence(_content(arguments.envelope), trusted_keys(arguments.key))
    if isinstance(found, Blocked):
        _write(
            arguments,
            {"signature": "bad", "block": str(found.block), "text": found.text},
            f"{found.block}: {found.text}",
        )
        return FAILED
    s, expired = found.statement, found.statement.expires_ns <= SystemClock().now_ns()
    _write(arguments, _verified_dict(found, expired=expired), _verified_text(found, expired=expired))
    code = {GateVerdict.PASS: PASSED, GateVerdict.FAIL: FAILED}.get(s.verdict, BLOCKED)
    return BLOCKED if expired and code == PASSED else code


def _verified_dict(found: Evidence, *, expired: bool) -> dict[str, object]:
    told = {"signature": "good", "key": found.key, "digest": found.digest, "expired": expired}
    return {**told, "statement": json.loads(statement_payload(found.statement))}


def _verified_text(found: Evidence, *, expired: bool) -> str:
    s = found.statement
    lines = (
        f"{s.verdict} of {s.gate}, attempt {s.attempt}, promotion {s.promotion_id}",
        f"contract {s.contract} {s.contract_version} ({s.contract_digest})",
        f"{s.window.sequences} sequences, {s.window.tokens} tokens, {len(s.clauses)} clause verdicts",
        f"{'expired' if expired else 'holds until'} {time_text(s.expires_ns)}",
        f"signature: good, by {found.key}",
    )
    return "\n".join(lines)


def _say(arguments: argparse.Namespace, answer: Answer) -> int:
    _write(arguments, answer_dict(answer), answer_text(answer))
    if answer.promotion.standing in STANDINGS:
        is_violated = answer.blocked is not None and answer.blocked.block is Block.VIOLATED_CLAUSE
        code = BLOCKED if answer.blocked is not None else STANDINGS[answer.promotion.standing]
        return FAILED if is_violated else code
    return FAILED


def _write(arguments: argparse.Namespace, told: Mapping[str, object], text: str) -> None:
    say((json.dumps(told, indent=2, allow_nan=False) if arguments.json else text) + "\n")


def _client(arguments: argparse.Namespace) -> PromotionClient:
    reach = reach_by_token(arguments)
    return PromotionClient(reach.target, tls=reach.tls, token_file=reach.token_file)


def _actor(arguments: argparse.Namespace) -> str:
    name: str = arguments.actor
    with suppress(OSError, KeyError):  # a container's user may have no name
        name = name or getpass.getuser()
    return name


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error


def _keep(path: Path, envelope: bytes) -> None:
    try:
        path.write_bytes(envelope + b"\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
