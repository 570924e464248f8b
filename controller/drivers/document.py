"""The desired state as one JSON document, for drivers that hand it to somebody else's program."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from paritas.controller.drivers.driver import Observed
from paritas.controller.drivers.weights import replica_weights
from paritas.controller.routing.model import Fleet, Hold, Route, RouteKey

__all__ = ["VERSION", "document_of", "encoded", "observed_of"]

VERSION = 1


def document_of(fleet: Fleet, routes: Sequence[Route]) -> dict[str, Any]:
    """Return `routes` as plain values: shares by kernel, and the weight of each replica (they sum to 10,000)."""
    return {"version": VERSION, "policy": fleet.policy, "routes": [_route(fleet, route) for route in routes]}


def encoded(document: Mapping[str, Any]) -> bytes:
    """Return the document's bytes: equal documents give equal bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def observed_of(fleet: Fleet, document: Mapping[str, Any]) -> Observed:
    """Read a document back.

    Raises
    ------
    ValueError
        It is not one of ours, or of another policy.
    """
    try:
        if (document["version"], document["policy"]) != (VERSION, fleet.policy):
            raise ValueError(f"version {document['version']!r} of policy {document['policy']!r}")
        routes = [(RouteKey(fleet.policy, str(r["slice"])), r) for r in document["routes"]]
        weights = {key: _shares(route["weights"]) for key, route in routes}
        shadow = {key: _shares(route["shadow"]) for key, route in routes}
        serving = {name for _, r in routes for name, weight in r["replicas"].items() if weight > 0}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return Observed(weights, shadow, frozenset(serving))


def _route(fleet: Fleet, route: Route) -> dict[str, Any]:
    return {
        "slice": route.key.slice,
        "match": dict(fleet.slices.get(route.key.slice, {})),
        "weights": dict(route.weights),
        "shadow": dict(route.shadow),
        "replicas": replica_weights(fleet, route),
        "drained": sorted(route.drained),
        "holds": {Hold(hold).value: argument for hold, argument in route.holds.items()},
        "why": route.why.value,
        "detail": route.detail,
        "incidents": list(route.incidents),
        "revision": route.revision,
        "valid_until_ns": route.valid_until_ns,
    }


def _shares(shares: Mapping[str, Any]) -> dict[str, float]:
    return {str(kernel): float(share) for kernel, share in shares.items()}
