"""A call whose client has left is cancelled; what it has begun to decide is decided all the same."""

import asyncio
import threading
from functools import partial

import pytest
from escalation_examples import DEADLINE_S, config
from routing_scenes import fleet

from paritas.clock import NS_PER_S, SystemClock
from paritas.controller.route_service import RouteService
from paritas.controller.routing import rows
from paritas.controller.routing.declared import Declared
from paritas.controller.routing.model import RouteKey
from paritas.controller.routing.override import Override
from paritas.controller.server import EscalationServer


class SlowDisk:
    """A real store on which decisions are written no sooner than `may` is set."""

    def __init__(self, store):
        self.store, self.begun, self.may, self.written = store, asyncio.Event(), threading.Event(), 0

    async def run(self, verb, *args, **kwargs):
        if verb is not rows.keep:
            return await self.store.run(verb, *args, **kwargs)
        begun = partial(asyncio.get_running_loop().call_soon_threadsafe, self.begun.set)

        def slowly(store):
            begun()
            assert self.may.wait(DEADLINE_S)
            self.written += 1
            return rows.keep(store, *args, **kwargs)

        return await self.store.run(slowly)


def test_an_override_whose_caller_gives_up_is_decided_once_and_at_once(tmp_path):
    """The call is cancelled while the decision is written: it holds, and is told, without another round."""

    of, now_ns = fleet(), SystemClock().now_ns()
    routed = config(tmp_path, routes=(Declared(of),))
    times = {"starts_ns": now_ns, "ends_ns": now_ns + 600 * NS_PER_S}
    order = Override("o1", RouteKey(of.policy), "ana", "swap", drain=frozenset({"r1"}), **times)

    async def scenario():
        async with asyncio.timeout(DEADLINE_S), EscalationServer(routed) as server:
            routing = server._routes
            disk = routing._store = SlowDisk(server._core.store)
            service = RouteService(routing, store=server._core.store, clock=SystemClock())
            calling = asyncio.create_task(service._keep(order, "said", now_ns=now_ns))
            await disk.begun.wait()
            rounds = routing.counts["rounds"]
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            disk.may.set()
            while routing.counts["rounds"] == rounds:  # noqa: ASYNC110  # memory tells no one
                await asyncio.sleep(0)
            return disk.written, routing.places[of.policy].table.drained

    assert asyncio.run(scenario()) == (1, frozenset({"r1"}))
