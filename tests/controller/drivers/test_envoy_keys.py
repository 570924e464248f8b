"""Runtime keys of a route: none shared, and read back as meant."""

import pytest
from fleets import ALL, GOLD, fleet_of, route

from paritas.controller.drivers.envoy_keys import layer_of, observed_shares, prefix_of
from paritas.controller.routing.model import RouteKey


def test_a_layer_names_every_replica_of_every_route_also_at_zero():
    layer = layer_of(fleet_of(), [route(inference=0.0), route(GOLD, shadow={"reference": 0.25})])
    weights = {key: value for key, value in layer.items() if ".shadow." not in key}
    assert weights == {
        "paritas.qwen3-8b.all.r0": 0,
        "paritas.qwen3-8b.all.r1": 0,
        "paritas.qwen3-8b.all.ref": 10_000,
        "paritas.qwen3-8b.tier%3Dgold.r0": 5_000,
        "paritas.qwen3-8b.tier%3Dgold.r1": 5_000,
        "paritas.qwen3-8b.tier%3Dgold.ref": 0,
    }
    assert layer["paritas.qwen3-8b.tier%3Dgold.shadow.ref"] == {
        "numerator": 2_500,
        "denominator": "TEN_THOUSAND",
    }


def test_a_layer_is_read_back_as_it_was_meant():
    fleet = fleet_of()
    layer = layer_of(fleet, [route(inference=0.25, drained=("r0",), shadow={"reference": 0.5})])
    weights, shadow, serving = observed_shares(fleet, layer, ALL)
    assert weights == pytest.approx({"inference": 0.25, "reference": 0.75})
    assert shadow == pytest.approx({"reference": 0.5})
    assert serving == {"r1", "ref"}


@pytest.mark.parametrize(("one", "other"), [("a.b", "a_b"), ("a=b", "a.b"), ("a%3Db", "a=b"), ("a", "A")])
def test_two_slices_never_share_a_key(one, other):
    assert prefix_of(RouteKey("p", one)) != prefix_of(RouteKey("p", other))


def test_a_key_has_no_dot_of_its_own():
    assert prefix_of(RouteKey("a.b", "c.d")).count(".") == 2
