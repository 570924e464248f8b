"""The Envoy configuration that obeys `EnvoyDriver`: one cluster a replica, one route a slice.

What it holds before a controller speaks is the contract's healthy state: all requests to the
inference kernel, nothing copied.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paritas.controller.drivers.envoy import RESOURCE
from paritas.controller.drivers.envoy_keys import cluster_name, prefix_of, shadow_key
from paritas.controller.drivers.weights import replica_weights
from paritas.controller.routing.model import ALL, Fleet, Replica, Route, RouteKey
from paritas.errors import UsageError

__all__ = ["Addresses", "bootstrap"]

CONTROLLER = "paritas-controller"
_NO_LIMIT = "0s"  # a long answer is not a hanging one
_HCM = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
_HTTP_OPTIONS = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where everything listens, each as ``host:port`` (the controller also as ``unix:/path``).

    Attributes
    ----------
    listen : str
        Where Envoy takes requests.
    admin : str
        Envoy's admin page, which has no password: keep it on this machine.
    controller : str
        The driver's `target`.
    replicas : mapping of str to str
        Address by the replica's name.
    """

    listen: str
    admin: str
    controller: str
    replicas: Mapping[str, str]


def bootstrap(fleet: Fleet, addresses: Addresses, *, node: str = "gateway") -> dict[str, Any]:
    """Return Envoy's bootstrap as plain values, for YAML or JSON.

    Raises
    ------
    UsageError
        A replica has no address, or an address is not ``host:port``.
    """
    missing = [r.name for r in fleet.replicas if r.name not in addresses.replicas]
    if missing:
        raise UsageError(f"envoy: no address for replica {missing[0]!r}", hint="give host:port of each")
    return {
        "node": {"id": node, "cluster": fleet.policy},
        "admin": {"address": _address(addresses.admin)},
        "layered_runtime": {"layers": [_runtime(), {"name": "admin", "admin_layer": {}}]},
        "static_resources": {
            "listeners": [_listener(fleet, addresses.listen)],
            "clusters": [
                *(_cluster(cluster_name(r), addresses.replicas[r.name]) for r in fleet.replicas),
                _cluster(CONTROLLER, addresses.controller) | _http2(),
            ],
        },
    }


def _runtime() -> dict[str, Any]:
    source = {
        "api_type": "GRPC",
        "transport_api_version": "V3",
        "grpc_services": [{"envoy_grpc": {"cluster_name": CONTROLLER}}],
    }
    config = {"resource_api_version": "V3", "api_config_source": source}
    return {"name": RESOURCE, "rtds_layer": {"name": RESOURCE, "rtds_config": config}}


def _listener(fleet: Fleet, listen: str) -> dict[str, Any]:
    host = {"name": fleet.policy, "domains": ["*"], "routes": _routes(fleet)}
    manager = {
        "@type": _HCM,
        "stat_prefix": "gateway",
        "codec_type": "AUTO",
        "route_config": {"name": fleet.policy, "virtual_hosts": [host]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": _ROUTER}}],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    return {"name": "gateway", "address": _address(listen), "filter_chains": [chain]}


def _routes(fleet: Fleet) -> list[dict[str, Any]]:
    """The slices in their order, then everything else; the first that matches answers."""
    named = [_route(fleet, RouteKey(fleet.policy, name), headers) for name, headers in fleet.slices.items()]
    return [*named, _route(fleet, RouteKey(fleet.policy, ALL), {})]


def _route(fleet: Fleet, key: RouteKey, headers: Mapping[str, str]) -> dict[str, Any]:
    match: dict[str, Any] = {"prefix": "/"}
    if headers:
        match["headers"] = [{"name": n, "string_match": {"exact": v}} for n, v in headers.items()]
    weights = replica_weights(fleet, Route(key, {"inference": 1.0}))
    clusters = [{"name": cluster_name(r), "weight": weights[r.name]} for r in fleet.replicas]
    action = {
        "weighted_clusters": {"runtime_key_prefix": prefix_of(key), "clusters": clusters},
        "request_mirror_policies": [_mirror(key, r) for r in fleet.replicas],
        "timeout": _NO_LIMIT,
    }
    return {"name": key.slice, "match": match, "route": action}


def _mirror(key: RouteKey, replica: Replica) -> dict[str, Any]:
    nothing = {"numerator": 0, "denominator": "TEN_THOUSAND"}
    fraction = {"default_value": nothing, "runtime_key": shadow_key(key, replica)}
    return {"cluster": cluster_name(replica), "runtime_fraction": fraction}


def _cluster(name: str, address: str) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": _address(address)}}
    return {
        "name": name,
        "type": "STATIC" if address.startswith("unix:") else "STRICT_DNS",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _http2() -> dict[str, Any]:
    options = {"@type": _HTTP_OPTIONS, "explicit_http_config": {"http2_protocol_options": {}}}
    return {"typed_extension_protocol_options": {_HTTP_OPTIONS.partition("/")[2]: options}}


def _address(address: str) -> dict[str, Any]:
    if address.startswith("unix:"):
        return {"pipe": {"path": address.removeprefix("unix:")}}
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"envoy: {address!r} is not an address", hint="write host:port")
    return {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}
