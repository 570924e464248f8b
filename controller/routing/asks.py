"""What the incidents ask for; only the detectors end an ask, time alone never does."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite

from paritas.controller.model import Suppression
from paritas.controller.routing.memory import Ask, Note
from paritas.controller.routing.model import ALL, INFERENCE, REFERENCE, Fleet, Hold, Why
from paritas.records import Action, Escalation, Phase

__all__ = ["Asked", "Seen", "least_cap", "next_asks", "replica_named"]

_OVER = frozenset({Phase.RESOLVED, Phase.SUPERSEDED, Phase.INACTIVE})
_HOLDS = {hold.value: hold for hold in Hold}


@dataclass(frozen=True, slots=True)
class Seen:
    """An incident's highest transition, and the silence that stops its actions, if any."""

    escalation: Escalation
    suppression: Suppression | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """All asks by how they stand.

    Attributes
    ----------
    live : tuple of Ask
        May move something.
    lapsed : tuple of Ask
        Not heard of in time: they ask for nothing new, the fail mode says what becomes of the old.
    silenced : tuple of Ask
        Keep what they have moved, and move nothing.
    """

    live: tuple[Ask, ...] = ()
    lapsed: tuple[Ask, ...] = ()
    silenced: tuple[Ask, ...] = ()

    @property
    def all(self) -> tuple[Ask, ...]:
        """Every ask, however it stands."""
        return (*self.live, *self.lapsed, *self.silenced)

    @staticmethod
    def of(asks: Iterable[Ask], silenced: frozenset[str], *, now_ns: int) -> "Asked":
        """Sort `asks` by how they stand at `now_ns`; `silenced` holds incident ids."""
        stopped = tuple(a for a in asks if a.incident_id in silenced)
        free = [a for a in asks if a.incident_id not in silenced]
        lapsed = tuple(a for a in free if a.until_ns <= now_ns)
        return Asked(tuple(a for a in free if now_ns < a.until_ns), lapsed, stopped)


def next_asks(
    asks: Mapping[str, Ask], incidents: Iterable[Seen], fleet: Fleet, *, now_ns: int
) -> tuple[dict[str, Ask], list[Note]]:
    """Return the asks after hearing `incidents`, and what was heard and not taken.

    An incident that is not among `incidents` is as it was: absence is no recovery.
    """
    kept, notes = dict(asks), list[Note]()
    ours = {*_ours(fleet), fleet.reference_policy}
    heard = [seen for seen in incidents if seen.escalation.policy in ours]
    for seen in sorted(heard, key=lambda seen: seen.escalation.incident_id):
        event = seen.escalation
        known = kept.get(event.incident_id)
        if known and event.transition < known.transition:
            continue  # told late: what came after it is known
        if event.after in _OVER:
            kept.pop(event.incident_id, None)
        elif seen.suppression:
            notes += _silenced(seen, fleet, is_kept=known is not None)
        elif event.after is not Phase.FIRING:
            kept |= _heard_of(known, event)
        elif now_ns < event.valid_until_ns:
            kept[event.incident_id] = _ask(event, fleet, since_ns=known.since_ns if known else now_ns)
        elif not known:
            text = f"incident of {event.clause} in {event.slice} was told too late: nothing is done for it"
            notes.append(Note(ALL, Why.LEASE_EXPIRED, text, (event.incident_id,)))
    return dict(sorted(kept.items())), notes


def _heard_of(known: Ask | None, event: Escalation) -> dict[str, Ask]:
    """Recovering is not recovered: it asks for the same until it is resolved."""
    if known is None:
        return {}
    until_ns = max(known.until_ns, event.valid_until_ns)
    return {event.incident_id: replace(known, transition=event.transition, until_ns=until_ns)}


def _silenced(seen: Seen, fleet: Fleet, *, is_kept: bool) -> list[Note]:
    event, by = seen.escalation, seen.suppression
    if not is_kept and (event.after is not Phase.FIRING or not _asks_anything(event, fleet)):
        return []
    what = "what it moved stays" if is_kept else "nothing is done for it"
    text = f"{event.clause} in {event.slice} is silenced by {by.author if by else ''}: {what}"
    return [Note(ALL, Why.SILENCED, text, (event.incident_id,))]


def _asks_anything(event: Escalation, fleet: Fleet) -> bool:
    ask = _ask(event, fleet, since_ns=0)
    return bool(ask.share or ask.drains or ask.holds or ask.unfit)


def _ask(event: Escalation, fleet: Fleet, *, since_ns: int) -> Ask:
    """Read the actions of a firing incident; those for people are not ours."""
    is_ours = event.policy in _ours(fleet)
    reroutes = [a for a in event.actions if a.kind == "reroute" and is_ours]
    shares = [_share(a) for a in reroutes if a.arguments.get("to", REFERENCE) == REFERENCE]
    held = [(_HOLDS[a.kind], a) for a in event.actions if a.kind in _HOLDS and is_ours]
    return Ask(
        incident_id=event.incident_id,
        transition=event.transition,
        slice=event.slice,
        share=max(shares, default=0.0),
        replica=replica_named(event.slice, fleet) if is_ours else "",
        drains=is_ours and any(a.kind == "drain" for a in event.actions),
        unfit=not is_ours or any(a.arguments.get("to") == INFERENCE for a in reroutes),
        holds={hold: _argument(hold, action) for hold, action in sorted(held, key=lambda item: item[0])},
        since_ns=since_ns,
        until_ns=event.valid_until_ns,
    )


def _ours(fleet: Fleet) -> frozenset[str]:
    """A contract that names no policy binds any."""
    return frozenset({fleet.policy, ""})


def _share(action: Action) -> float:
    """A share that is no number in [0, 1] is all: an actor errs on the safe side."""
    share = action.arguments.get("share", 1.0)
    is_share = isinstance(share, int | float) and isfinite(share) and 0.0 <= share <= 1.0
    return float(share) if is_share and isinstance(share, int | float) else 1.0


def _argument(hold: Hold, action: Action) -> str:
    value = action.arguments.get("cap") if hold is Hold.CAP else None
    return "" if value is None else str(value)


def least_cap(arguments: Iterable[str]) -> str:
    """Return the smallest cap that is asked for; "" when none says a number.

    Examples
    --------
    >>> least_cap(["2.0", "", "1.5"])
    '1.5'
    """
    numbers = [(number, text) for text in arguments if (number := _number(text)) is not None]
    return min(numbers, default=(0.0, ""))[1]


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def replica_named(name: str, fleet: Fleet) -> str:
    """Return the replica that a slice such as ``replica=r2`` names; "" if it names none of the fleet.

    Examples
    --------
    >>> from paritas.controller.routing.model import Replica
    >>> fleet = Fleet("p", (Replica("r1", "inference"), Replica("r2", "inference")))
    >>> replica_named("replica=r2", fleet), replica_named("task=math,replica=r1", fleet), replica_named("all", fleet)
    ('r2', 'r1', '')
    """
    known = {replica.name for replica in fleet.replicas}
    values = [term.partition("=")[2] for term in name.split(",") if term.startswith("replica=")]
    return next((value for value in values if value in known), "")
