"""From incidents to routes: one pure function of memory, incidents, fleet, overrides and time.

>>> from paritas.controller.routing.model import Fleet, Replica
>>> fleet = Fleet("p", (Replica("a", "inference"), Replica("b", "reference")))
>>> decision = decide(Memory(), Round(fleet, now_ns=1))
>>> decision.routes[0].weights, decision.routes[0].why.value
({'inference': 1.0}, 'conforming')
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from paritas.clock import NS_PER_S
from paritas.controller.routing.asks import Asked, Seen, next_asks
from paritas.controller.routing.audit import AuditEntry, AuditKind
from paritas.controller.routing.drains import ejection_ends_ns, next_rotations
from paritas.controller.routing.holds import lifted, next_held, released
from paritas.controller.routing.memory import Memory, Note
from paritas.controller.routing.model import ALL, Fleet, Hold, Route, RouteKey, Why
from paritas.controller.routing.override import Override, active, chosen
from paritas.controller.routing.shares import next_moved, weights_of

__all__ = ["Decision", "Round", "decide", "due_ns", "same_wish"]

# Of several reasons the first here is the route's; the others stand in its detail.
RANK = (
    Why.OVERRIDE,
    Why.NO_REFERENCE,
    Why.INCIDENT,
    Why.LEASE_EXPIRED,
    Why.MINIMUM_HEALTHY,
    Why.SHARE_CAP,
    Why.NO_REPLICA,
    Why.DWELL,
    Why.EJECTED,
    Why.SILENCED,
    Why.CONFORMING,
)
_WITHHELD = frozenset(Why) - {Why.OVERRIDE, Why.INCIDENT, Why.CONFORMING}


@dataclass(frozen=True, slots=True)
class Round:
    """What one round looks at.

    Attributes
    ----------
    incidents : sequence of Seen
        The open ones, and those that are over but were still acted upon.
    overrides : sequence of Override
        All that are kept; those that have not begun or have ended are passed over.
    forgotten : frozenset of str
        Incidents that were over long ago: the log, which keeps every open one, no longer has them.
    """

    fleet: Fleet
    now_ns: int
    incidents: Sequence[Seen] = ()
    overrides: Sequence[Override] = ()
    forgotten: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Decision:
    """What to remember, what to want (all requests first, then by slice), and what to write down."""

    memory: Memory
    routes: tuple[Route, ...]
    audit: tuple[AuditEntry, ...]


def decide(memory: Memory, given: Round) -> Decision:
    """Return the desired state at ``given.now_ns``; the same inputs give the same by `repr`.

    Deciding again about the same changes nothing but leases.  When the clock is set back, dwell times and
    times out stand still until it has caught up; what others have stamped, and leases, follow the clock.
    """
    fleet, now_ns = given.fleet, max(memory.now_ns, given.now_ns)
    overrides = active(given.overrides, fleet.policy, now_ns=given.now_ns)
    known = {name: ask for name, ask in memory.asks.items() if name not in given.forgotten}
    asks, notes = next_asks(known, given.incidents, fleet, now_ns=given.now_ns)
    silenced = frozenset(s.escalation.incident_id for s in given.incidents if s.suppression)
    asked = Asked.of(asks.values(), silenced, now_ns=given.now_ns)
    rotations, drains = next_rotations(memory.rotations, asked, overrides, fleet, now_ns=now_ns)
    out = frozenset(name for name, rotation in rotations.items() if rotation.is_out)
    moved, shares = next_moved(memory.moved, asked, out, fleet, now_ns=now_ns)
    held, holds = next_held(memory.held, asked, fleet.limits, now_ns=now_ns)
    after = replace(memory, now_ns=now_ns, asks=asks, moved=moved, rotations=rotations, held=held)
    told = tuple(dict.fromkeys((*notes, *shares, *drains, *holds, *lifted(held, overrides))))
    return _told(memory, replace(after, notes=told), overrides, given)


def _told(before: Memory, after: Memory, overrides: Sequence[Override], given: Round) -> Decision:
    """Number what changed and write down why."""
    fleet = given.fleet
    wanted = [_route(name, after, overrides, given) for name in (ALL, *sorted(fleet.slices))]
    changed = [r for r in wanted if not _same(before.routes.get(r.key.slice), r)]
    revision = before.revision + bool(changed)
    routes = tuple(
        replace(r, revision=revision if r in changed else before.routes[r.key.slice].revision) for r in wanted
    )
    memory = replace(after, revision=revision, routes={r.key.slice: r for r in routes})
    return Decision(memory, routes, tuple(_audit(before, memory, routes, fleet)))


def _route(name: str, memory: Memory, overrides: Sequence[Override], given: Round) -> Route:
    fleet, moved = given.fleet, memory.moved.get(name)
    weights, by_person = weights_of(name, moved.share if moved else 0.0, overrides, fleet)
    notes = [n for n in memory.notes if n.slice in {ALL, name}] if name != ALL else _of_all(memory.notes)
    if by_person:
        notes.insert(0, Note(name, Why.OVERRIDE, by_person))
    notes.sort(key=lambda note: RANK.index(note.why))
    return Route(
        key=RouteKey(fleet.policy, name),
        weights=weights,
        shadow=_shadow(name, overrides),
        drained=frozenset(n for n, rotation in memory.rotations.items() if rotation.is_out),
        holds=_holds(memory, overrides) if name == ALL else {},
        why=notes[0].why if notes else Why.CONFORMING,
        detail="; ".join(dict.fromkeys(note.text for note in notes)),
        incidents=tuple(sorted({i for note in notes for i in note.incidents})),
        valid_until_ns=given.now_ns + round(fleet.limits.lease_s * NS_PER_S),
    )


def _of_all(notes: Iterable[Note]) -> list[Note]:
    return [note for note in notes if note.slice == ALL]


def _shadow(name: str, overrides: Sequence[Override]) -> dict[str, float]:
    """What is copied: a person's word, else the plan's."""
    for yields in (False, True):
        found = chosen(overrides, name, yields=yields)
        if found and found.shadow:
            return {
                kernel: found.shadow[kernel] for kernel in sorted(found.shadow) if found.shadow[kernel] > 0
            }
    return {}


def _holds(memory: Memory, overrides: Sequence[Override]) -> dict[Hold, str]:
    lifted = released(overrides)
    return {hold: held.argument for hold, held in memory.held.items() if hold not in lifted}


def same_wish(one: Route, other: Route) -> bool:
    """Tell whether two routes want the same of a router and of a trainer, for whatever reason."""
    return (one.key, one.weights, one.shadow, one.drained, one.holds) == (
        other.key,
        other.weights,
        other.shadow,
        other.drained,
        other.holds,
    )


def _same(before: Route | None, after: Route) -> bool:
    """Only the lease and the number may differ."""
    return before is not None and before == replace(
        after, revision=before.revision, valid_until_ns=before.valid_until_ns
    )


def _audit(before: Memory, after: Memory, routes: Sequence[Route], fleet: Fleet) -> Iterable[AuditEntry]:
    for route in routes:
        known = before.routes.get(route.key.slice)
        if known is None or not same_wish(known, route):
            text = f"{_wish(known)} -> {_wish(route)}" if known else _wish(route)
            detail = f"{text}: {route.detail}" if route.detail else text
            yield _entry(
                after,
                fleet,
                route.key.slice,
                AuditKind.DECIDED,
                Note(ALL, route.why, detail, route.incidents),
            )
    for note in after.notes:
        if note.why in _WITHHELD and note not in before.notes:
            yield _entry(after, fleet, note.slice, AuditKind.WITHHELD, note)


def _entry(memory: Memory, fleet: Fleet, name: str, kind: AuditKind, note: Note) -> AuditEntry:
    key = RouteKey(fleet.policy, name)
    found = (memory.revision, note.incidents, fleet.dry_run)
    return AuditEntry(memory.now_ns, key, kind, note.why, note.text, *found)


def _wish(route: Route | None) -> str:
    """Say a route in words, such as ``inference 0.5, reference 0.5, out: r2, hold_refit``."""
    if route is None:
        return "nothing"
    parts = [f"{kernel} {share:g}" for kernel, share in route.weights.items()]
    parts += [f"copied to {kernel} {share:g}" for kernel, share in route.shadow.items()]
    parts += [f"out: {' '.join(sorted(route.drained))}"] if route.drained else []
    parts += [f"{hold.value} {argument}".strip() for hold, argument in route.holds.items()]
    return ", ".join(parts)


def due_ns(memory: Memory, given: Round) -> int | None:
    """Return when the desired state may next change by itself; None if by nothing but news."""
    limits = given.fleet.limits
    dwell_ns = round(limits.dwell_s * NS_PER_S)
    own = [moved.since_ns + dwell_ns for moved in memory.moved.values()]
    own += [held.since_ns + dwell_ns for held in memory.held.values()]
    own += [ejection_ends_ns(r, limits) for r in memory.rotations.values() if r.is_out]
    stamped = [ask.until_ns for ask in memory.asks.values()]
    stamped += [time_ns for o in given.overrides for time_ns in (o.starts_ns, o.ends_ns)]
    stamped += [s.suppression.ends_ns for s in given.incidents if s.suppression]
    dues = [due for due in own if due > memory.now_ns] + [due for due in stamped if due > given.now_ns]
    return min(dues, default=None)
