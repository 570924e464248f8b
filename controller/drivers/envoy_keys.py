"""The names under which Envoy's runtime holds a route, and the layer that says what is wanted.

A replica is a cluster of its own, so that one weight both shifts a share and drains; the runtime
keys are ``paritas.POLICY.SLICE.CLUSTER`` for weights and ``paritas.POLICY.SLICE.shadow.CLUSTER``
for the share of requests that is copied.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from paritas.controller.drivers.weights import TOTAL_WEIGHT, kernel_shares, replica_weights, serving, whole
from paritas.controller.routing.model import Fleet, Replica, Route, RouteKey

__all__ = ["cluster_name", "layer_of", "observed_shares", "prefix_of", "shadow_key"]

_DENOMINATOR = "TEN_THOUSAND"


def prefix_of(key: RouteKey) -> str:
    """Return the ``runtime_key_prefix`` of a route.

    Examples
    --------
    >>> prefix_of(RouteKey("qwen3-8b", "tier=gold"))
    'paritas.qwen3-8b.tier%3Dgold'
    """
    return f"paritas.{_plain(key.policy)}.{_plain(key.slice)}"


def cluster_name(replica: Replica) -> str:
    """Return the name of the replica's cluster: its target, or its own name."""
    return replica.target or replica.name


def shadow_key(key: RouteKey, replica: Replica) -> str:
    """Return the runtime key of the share of requests copied to `replica`."""
    return f"{prefix_of(key)}.shadow.{cluster_name(replica)}"


def layer_of(fleet: Fleet, routes: Iterable[Route]) -> dict[str, Any]:
    """Return the runtime layer of `routes`: every key of every route, also those that are 0."""
    layer: dict[str, Any] = {}
    for route in routes:
        weights = replica_weights(fleet, route)
        for replica in fleet.replicas:
            layer[f"{prefix_of(route.key)}.{cluster_name(replica)}"] = weights[replica.name]
        layer |= _shadows(fleet, route)
    return layer


def observed_shares(
    fleet: Fleet, layer: Mapping[str, Any], key: RouteKey
) -> tuple[dict[str, float], dict[str, float], frozenset[str]]:
    """Read one route back from a layer: share and shadow share by kernel, names of replicas with a weight."""
    prefix = prefix_of(key)
    weights = {r.name: float(layer.get(f"{prefix}.{cluster_name(r)}", 0)) for r in fleet.replicas}
    shadow = {r.kernel: 0.0 for r in fleet.replicas}
    for replica in fleet.replicas:
        shadow[replica.kernel] += _share(layer.get(shadow_key(key, replica)))
    in_rotation = frozenset(name for name, weight in weights.items() if weight > 0)
    return kernel_shares(fleet, weights), {k: v for k, v in shadow.items() if v > 0}, in_rotation


def _shadows(fleet: Fleet, route: Route) -> dict[str, Any]:
    """Copies go to the replicas of a kernel in equal parts: one mirror each, its fraction below 1."""
    shares = dict.fromkeys((replica.name for replica in fleet.replicas), 0)
    for kernel, replicas in serving(fleet, route).items():
        share = min(max(route.shadow.get(kernel, 0.0), 0.0), 1.0)
        parts = whole([1.0] * len(replicas), round(share * TOTAL_WEIGHT))
        shares |= {replica.name: part for replica, part in zip(replicas, parts, strict=True)}
    return {shadow_key(route.key, r): _fraction(shares[r.name]) for r in fleet.replicas}


def _fraction(numerator: int) -> dict[str, Any]:
    """A plain number would be read as percent; this form names its denominator."""
    return {"numerator": numerator, "denominator": _DENOMINATOR}


def _share(value: Any) -> float:
    return float(value["numerator"]) / TOTAL_WEIGHT if isinstance(value, Mapping) else 0.0


def _plain(name: str) -> str:
    """Percent-encode: a dot would nest the key, and two slices must never share one."""
    return quote(name, safe="").replace(".", "%2E")
