"""A small fleet for tests of routes and drivers."""

from paritas.controller.routing.model import Fleet, Replica, Route, RouteKey

ALL = RouteKey("qwen3-8b")
GOLD = RouteKey("qwen3-8b", "tier=gold")
REPLICAS = (Replica("r0", "inference"), Replica("r1", "inference"), Replica("ref", "reference"))


def fleet_of(*, targets=None, **declared):
    """The fleet; `targets` gives each replica the name its router knows it by."""
    replicas = REPLICAS
    if targets:
        replicas = tuple(Replica(r.name, r.kernel, targets[r.name]) for r in REPLICAS)
    return Fleet("qwen3-8b", replicas, **{"slices": {"tier=gold": {"x-tier": "gold"}}} | declared)


def route(key=ALL, *, inference=1.0, **wanted):
    """One route: so much to the inference kernel, the rest to the reference."""
    drained = frozenset(wanted.pop("drained", ()))
    return Route(key, {"inference": inference, "reference": 1.0 - inference}, drained=drained, **wanted)
