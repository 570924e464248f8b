"""Routers that know only in and out: which replicas should be members, and what cannot be said so."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paritas.controller.drivers.weights import serving
from paritas.controller.routing.model import ALL, Fleet, Replica, Route, RouteKey

__all__ = ["Change", "Members", "change_of", "members_of"]


@dataclass(frozen=True, slots=True)
class Members:
    """Replicas wanted in rotation, and the routes that in and out cannot express, with the reason."""

    wanted: tuple[Replica, ...]
    unsupported: dict[RouteKey, str]


@dataclass(frozen=True, slots=True)
class Change:
    """Replicas to add and to remove; `add` goes first, so that nobody is left without a server."""

    add: tuple[Replica, ...]
    remove: tuple[Replica, ...]


def members_of(fleet: Fleet, routes: Iterable[Route]) -> Members:
    """Return who should be in: not drained, and of a kernel that answers requests.

    Examples
    --------
    >>> fleet = Fleet("p", (Replica("a", "inference"), Replica("b", "inference"), Replica("c", "reference")))
    >>> route = Route(RouteKey("p"), {"inference": 1.0, "reference": 0.0}, drained=frozenset({"b"}))
    >>> [replica.name for replica in members_of(fleet, [route]).wanted]
    ['a']
    """
    wanted: tuple[Replica, ...] = ()
    unsupported: dict[RouteKey, str] = {}
    for route in routes:
        if why := _why_not(fleet, route):
            unsupported[route.key] = why
        else:
            wanted = _wanted(fleet, route)
    return Members(wanted, unsupported)


def change_of(fleet: Fleet, wanted: Sequence[Replica], present: Iterable[str]) -> Change:
    """Return what leads from the targets `present` to those `wanted`; targets not of the fleet stay."""
    there, names = set(present), {replica.name for replica in wanted}
    out = tuple(r for r in fleet.replicas if r.target in there and r.name not in names)
    return Change(tuple(r for r in wanted if r.target not in there), out)


def _why_not(fleet: Fleet, route: Route) -> str:
    if route.key != RouteKey(fleet.policy, ALL):
        return f"this router cannot tell slice {route.key.slice!r} from the others"
    if any(share > 0.0 for share in route.shadow.values()):
        return "this router cannot copy requests"
    kernels = {replica.kernel for replica in fleet.replicas}
    if any(0.0 < route.weights.get(kernel, 0.0) < 1.0 for kernel in kernels):
        return "this router knows only in and out, not shares"
    return ""


def _wanted(fleet: Fleet, route: Route) -> tuple[Replica, ...]:
    kernels = serving(fleet, route)
    return tuple(r for k, replicas in kernels.items() if route.weights.get(k, 0.0) > 0.0 for r in replicas)
