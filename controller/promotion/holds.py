"""Incidents that ask to block promotions: while one is open, no gate of its policy is passed."""

from collections.abc import Sequence

from paritas.controller.convert import escalation_of
from paritas.controller.model import EventKind, IncidentRow
from paritas.controller.promotion.model import Block, Blocked
from paritas.controller.silences import suppression
from paritas.controller.store import Store
from paritas.controller.wire import silence_of
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Escalation, Phase

__all__ = ["holding"]

BLOCKS = "block_promotion"
_TRANSITIONS = 1000  # of one incident; what it last asked for is among its latest


def holding(store: Store, contract: str, policy: str, *, now_ns: int) -> Blocked | None:
    """Return what holds a promotion under `contract`, or of its `policy`, up now; None if nothing does.

    A silence ends what an incident asks for; recovering is not recovered.
    """
    silences = [silence_of(pb.Silence.FromString(payload)) for payload in store.silences()]
    held = [
        row
        for row in store.snapshot()[1]
        if (row.subject.contract == contract or (policy and row.subject.policy == policy))
        and suppression(silences, row.subject, now_ns=now_ns) is None
        and _asks(store, row)
    ]
    return _blocked(held) if held else None


def _asks(store: Store, row: IncidentRow) -> bool:
    """Whether the incident asks to block promotions: as it fires, or as it last fired if it recovers."""
    current = _escalation(row.payload)
    if current.after is Phase.RECOVERING:
        events = store.incident_events(row.subject.incident_id, limit=_TRANSITIONS)
        told = [_escalation(e.payload) for e in events if e.kind is EventKind.ESCALATION]
        current = next((e for e in reversed(told) if e.after is Phase.FIRING), current)
    return current.after is Phase.FIRING and any(action.kind == BLOCKS for action in current.actions)


def _escalation(payload: bytes) -> Escalation:
    return escalation_of(pb.Escalation.FromString(payload))


def _blocked(held: Sequence[IncidentRow]) -> Blocked:
    names = ", ".join(f"{row.subject.clause} in {row.subject.slice}" for row in held[:3])
    return Blocked(Block.HELD, f"{len(held)} open incidents ask to block promotions: {names}")
