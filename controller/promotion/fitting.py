"""Whether a signed verdict is about this promotion, here and now."""

from collections.abc import Iterator
from datetime import UTC, datetime

from paritas.contracts.model import Contract, Stage
from paritas.controller.promotion.gates import declared
from paritas.controller.promotion.model import Block, Blocked, Promotion, Standing
from paritas.controller.promotion.statement import Statement, candidate_digest

__all__ = ["SKEW_NS", "STALE_NS", "misfit", "misfit_of_window", "must_wait", "time_text"]

NS_PER_S = 1_000_000_000
SKEW_NS = 60 * NS_PER_S  # two machines' clocks
STALE_NS = 900 * NS_PER_S  # from the last sequence to the signature


def misfit(promotion: Promotion, statement: Statement, envelope: str, now_ns: int) -> Blocked | None:
    """Return why a verdict cannot be taken at all; None if it is about this gate of this promotion."""
    return next(_misfits(promotion, statement, envelope, now_ns), None)


def _misfits(p: Promotion, s: Statement, envelope: str, now_ns: int) -> Iterator[Blocked]:
    if envelope in p.used:
        yield Blocked(Block.REPLAYED, "this envelope has moved the promotion before; each one does so once")
    yield from _of_another(p, s)
    if (s.gate.stage, s.gate.step) != (p.gate.stage, p.gate.step):
        yield Blocked(Block.ANOTHER_STAGE, f"the verdict is of {s.gate}, the promotion is at {p.gate}")
    if s.attempt != p.attempt:
        yield Blocked(
            Block.ANOTHER_ATTEMPT, f"the verdict is of attempt {s.attempt}, this is attempt {p.attempt}"
        )
    if s.nonce != p.nonce:
        yield Blocked(
            Block.REPLAYED, f"the nonce is not the one given for {p.gate}: it answers another time here"
        )
    if s.expires_ns <= now_ns:
        yield Blocked(Block.EXPIRED, f"the verdict expired at {time_text(s.expires_ns)}")
    if s.issued_ns > now_ns + SKEW_NS:
        yield Blocked(
            Block.NOT_YET_VALID, f"the verdict is issued at {time_text(s.issued_ns)}, in the future"
        )


def _of_another(p: Promotion, s: Statement) -> Iterator[Blocked]:
    """Misfits of what was judged: contract, candidate, promotion."""
    if s.contract != p.contract:
        text = f"the verdict is of contract {s.contract}, the promotion is under {p.contract}"
        yield Blocked(Block.ANOTHER_CONTRACT, text)
    if s.contract_digest != p.contract_digest:
        told = [f"{v} ({d[:8]})" for v, d in ((s.contract_version, s.contract_digest), _contract(p))]
        text = f"the verdict is of {p.contract} {told[0]}, the promotion is bound to {told[1]}"
        yield Blocked(Block.CHANGED_CONTRACT, text)
    if differing := p.candidate.differing(s.candidate):
        digests = (candidate_digest(s.candidate)[:8], p.candidate_digest[:8])
        text = f"the verdict is of candidate {digests[0]}, the promotion is of {digests[1]}: {', '.join(differing)} differ"
        yield Blocked(Block.ANOTHER_CANDIDATE, text)
    if s.promotion_id != p.promotion_id:
        text = f"the verdict is of promotion {s.promotion_id!r}, this is {p.promotion_id!r}"
        yield Blocked(Block.ANOTHER_PROMOTION, text)


def _contract(promotion: Promotion) -> tuple[str, str]:
    return promotion.contract_version, promotion.contract_digest


def misfit_of_window(promotion: Promotion, statement: Statement) -> Blocked | None:
    """Return why what was looked at cannot count here: other sequences, or those of another time."""
    return next(_window(promotion, statement), None)


def _window(promotion: Promotion, statement: Statement) -> Iterator[Blocked]:
    window = statement.window
    if promotion.window_from_ns >= 0 and (
        window.from_ns != promotion.window_from_ns or window.sequences < promotion.window_sequences
    ):
        text = "this attempt was begun on other sequences, which may only grow: new ones are another attempt"
        yield Blocked(Block.ANOTHER_ATTEMPT, text)
    if promotion.gate.stage is Stage.OFFLINE_CI:
        return  # a suite has no time of its own
    if window.from_ns < promotion.gate_ns - SKEW_NS:
        times = time_text(window.from_ns), time_text(promotion.gate_ns)
        text = f"sequences from {times[0]}, before {promotion.gate} began at {times[1]}"
        yield Blocked(Block.STALE_WINDOW, text)
    if window.to_ns < statement.issued_ns - STALE_NS:
        age_s = (statement.issued_ns - window.to_ns) // NS_PER_S
        text = f"the last sequence is of {time_text(window.to_ns)}, {age_s} s before the verdict"
        yield Blocked(Block.STALE_WINDOW, text)


def must_wait(promotion: Promotion, statement: Statement, contract: Contract) -> Blocked | None:
    """Return why a verdict that passes does not move the promotion yet: the pause, the bake."""
    if promotion.standing is Standing.PAUSED:
        text = "its deadline has passed: `paritas promote advance` opens another attempt"
        return Blocked(Block.PAUSED, text)
    gate = declared(contract, promotion.gate.stage)
    bake_s = 0.0 if gate is None or gate.bake_s is None else gate.bake_s
    until_ns = promotion.gate_ns + round(bake_s * NS_PER_S)
    if bake_s and min(statement.window.to_ns, statement.issued_ns) < until_ns:
        return Blocked(Block.BAKING, f"{promotion.gate} bakes until {time_text(until_ns)}")
    return None


def time_text(at_ns: int) -> str:
    """Return a Unix time in ns as people write it; years beyond 9999 have no such text.

    Examples
    --------
    >>> time_text(1_700_000_000_000_000_000)
    '2023-11-14T22:13:20Z'
    """
    seconds = min(at_ns // NS_PER_S, 253_402_300_799)
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat().replace("+00:00", "Z")
