"""Promotions as people and programs read them."""

from collections.abc import Iterator
from dataclasses import asdict

from paritas.controller.promotion.fitting import time_text
from paritas.controller.promotion.model import Blocked, Promotion, Transition
from paritas.controller.promotion_client import Answer, Detail

__all__ = ["answer_dict", "answer_text", "detail_dict", "detail_text", "promotion_dict", "promotion_line"]


def promotion_line(p: Promotion) -> str:
    """One line: id, where it stands, under what, of what."""
    return (
        f"{p.promotion_id}  {p.standing} at {p.gate}, attempt {p.attempt}  "
        f"{p.contract} {p.contract_version}  candidate {p.candidate_digest[:8]}"
    )


def promotion_dict(p: Promotion) -> dict[str, object]:
    """JSON-ready values."""
    told = asdict(p)
    del told["seed"]
    return {**told, "used": list(p.used)}


def answer_text(answer: Answer) -> str:
    """Where it stands, what moved it, and why it does not move."""
    lines = [promotion_line(answer.promotion), *map(_moved, answer.transitions)]
    return "\n".join([*lines, *_why(answer.blocked)])


def answer_dict(answer: Answer) -> dict[str, object]:
    """JSON-ready values."""
    return {
        "promotion": promotion_dict(answer.promotion),
        "transitions": [asdict(t) for t in answer.transitions],
        "blocked": None if answer.blocked is None else asdict(answer.blocked),
    }


def detail_text(detail: Detail) -> str:
    """The same with the whole history; evidence that no longer verifies is said beside its transition."""
    lines = [promotion_line(detail.promotion)]
    for kept in detail.kept:
        fault = f"  EVIDENCE DOES NOT HOLD: {kept.fault}" if kept.fault else ""
        lines.append(_moved(kept.transition) + fault)
    return "\n".join([*lines, *_why(detail.blocked)])


def detail_dict(detail: Detail) -> dict[str, object]:
    """JSON-ready values; envelopes as the JSON text they are."""
    return {
        "promotion": promotion_dict(detail.promotion),
        "transitions": [
            {**asdict(k.transition), "fault": k.fault, "evidence": k.envelope.decode()} for k in detail.kept
        ],
        "blocked": None if detail.blocked is None else asdict(detail.blocked),
    }


def _moved(t: Transition) -> str:
    way = f"{t.gate_before} -> {t.gate_after}" if t.gate_before != t.gate_after else f"{t.gate_after}"
    by = f" by {t.actor}" if t.actor else f" on {t.envelope[:8]}" if t.envelope else ""
    return f"  {t.number} {time_text(t.at_ns)}  {t.cause}: {way}, {t.after}{by}" + (
        f"  ({t.text})" if t.text else ""
    )


def _why(blocked: Blocked | None) -> Iterator[str]:
    if blocked is not None:
        yield f"  {blocked.block}: {blocked.text}"
