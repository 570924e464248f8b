"""Which replicas are out of rotation: asked for, still serving their time, within the limits."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor

from paritas.clock import NS_PER_S
from paritas.controller.routing.asks import Asked
from paritas.controller.routing.memory import Ask, Note, Rotation
from paritas.controller.routing.model import ALL, Fleet, SafetyLimits, Why
from paritas.controller.routing.override import Override

__all__ = ["ejection_ends_ns", "next_rotations", "out_at_most"]

IN = Rotation(is_out=False, ejections=0, since_ns=0)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A replica that should be out, why, and on whose word."""

    name: str
    why: Why
    incidents: tuple[str, ...] = ()


def out_at_most(count: int, limits: SafetyLimits) -> int:
    """Return how many of `count` replicas of one kernel may be out at once.

    Examples
    --------
    >>> [out_at_most(n, SafetyLimits()) for n in (1, 2, 3, 8)]
    [0, 1, 1, 4]
    """
    by_share = floor(limits.drained_at_most * count + 1e-9)  # 0.3 * 10 is 3, whatever a float says
    return max(0, min(count - limits.minimum_healthy, by_share))


def ejection_ends_ns(rotation: Rotation, limits: SafetyLimits) -> int:
    """Return when the time out of an ejected replica is over."""
    out_s = min(limits.ejection_s * rotation.ejections, limits.ejection_at_most_s)
    return rotation.since_ns + round(out_s * NS_PER_S)


def next_rotations(
    rotations: Mapping[str, Rotation],
    asked: Asked,
    overrides: Sequence[Override],
    fleet: Fleet,
    *,
    now_ns: int,
) -> tuple[dict[str, Rotation], list[Note]]:
    """Return who is out, and the reasons; persons come first, then who is out, then the oldest ask."""
    wanted = list(_wanted(rotations, asked, overrides, fleet, now_ns=now_ns))
    taken, notes = _within_limits(wanted, fleet)
    out = {candidate.name: candidate for candidate in taken}
    turned = {
        replica.name: _turn(rotations.get(replica.name, IN), out.get(replica.name), fleet, now_ns=now_ns)
        for replica in fleet.replicas
    }
    notes += [_reason(candidate) for candidate in sorted(taken, key=lambda candidate: candidate.name)]
    notes += [*_admitted(asked, overrides), *_unnamed(asked)]
    return {name: rotation for name, rotation in turned.items() if rotation != IN}, notes


def _wanted(
    rotations: Mapping[str, Rotation],
    asked: Asked,
    overrides: Sequence[Override],
    fleet: Fleet,
    *,
    now_ns: int,
) -> Iterable[_Candidate]:
    admitted = frozenset[str]().union(*(o.admit for o in overrides))
    persons = frozenset[str]().union(*(o.drain for o in overrides))
    yield from (_Candidate(name, Why.OVERRIDE) for name in sorted(persons))
    left = persons | admitted
    by_age = sorted(rotations.items(), key=lambda item: (item[1].since_ns, item[0]))
    for name, rotation in by_age:
        if rotation.is_out and name not in left:
            found = _stays(name, rotation, asked, fleet.limits, now_ns=now_ns)
            yield from found
            left |= {candidate.name for candidate in found}
    for ask in sorted(asked.live, key=lambda ask: (ask.since_ns, ask.incident_id)):
        if _takes_out(ask) and ask.replica not in left:
            left |= {ask.replica}
            yield _Candidate(ask.replica, Why.INCIDENT, _asking(ask.replica, asked.all))


def _takes_out(ask: Ask) -> bool:
    """To move one replica's requests away is to take it out of rotation."""
    return bool(ask.replica) and (ask.drains or ask.share > 0.0)


def _asking(name: str, asks: Iterable[Ask]) -> tuple[str, ...]:
    return tuple(sorted(ask.incident_id for ask in asks if ask.replica == name and _takes_out(ask)))


