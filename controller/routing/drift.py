"""How what a router shows differs from what is wanted, in words; empty when it does not."""

from collections.abc import Sequence

from paritas.controller.drivers.driver import Observed
from paritas.controller.routing.model import Fleet, Route

__all__ = ["SHARE_OFF", "differences"]

SHARE_OFF = 0.005  # routers count in whole weights


def differences(routes: Sequence[Route], observed: Observed, fleet: Fleet) -> tuple[str, ...]:
    """Return one sentence a difference.

    Examples
    --------
    >>> from paritas.controller.routing.model import Replica, RouteKey
    >>> fleet = Fleet("p", (Replica("r1", "inference"), Replica("r2", "inference")))
    >>> route = Route(RouteKey("p"), {"inference": 1.0}, drained=frozenset({"r2"}))
    >>> differences([route], Observed(serving=frozenset({"r1", "r2"})), fleet)
    ('r2 is in rotation and should be out',)
    """
    found = [text for route in routes for text in _shares(route, observed)]
    return (*found, *_members(routes, observed, fleet))


def _shares(route: Route, observed: Observed) -> Sequence[str]:
    shown = observed.weights.get(route.key)
    if shown is None:
        return ()  # a router that knows no shares
    off = [
        kernel
        for kernel in sorted({*route.weights, *shown})
        if abs(route.weights.get(kernel, 0.0) - shown.get(kernel, 0.0)) > SHARE_OFF
    ]
    return [
        f"slice {route.key.slice}: {kernel} gets {shown.get(kernel, 0.0):g}, should get {route.weights.get(kernel, 0.0):g}"
        for kernel in off
    ]


def _members(routes: Sequence[Route], observed: Observed, fleet: Fleet) -> Sequence[str]:
    """A replica whose kernel gets requests should be in; a drained one should not."""
    drained = frozenset[str]().union(*(route.drained for route in routes))
    used = {kernel for route in routes for kernel, share in route.weights.items() if share > SHARE_OFF}
    wanted = {r.name for r in fleet.replicas if r.kernel in used} - drained
    out = [f"{name} is in rotation and should be out" for name in sorted(drained & observed.serving)]
    missing = [f"{name} is out of rotation and should be in" for name in sorted(wanted - observed.serving)]
    return [*out, *missing]
