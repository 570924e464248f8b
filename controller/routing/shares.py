"""How much of each slice's requests is moved to the reference kernel: up at once, down slowly."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

from paritas.clock import NS_PER_S
from paritas.controller.routing.asks import Asked
from paritas.controller.routing.memory import Ask, Moved, Note
from paritas.controller.routing.model import ALL, INFERENCE, REFERENCE, FailMode, Fleet, Why
from paritas.controller.routing.override import Override, chosen

__all__ = ["away", "base_weights", "next_moved", "weights_of"]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Of one slice: the share that may be moved now, the share that may stay, and on whose word."""

    name: str
    share: float
    stays: float
    live: tuple[Ask, ...]
    others: tuple[Ask, ...]


def next_moved(
    moved: Mapping[str, Moved], asked: Asked, out: Iterable[str], fleet: Fleet, *, now_ns: int
) -> tuple[dict[str, Moved], list[Note]]:
    """Return the share moved of each slice, and the reasons.

    More is moved at once.  Less only when no ask holds it, and `dwell_s` after the last move.
    """
    taken_out, notes, after = frozenset(out), [], {}
    for name in (ALL, *sorted(fleet.slices)):
        wanted = _wanted(name, asked, taken_out | _of_reference(fleet), fleet)
        before = _within(moved.get(name, Moved()), fleet)
        allowed, why = _allowed(wanted, before, _unsound(asked, taken_out, fleet), fleet)
        after[name], dwells = _step(before, allowed, wanted, fleet, now_ns=now_ns)
        notes += [*why, *dwells, *_reasons(wanted, after[name], fleet)]
    return {name: place for name, place in after.items() if place != Moved()}, notes


def _within(moved: Moved, fleet: Fleet) -> Moved:
    """A limit that the operator has lowered holds at once; nothing stays moved to a kernel that is gone."""
    most = fleet.limits.share_moved_at_most if _of_reference(fleet) else 0.0
    return replace(moved, share=min(moved.share, most))


def _wanted(name: str, asked: Asked, out: frozenset[str], fleet: Fleet) -> _Wanted:
    def concerns(ask: Ask) -> bool:
        if ask.share <= 0.0 or (ask.replica and ask.replica in out):
            return False  # it asks for none, or what it is about takes no requests
        is_told_apart = ask.slice in fleet.slices
        return ask.slice == name or not is_told_apart

    live, lapsed, silenced = (
        tuple(a for a in asks if concerns(a)) for asks in (asked.live, asked.lapsed, asked.silenced)
    )
    share = max((a.share for a in live), default=0.0)
    if lapsed and fleet.fail_mode is FailMode.FALLBACK:
        share = 1.0
    others = (*lapsed, *silenced)
    return _Wanted(name, share, max((a.share for a in others), default=0.0), live, others)


def _allowed(wanted: _Wanted, before: Moved, unsound: str, fleet: Fleet) -> tuple[float, list[Note]]:
    """Cut down what is wanted to what the limits and a sound reference allow."""
    incidents = tuple(sorted(a.incident_id for a in wanted.live))
    share, most = wanted.share, fleet.limits.share_moved_at_most
    notes = []
    if share > most:
        text = f"{share:g} of the requests was asked for, {most:g} may be moved"
        notes.append(Note(wanted.name, Why.SHARE_CAP, text, incidents))
        share = most
    if share > before.share and unsound:
        text = f"{unsound}: nothing is moved, people are told"
        notes.append(Note(wanted.name, Why.NO_REFERENCE, text, incidents))
        share = before.share
    return share, notes


def _unsound(asked: Asked, out: frozenset[str], fleet: Fleet) -> str:
    """Say why the reference kernel may take no more; a bad replica of it that is out does no harm."""
    replicas = _of_reference(fleet)
    if not replicas:
        return "the fleet has no reference kernel"
    bad = {a.replica for a in asked.all if a.drains or a.share > 0.0} & (replicas - out)
    if bad or any(ask.unfit for ask in asked.all):
        return "the reference kernel itself breaks its contract"
    return ""


