"""What counts as a difference between what is wanted and what a router shows."""

from routing_scenes import fleet

from paritas.controller.drivers.driver import Observed
from paritas.controller.routing.drift import differences
from paritas.controller.routing.model import Route, RouteKey

KEY = RouteKey("qwen3-8b")
OF = fleet(inference=2)
ROUTE = Route(KEY, {"inference": 0.5, "reference": 0.5}, drained=frozenset({"r2"}))
IN = frozenset({"r1", "f1"})


def found(weights, serving=IN, route=ROUTE):
    shown = {} if weights is None else {KEY: weights}
    return differences([route], Observed(shown, serving=frozenset(serving)), OF)


def test_what_is_as_wanted_differs_in_nothing():
    assert found({"inference": 0.5, "reference": 0.5}) == ()
    assert found({"inference": 0.5004, "reference": 0.4996}) == ()  # whole weights
    assert found(None) == ()  # a router that knows no shares


def test_shares_that_are_off():
    assert found({"inference": 0.6, "reference": 0.4}) == (
        "slice all: inference gets 0.6, should get 0.5",
        "slice all: reference gets 0.4, should get 0.5",
    )
    assert (
        found({"inference": 0.5, "reference": 0.4, "fp8": 0.1})[0] == "slice all: fp8 gets 0.1, should get 0"
    )


def test_members_that_are_off():
    assert found(None, {"r1", "r2"}) == (
        "r2 is in rotation and should be out",
        "f1 is out of rotation and should be in",
    )


def test_a_kernel_without_requests_may_be_in_or_out():
    route = Route(KEY, {"inference": 1.0})
    assert found(None, {"r1", "r2"}, route) == found(None, {"r1", "r2", "f1"}, route) == ()
