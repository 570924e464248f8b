"""The Envoy driver against a real Envoy: every state is obeyed by the next request."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import pytest
from fleets import ALL, GOLD, fleet_of, route
from free_ports import free_port
from system.otel_parts import wait_until
from system.parts import why_not
from system.router_process import Workers, ask, envoy

from paritas.clock import SystemClock
from paritas.controller.drivers.driver import Outcome
from paritas.controller.drivers.envoy import EnvoyDriver, EnvoySettings
from paritas.controller.drivers.envoy_config import Addresses

START_S = 90.0
REQUESTS = 200

pytestmark = pytest.mark.skipif(why_not("routers") is not None, reason=str(why_not("routers")))


@pytest.fixture(scope="module")
def workers():
    opened = Workers("r0", "r1", "ref")
    yield opened
    opened.close()


@asynccontextmanager
async def driven(folder, workers, listen="127.0.0.1:0"):
    """A driver with an Envoy that follows it and has taken a first state; yields driver and URL."""
    fleet = fleet_of()
    async with EnvoyDriver(EnvoySettings(listen, ack_s=START_S), fleet, SystemClock()) as driver:
        ports = (f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}")
        hosts = {name: workers.address(name) for name in ("r0", "r1", "ref")}
        with envoy(folder, fleet, Addresses(*ports, driver.target, hosts)) as url:
            await driver.apply([route()])
            yield driver, url


def played(folder, workers, *states, headers=None):
    """Apply each state and ask at once; return (outcome, who answered, what is observed) of each."""

    async def scene():
        found = []
        async with driven(folder, workers) as (driver, url):
            for state in states:
                (applied, *_) = await driver.apply(state)
                answered = await asyncio.to_thread(ask, url, REQUESTS, **(headers or {}))
                found.append((applied, answered, await driver.observe()))
        return found

    return asyncio.run(scene())


def test_the_next_request_obeys(tmp_path, workers):
    healthy, moved, drained, back = played(
        tmp_path, workers, [route()], [route(inference=0.0)], [route(drained=("r0",))], [route()]
    )
    assert {found[0].outcome for found in (healthy, moved, drained, back)} == {Outcome.APPLIED}
    assert moved[1] == {"ref": REQUESTS}
    assert drained[1] == {"r1": REQUESTS}
    assert set(healthy[1]) == set(back[1]) == {"r0", "r1"}
    assert moved[2].serving == {"ref"}
    assert drained[2].serving == {"r1"}


def test_a_share_of_the_requests_moves(tmp_path, workers):
    ((_, answered, observed),) = played(tmp_path, workers, [route(inference=0.75)])
    # Binomial(200, .25): eight deviations of luck on either side
    assert 10 < answered["ref"] < 100
    assert observed.weights[ALL] == {"inference": 0.75, "reference": 0.25}


def test_one_slice_moves_and_the_others_stay(tmp_path, workers):
    states = [route(), route(GOLD, inference=0.0)]
    ((_, answered, observed),) = played(tmp_path, workers, states, headers={"x_tier": "gold"})
    assert answered == {"ref": REQUESTS}
    assert observed.weights[GOLD] == {"inference": 0.0, "reference": 1.0}
    ((_, answered, _),) = played(tmp_path, workers, states)
    assert set(answered) == {"r0", "r1"}


def test_a_copy_reaches_the_candidate_and_nobody_hears_its_answer(tmp_path, workers):
    workers.hits.clear()

    def copied():
        return sum(count for (name, _), count in list(workers.hits.items()) if name == "ref")

    async def scene():
        async with driven(tmp_path, workers) as (driver, url):
            await driver.apply([route(shadow={"reference": 1.0})])
            answered = await asyncio.to_thread(ask, url, REQUESTS)
            everything = lambda: copied() >= REQUESTS  # noqa: E731
            await asyncio.to_thread(wait_until, everything, "the last copies, which may be on their way")
            return answered, await driver.observe()

    answered, observed = asyncio.run(scene())
    assert set(answered) == {"r0", "r1"}
    assert copied() == REQUESTS
    assert observed.shadow[ALL] == {"reference": 1.0}


def test_an_envoy_keeps_its_routes_without_a_controller_and_follows_the_next_one(tmp_path, workers):
    async def scene():
        listen = f"127.0.0.1:{free_port()}"  # none that the kernel gives away while no driver has it
        async with driven(tmp_path, workers, listen) as (driver, url):
            await driver.apply([route(inference=0.0)])
            await driver.__aexit__(None, None, None)
            alone = await asyncio.to_thread(ask, url, 20)
            async with EnvoyDriver(EnvoySettings(listen, ack_s=START_S), fleet_of(), SystemClock()) as second:
                (applied,) = await second.apply([route()])
                return alone, applied, await asyncio.to_thread(ask, url, 20)

    alone, applied, after = asyncio.run(scene())
    assert alone == Counter(ref=20)
    assert applied.outcome is Outcome.APPLIED
    assert set(after) == {"r0", "r1"}
