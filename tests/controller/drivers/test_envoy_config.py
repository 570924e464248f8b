"""The bootstrap an Envoy starts with."""

import pytest
from fleets import fleet_of

from paritas.controller.drivers.envoy_config import Addresses, bootstrap
from paritas.errors import UsageError

HOSTS = {"r0": "10.0.0.1:8000", "r1": "10.0.0.2:8000", "ref": "[::1]:8000"}


def made(**replaced):
    told = {"listen": "127.0.0.1:8080", "admin": "127.0.0.1:9901", "controller": "unix:/run/p.sock"}
    return bootstrap(fleet_of(), Addresses(**{**told, "replicas": HOSTS, **replaced}))


def test_before_a_controller_speaks_everything_goes_to_the_inference_kernel():
    manager = made()["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    gold, rest = manager["route_config"]["virtual_hosts"][0]["routes"]
    assert gold["match"]["headers"] == [{"name": "x-tier", "string_match": {"exact": "gold"}}]
    assert "headers" not in rest["match"], "what no slice names comes last"
    for one in (gold, rest):
        weights = {c["name"]: c["weight"] for c in one["route"]["weighted_clusters"]["clusters"]}
        assert weights == {"r0": 5_000, "r1": 5_000, "ref": 0}
        mirrors = one["route"]["request_mirror_policies"]
        assert [m["runtime_fraction"]["default_value"]["numerator"] for m in mirrors] == [0, 0, 0]


def test_the_controller_may_be_a_socket_and_an_address_version_six():
    clusters = {c["name"]: c for c in made()["static_resources"]["clusters"]}
    at = {name: c["load_assignment"]["endpoints"][0]["lb_endpoints"][0] for name, c in clusters.items()}
    assert at["paritas-controller"] == {"endpoint": {"address": {"pipe": {"path": "/run/p.sock"}}}}
    assert at["ref"]["endpoint"]["address"]["socket_address"] == {"address": "::1", "port_value": 8000}


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"replicas": {"r0": "a:1", "ref": "b:1"}}, "envoy: no address for replica 'r1'"),
        ({"listen": "8080"}, "envoy: '8080' is not an address"),
        ({"admin": "localhost:"}, "envoy: 'localhost:' is not an address"),
    ],
)
def test_an_address_that_is_none_is_said(replaced, message):
    with pytest.raises(UsageError) as refused:
        made(**replaced)
    assert str(refused.value) == message