def _of_reference(fleet: Fleet) -> frozenset[str]:
    return frozenset(replica.name for replica in fleet.replicas if replica.kernel == REFERENCE)


def _step(
    before: Moved, share: float, wanted: _Wanted, fleet: Fleet, *, now_ns: int
) -> tuple[Moved, list[Note]]:
    share = max(share, min(before.share, wanted.stays))
    if share == before.share:
        return before, []
    if share < before.share and now_ns < before.since_ns + round(fleet.limits.dwell_s * NS_PER_S):
        text = f"{before.share:g} stays moved: the last move is less than {fleet.limits.dwell_s:g} s ago"
        return before, [Note(wanted.name, Why.DWELL, text)]
    return Moved(share, now_ns), []


def _reasons(wanted: _Wanted, after: Moved, fleet: Fleet) -> list[Note]:
    if after.share == 0.0:
        return []
    notes = [_moved(wanted.name, ask, fleet) for ask in wanted.live]
    lapsed = tuple(sorted(a.incident_id for a in wanted.others))
    if lapsed and not wanted.live:
        text = f"{after.share:g} stays moved: no recovery is known, and nothing new may be moved"
        notes.append(Note(wanted.name, Why.LEASE_EXPIRED, text, lapsed))
    return notes


def _moved(name: str, ask: Ask, fleet: Fleet) -> Note:
    text = f"slice {ask.slice} asks for {ask.share:g} on the reference kernel"
    if ask.replica:
        text += f"; {ask.replica} must stay in, so all requests are moved"
    elif ask.slice not in {ALL, *fleet.slices}:
        text += "; the router cannot tell it apart, so all requests are moved"
    return Note(name, Why.INCIDENT, text, (ask.incident_id,))


def base_weights(overrides: Sequence[Override], name: str) -> Mapping[str, float]:
    """Return the shares before any incident: a plan that yields, or all to the inference kernel."""
    plan = chosen(overrides, name, yields=True)
    return plan.weights if plan and plan.weights else {INFERENCE: 1.0}


def weights_of(
    name: str, share: float, overrides: Sequence[Override], fleet: Fleet
) -> tuple[dict[str, float], str]:
    """Return the shares of one slice, and what a person has to do with them ("" for nothing)."""
    base = _capped(_served(base_weights(overrides, name), fleet), fleet.limits.share_moved_at_most)
    order = chosen(overrides, name, yields=False)
    if order and order.weights:
        weights = _capped(_served(order.weights, fleet), fleet.limits.share_moved_at_most)
        return _positive(weights), _said(order)
    moved = {kernel: weight * (1.0 - share) for kernel, weight in base.items()}
    moved[REFERENCE] = moved.get(REFERENCE, 0.0) + share
    return _positive(_capped(moved, max(fleet.limits.share_moved_at_most, share))), ""


def _served(weights: Mapping[str, float], fleet: Fleet) -> dict[str, float]:
    """Leave out kernels that the fleet had when a person named them, and has no more."""
    kernels = {replica.kernel for replica in fleet.replicas}
    return {kernel: weight for kernel, weight in weights.items() if kernel in kernels}


def _said(override: Override) -> str:
    return f"{override.author}: {override.reason}"


def away(weights: Mapping[str, float]) -> float:
    """Return the share that the inference kernel does not get."""
    return 1.0 - weights.get(INFERENCE, 0.0)


def _capped(weights: Mapping[str, float], most: float) -> dict[str, float]:
    """Scale what is moved away down to `most`; the rest goes to the inference kernel."""
    others = {kernel: weight for kernel, weight in weights.items() if kernel != INFERENCE}
    total = fsum(others.values())
    factor = min(1.0, most / total) if total > 0.0 else 1.0
    kept = {kernel: weight * factor for kernel, weight in others.items()}
    return {**kept, INFERENCE: max(0.0, 1.0 - fsum(kept.values()))}


def _positive(weights: Mapping[str, float]) -> dict[str, float]:
    return {kernel: weights[kernel] for kernel in sorted(weights) if weights[kernel] > 0.0}
