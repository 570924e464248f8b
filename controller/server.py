"""The escalation server: one event loop, one SQLite file, one address.

In a program: ``with serving(config) as target: ...``.  On an event loop of your own:
``async with EscalationServer(config) as server: ...``.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection

from paritas.clock import Clock, SystemClock
from paritas.controller.background import running
from paritas.controller.census import Promotions, census
from paritas.controller.config import ServerConfig
from paritas.controller.core import Core
from paritas.controller.hub import End, EndReason, Hub
from paritas.controller.journal import Journal
from paritas.controller.listening import Bound, bind, make_private
from paritas.controller.promotion.service import SERVICE as PROMOTIONS
from paritas.controller.promotion.serving import promoting
from paritas.controller.route_service import SERVICE as ROUTES
from paritas.controller.routing.loop import RoutingLoop
from paritas.controller.routing.serving import routing
from paritas.controller.service import EscalationService
from paritas.controller.silences import SilenceBook
from paritas.controller.store import Store
from paritas.controller.store_thread import StoreThread
from paritas.controller.vitals import Vitals, vitals_of
from paritas.controller.wire import silence_of
from paritas.errors import ParitasError
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.proto.v1 import escalation_pb2_grpc as pb_grpc

__all__ = ["SERVICE", "EscalationServer", "serving"]

SERVICE: str = pb.DESCRIPTOR.services_by_name["EscalationService"].full_name
_HEALTH: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_STATUS = {
    True: health_pb2.HealthCheckResponse.SERVING,
    False: health_pb2.HealthCheckResponse.NOT_SERVING,
}

log = logging.getLogger(__name__)


class EscalationServer:
    """Serves from entering to leaving the context.

    Parameters
    ----------
    config : ServerConfig
        What it listens on, keeps and bounds.
    clock : Clock
        Time stamps and the ends of silences; heartbeats follow the event loop.

    Attributes
    ----------
    target : str
        What clients connect to, e.g. ``127.0.0.1:4320`` or ``unix:/run/paritas.sock``.

    Raises
    ------
    UsageError
        On entering: the log or the address cannot be used.
    """

    def __init__(self, config: ServerConfig, *, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._core: Core | None = None
        self._routes: RoutingLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turned_away: Counter[str] = Counter()
        self._promotions = Promotions()
        self.target = ""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            checks = health.HealthServicer()
            core = await self._make_core(stack, checks)
            await self._listen(core, stack, checks)
            housekeeping = asyncio.create_task(_keep_house(core))
            stack.push_async_callback(_cancel, housekeeping)
            self._stack, self._core = stack.pop_all(), core
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop = None  # before anything is closed: who asks now is answered nothing
        await self._stack.aclose()

    @property
    def counts(self) -> Counter[str]:
        """Entries appended and duplicates, and streams ended by reason."""
        return Counter() if self._core is None else self._core.journal.counts + self._core.hub.counts

    def vitals(self, *, timeout_s: float) -> Vitals | None:
        """Ask, from another thread, how it does; None if nobody answered in time, or it is not entered.

        Raises
        ------
        TransientError, RefusalError
            The log cannot be read.
        """
        if (loop := self._loop) is None:
            return None
        asked: Future[Vitals] = asyncio.run_coroutine_threadsafe(self._vitals(), loop)
        try:
            return asked.result(timeout_s)
        except (TimeoutError, CancelledError):
            asked.cancel()
            return None

    async def _vitals(self) -> Vitals:
        core, routes = self._core, self._routes
        assert core is not None, "asked of a server that was entered"
        assert routes is not None, "asked of a server that was entered"
        found = await core.store.run(census, self._promotions, folder=core.config.database.parent)
        self._promotions = found.promotions
        return vitals_of(core, routes, found, turned_away=self._turned_away)

    async def _make_core(self, stack: AsyncExitStack, checks: Any) -> Core:
        config, clock = self._config, self._clock
        store = await stack.enter_async_context(StoreThread(config.database, retention=config.retention))
        _, head = await store.run(Store.bounds)
        hub = Hub(head=head, max_subscribers=config.limits.subscribers)
        stored = await store.run(Store.silences)
        silences = SilenceBook(silence_of(pb.Silence.FromString(payload)) for payload in stored)
        silences.forget_ended(now_ns=clock.now_ns())
        journal = Journal(store, hub, silences=silences, clock=clock, report=partial(_report, checks))
        return Core(config, clock, store, hub, journal, silences)

    async def _listen(self, core: Core, stack: AsyncExitStack, checks: Any) -> None:
        bound = bind(self._config, self._turned_away)
        server, self.target = bound.server, bound.target
        pb_grpc.add_EscalationServiceServicer_to_server(EscalationService(core, bound.callers), server)
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        promotions = promoting(self._config.promotion, core.store, server, clock=self._clock)
        ledger = await stack.enter_async_context(promotions)
        routes = self._routes = await stack.enter_async_context(routing(core, server))
        names = (SERVICE, ROUTES, PROMOTIONS, _HEALTH, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        await checks.set(SERVICE, _STATUS[True])
        await checks.set(PROMOTIONS, _STATUS[True])
        await checks.set(ROUTES, _STATUS[True])
        stack.push_async_callback(_close, bound, checks, core)
        stack.push_async_callback(routes.close)
        stack.push_async_callback(ledger.close)  # first: a watch would hold the server up
        await server.start()
        make_private(self._config.listen)
        if self._config.own_socket is not None:
            make_private(f"unix:{self._config.own_socket}")


async def _report(checks: Any, writable: bool) -> None:
    """Show under the service's name whether it can do its work; the process itself is alive."""
    await checks.set(SERVICE, _STATUS[writable])


async def _keep_house(core: Core) -> None:
    while True:
        await asyncio.sleep(core.config.housekeeping_s)
        try:
            await core.journal.compact()
        except ParitasError as error:
            log.warning("Compaction failed.", extra={"error": str(error)})


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _close(bound: Bound, checks: Any, core: Core) -> None:
    """Say so, end the streams with their tokens, let calls finish, then let the log go."""
    await checks.enter_graceful_shutdown()
    await core.hub.drain(End(EndReason.DRAINING, "the server is closing"), timeout_s=core.config.drain_s)
    await bound.calls.stop(bound.server, core.config.farewell_s)
    await core.journal.idle()


@contextmanager
def serving(config: ServerConfig, *, clock: Clock | None = None) -> Iterator[str]:
    """Serve from a thread of its own during the block; yields what clients connect to.

    Raises
    ------
    UsageError
        The log or the address cannot be used.
    """
    with running(EscalationServer(config, clock=clock), name="escalation-server") as server:
        yield server.target
