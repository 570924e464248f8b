"""The router in this process splits exactly, leaves drained replicas out and says so."""

import asyncio
from collections import Counter

import pytest
from routing_scenes import fleet

from paritas.controller.drivers.memory import MemoryRouter
from paritas.controller.routing.model import Route, RouteKey

KEY, MATH = RouteKey("qwen3-8b"), RouteKey("qwen3-8b", "task=math")


@pytest.fixture
def router():
    return MemoryRouter(fleet(inference=2))


def sent(router, count, name="all"):
    return Counter(router.route(name) for _ in range(count))


def test_before_anything_is_applied_inference_gets_all(router):
    assert sent(router, 10) == {"r1": 5, "r2": 5}


def test_it_splits_exactly_by_slice(router):
    routes = [Route(KEY, {"inference": 1.0}), Route(MATH, {"inference": 0.5, "reference": 0.5})]
    asyncio.run(router.apply(routes))
    assert sent(router, 8, "task=math") == {"r1": 2, "r2": 2, "f1": 4}
    assert sent(router, 8) == sent(router, 8, "unknown") == {"r1": 4, "r2": 4}
    assert router.sent == {"r1": 10, "r2": 10, "f1": 4}


def test_a_drained_replica_gets_nothing_and_is_not_serving(router):
    asyncio.run(router.apply([Route(KEY, {"inference": 1.0}, drained=frozenset({"r1"}))]))
    assert sent(router, 4) == {"r2": 4}
    observed = asyncio.run(router.observe())
    assert observed.serving == {"r2"}
    assert observed.weights == {KEY: {"inference": 1.0, "reference": 0.0}}