def _stays(
    name: str, rotation: Rotation, asked: Asked, limits: SafetyLimits, *, now_ns: int
) -> tuple[_Candidate, ...]:
    """Nothing but the end of every ask, and of its time out, brings a replica back."""
    if incidents := _asking(name, asked.all):
        lapsed = Why.LEASE_EXPIRED if _asking(name, asked.lapsed) else Why.SILENCED
        return (_Candidate(name, Why.INCIDENT if _asking(name, asked.live) else lapsed, incidents),)
    if not rotation.by_person and now_ns < ejection_ends_ns(rotation, limits):
        return (_Candidate(name, Why.EJECTED),)
    return ()


def _within_limits(wanted: Sequence[_Candidate], fleet: Fleet) -> tuple[list[_Candidate], list[Note]]:
    kernel_of = {replica.name: replica.kernel for replica in fleet.replicas}
    sizes, out = Counter(kernel_of.values()), Counter[str]()
    taken: list[_Candidate] = []
    notes: list[Note] = []
    for candidate in wanted:
        kernel = kernel_of.get(candidate.name)
        if kernel is None:
            continue  # the fleet no longer has it
        if out[kernel] < out_at_most(sizes[kernel], fleet.limits):
            out[kernel] += 1
            taken.append(candidate)
        else:
            notes.append(_refused(candidate, sizes[kernel] - out[kernel], fleet.limits))
    return taken, notes


def _refused(candidate: _Candidate, healthy: int, limits: SafetyLimits) -> Note:
    if healthy <= limits.minimum_healthy:
        text = f"{candidate.name} stays in: {limits.minimum_healthy} must stay healthy"
        return Note(ALL, Why.MINIMUM_HEALTHY, text, candidate.incidents)
    text = f"{candidate.name} stays in: a share of at most {limits.drained_at_most:g} may be out"
    return Note(ALL, Why.SHARE_CAP, text, candidate.incidents)


def _turn(before: Rotation, out: _Candidate | None, fleet: Fleet, *, now_ns: int) -> Rotation:
    """Change the rotation of one replica, or leave it; an ejection by an incident counts."""
    ejections = _decayed(before, fleet.limits, now_ns=now_ns)
    if out is not None and not before.is_out:
        by_person = out.why is Why.OVERRIDE
        return Rotation(True, ejections + (not by_person), now_ns, by_person)
    if out is not None and before.by_person and out.why is not Why.OVERRIDE:
        return Rotation(True, ejections + 1, now_ns)  # a person's time is over, an incident's begins
    if out is None and before.is_out:
        return Rotation(False, before.ejections, now_ns)
    return IN if not before.is_out and ejections == 0 else before


def _decayed(rotation: Rotation, limits: SafetyLimits, *, now_ns: int) -> int:
    """One ejection is forgotten for each longest time out that the replica was in."""
    if rotation.is_out:
        return rotation.ejections
    periods = (now_ns - rotation.since_ns) // round(limits.ejection_at_most_s * NS_PER_S)
    return max(0, rotation.ejections - periods)


_TEXTS = {
    Why.OVERRIDE: "a person wants it out",
    Why.INCIDENT: "an incident asks for it",
    Why.LEASE_EXPIRED: "the incident was not heard of again; no recovery is known",
    Why.SILENCED: "the incident that took it out is silenced",
    Why.EJECTED: "its time out is not over",
}


def _reason(candidate: _Candidate) -> Note:
    return Note(ALL, candidate.why, f"{candidate.name} is out: {_TEXTS[candidate.why]}", candidate.incidents)


def _admitted(asked: Asked, overrides: Sequence[Override]) -> list[Note]:
    """What a person keeps in although an incident asks for it."""
    names = frozenset[str]().union(*(o.admit for o in overrides))
    asks = [a for a in asked.all if a.replica in names and _takes_out(a)]
    return [
        Note(ALL, Why.OVERRIDE, f"{a.replica} stays in: a person wants it in", (a.incident_id,)) for a in asks
    ]


def _unnamed(asked: Asked) -> list[Note]:
    return [
        Note(
            ALL,
            Why.NO_REPLICA,
            f"drain: slice {a.slice} names no replica of the fleet; people are told",
            (a.incident_id,),
        )
        for a in asked.live
        if a.drains and not a.replica
    ]
