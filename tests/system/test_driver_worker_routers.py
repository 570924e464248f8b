"""The drivers of sglang-router and vllm-router against the real programs."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from fleets import fleet_of, route
from free_ports import free_port
from system.parts import why_not
from system.router_process import Workers, ask, worker_router

from paritas.clock import SystemClock
from paritas.controller.drivers.driver import Outcome
from paritas.controller.drivers.worker_router import Dialect, WorkerRouterDriver, WorkerRouterSettings
from paritas.errors import TransientError

START_S, REQUEST_S = 150.0, 30.0  # the routers are Python programs that load much
REQUESTS = 40

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(why_not("routers") is not None, reason=str(why_not("routers"))),
    pytest.mark.parametrize("kind", list(Dialect)),
]


@pytest.fixture(scope="module")
def workers():
    opened = Workers("r0", "r1", "ref")
    yield opened
    opened.close()


@asynccontextmanager
async def driven(folder, kind, workers, *, strangers=(), settle_s=60.0, **targets):
    """A driver over a running router that has r0, r1 and `strangers`; yields driver and URL."""
    urls = {name: f"http://{workers.address(name)}" for name in ("r0", "r1", "ref")} | targets
    fleet = fleet_of(targets=urls)
    with worker_router(folder, kind, [urls["r0"], urls["r1"], *strangers]) as url:
        settings = WorkerRouterSettings(url, request_s=REQUEST_S, settle_s=settle_s)
        async with WorkerRouterDriver(kind, settings, fleet, SystemClock()) as driver:
            await ready(driver)
            yield driver, url


async def ready(driver):
    """Wait until the router shows both of its first workers as healthy; nothing tells when that is."""
    async with asyncio.timeout(START_S):
        while True:
            try:
                if {"r0", "r1"} <= (await driver.observe()).serving:
                    return
            except TransientError:
                pass
            await asyncio.sleep(0.1)


def test_replicas_leave_and_come_back_and_the_next_request_obeys(tmp_path, kind, workers):
    async def scene():
        found = []
        async with driven(tmp_path, kind, workers) as (driver, url):
            for state in (route(drained=("r1",)), route(inference=0.0), route()):
                (applied,) = await driver.apply([state])
                answered = await asyncio.to_thread(ask, url, REQUESTS)
                found.append((applied.outcome, set(answered), (await driver.observe()).serving))
        return found

    assert asyncio.run(scene()) == [
        (Outcome.APPLIED, {"r0"}, {"r0"}),
        (Outcome.APPLIED, {"ref"}, {"ref"}),
        (Outcome.APPLIED, {"r0", "r1"}, {"r0", "r1"}),
    ]


def test_what_it_cannot_do_and_the_last_replica_change_nothing(tmp_path, kind, workers):
    async def scene():
        async with driven(tmp_path, kind, workers) as (driver, _url):
            asked = [route(inference=0.5), route(drained=("r0", "r1"))]
            said = [(await driver.apply([state]))[0] for state in asked]
            return [(a.outcome, a.detail) for a in said], (await driver.observe()).serving

    said, serving = asyncio.run(scene())
    assert said == [
        (Outcome.UNSUPPORTED, "this router knows only in and out, not shares"),
        (Outcome.FAILED, "no replica would be left in rotation; nothing was changed"),
    ]
    assert serving == {"r0", "r1"}


@pytest.mark.thorough
def test_a_replica_that_is_dead_does_not_come_in_and_nobody_leaves_for_it(tmp_path, kind, workers):
    async def scene():
        dead = f"http://127.0.0.1:{free_port()}"
        async with driven(tmp_path, kind, workers, ref=dead, settle_s=10.0) as (driver, url):
            (applied,) = await driver.apply([route(inference=0.0)])
            return applied, set(await asyncio.to_thread(ask, url, REQUESTS))

    applied, answered = asyncio.run(scene())
    assert applied.outcome is Outcome.FAILED
    assert applied.detail.startswith("no wanted replica is healthy; none was removed")
    assert answered == {"r0", "r1"}


def test_a_worker_that_nobody_declared_is_shown_and_left_alone(tmp_path, kind, workers):
    stranger = Workers("stranger")

    async def scene():
        url = f"http://{stranger.address('stranger')}"
        async with driven(tmp_path, kind, workers, strangers=[url]) as (driver, _url):
            await driver.apply([route(drained=("r1",))])
            return (await driver.observe()).unknown, (url,)

    try:
        shown, expected = asyncio.run(scene())
    finally:
        stranger.close()
    assert shown == expected


def test_a_router_that_is_away_is_a_failure_and_cannot_be_observed(kind):
    async def scene():
        fleet = fleet_of(targets={name: f"http://{name}" for name in ("r0", "r1", "ref")})
        settings = WorkerRouterSettings(f"http://127.0.0.1:{free_port()}")
        async with WorkerRouterDriver(kind, settings, fleet, SystemClock()) as driver:
            with pytest.raises(TransientError, match=rf"^{kind}: GET /workers failed: "):
                await driver.observe()
            return (await driver.apply([route()]))[0]

    assert asyncio.run(scene()).outcome is Outcome.FAILED
