"""What a trainer is asked for: begun at once, ended when no ask is left and the dwell time is over."""

from collections.abc import Mapping, Sequence

from paritas.clock import NS_PER_S
from paritas.controller.routing.asks import Asked, least_cap
from paritas.controller.routing.memory import Held, Note
from paritas.controller.routing.model import ALL, Hold, SafetyLimits, Why
from paritas.controller.routing.override import Override

__all__ = ["lifted", "next_held", "released"]


def next_held(
    held: Mapping[Hold, Held], asked: Asked, limits: SafetyLimits, *, now_ns: int
) -> tuple[dict[Hold, Held], list[Note]]:
    """Return the holds after this round, and the reasons."""
    after: dict[Hold, Held] = {}
    notes: list[Note] = []
    for hold in Hold:
        live = [a for a in asked.live if hold in a.holds]
        kept = [a for a in (*asked.lapsed, *asked.silenced) if hold in a.holds] if hold in held else []
        if live or kept:
            after[hold] = _begun(held.get(hold), hold, [a.holds[hold] for a in (*live, *kept)], now_ns=now_ns)
            incidents = tuple(sorted(a.incident_id for a in live or kept))
            why = Why.INCIDENT if live else Why.LEASE_EXPIRED
            notes.append(Note(ALL, why, f"{hold.value}: {_TEXTS[why]}", incidents))
        elif hold in held and now_ns < held[hold].since_ns + round(limits.dwell_s * NS_PER_S):
            after[hold] = held[hold]
            notes.append(
                Note(ALL, Why.DWELL, f"{hold.value} stays: it began less than {limits.dwell_s:g} s ago")
            )
    return after, notes


_TEXTS = {Why.INCIDENT: "an incident asks for it", Why.LEASE_EXPIRED: "stays, no recovery is known"}


def _begun(before: Held | None, hold: Hold, arguments: Sequence[str], *, now_ns: int) -> Held:
    argument = least_cap(arguments) if hold is Hold.CAP else ""
    return Held(argument, now_ns if before is None else before.since_ns)


def released(overrides: Sequence[Override]) -> frozenset[Hold]:
    """Return the holds that a person has lifted."""
    return frozenset[Hold]().union(*(o.release for o in overrides))


def lifted(held: Mapping[Hold, Held], overrides: Sequence[Override]) -> list[Note]:
    """Say which holds would be there, had not a person lifted them."""
    return [
        Note(ALL, Why.OVERRIDE, f"{hold.value} is lifted by {o.author}: {o.reason}")
        for o in overrides
        for hold in held
        if hold in o.release
    ]
