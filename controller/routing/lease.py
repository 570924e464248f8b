"""What a route is once its lease has ended: the declared fail mode, the same for everybody who holds it."""

from dataclasses import replace

from paritas.controller.routing.model import INFERENCE, REFERENCE, FailMode, Fleet, Route, Why

__all__ = ["effective", "fallback_weights"]


def fallback_weights(fleet: Fleet, route: Route) -> dict[str, float]:
    """Return the shares that hold when the controller is lost.

    ``hold`` keeps them; ``fallback`` moves as much as may be moved to the reference kernel, if there is one.
    """
    has_reference = any(replica.kernel == REFERENCE for replica in fleet.replicas)
    most = fleet.limits.share_moved_at_most
    if fleet.fail_mode is FailMode.HOLD or not has_reference or most <= 0.0:
        return dict(route.weights)
    return {REFERENCE: 1.0} if most >= 1.0 else {INFERENCE: 1.0 - most, REFERENCE: most}


def effective(route: Route, fleet: Fleet, *, now_ns: int) -> Route:
    """Return `route` as it binds at `now_ns`.

    Examples
    --------
    >>> from paritas.controller.routing.model import Replica, RouteKey
    >>> fleet = Fleet("p", (Replica("a", "inference"), Replica("b", "reference")), fail_mode=FailMode.FALLBACK)
    >>> route = Route(RouteKey("p"), {"inference": 1.0}, valid_until_ns=10)
    >>> [dict(effective(route, fleet, now_ns=now).weights) for now in (9, 10)]
    [{'inference': 1.0}, {'reference': 1.0}]
    """
    if now_ns < route.valid_until_ns:
        return route
    text = f"the controller has not renewed this route: {fleet.fail_mode.value}"
    return replace(route, weights=fallback_weights(fleet, route), why=Why.LEASE_EXPIRED, detail=text)
