"""Runs the operator: kopf follows the objects and wakes the passes.  Needs kopf.

Kopf only tells that something changed: it keeps no finalizer, no annotation and no event of its own, so
an object can be deleted while no operator runs, and the role needs no more than the passes do.
"""

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import kopf

from paritas.clock import Clock
from paritas.contracts.cluster.definition import GROUP, PLURAL, VERSION
from paritas.controller.async_client import AsyncEscalationClient
from paritas.controller.operator.cluster_api import ClusterApi, connection
from paritas.controller.operator.counts import Counts
from paritas.controller.operator.model import Plan
from paritas.controller.operator.page import serving_page
from paritas.controller.operator.passes import Passes
from paritas.controller.operator.reconciler import Reconciler
from paritas.errors import UsageError

__all__ = ["followed", "run_operator"]

WATCH_S = 300  # of one watch: a connection that died silently is noticed
EXIT_S = 0.5  # for which kopf waits for handlers that only set an event
_WORDS = 500  # characters of a failure that are logged
_log = logging.getLogger(__name__)


def followed(namespace: str, *, all_namespaces: bool) -> str:
    """Return whose contracts are followed; empty for everybody's.

    Raises
    ------
    UsageError
        No namespace is given and none is known; or both are given.
    """
    if all_namespaces:
        if namespace:
            raise UsageError("--namespace and --all-namespaces exclude each other", hint="give one of them")
        return ""
    found = namespace or connection().default_namespace
    if not found:
        raise UsageError("which namespace?", hint="give --namespace NAME or --all-namespaces")
    return found


async def run_operator(
    plan: Plan,
    controller: AsyncEscalationClient | None,
    *,
    clock: Clock,
    health: str = "",
    started: Callable[[str], None] = lambda _page: None,
) -> None:
    """Run until SIGINT or SIGTERM.

    Raises
    ------
    UsageError
        The page's address cannot be bound; there is no cluster.
    """
    connection()
    stop, counts = _Stop(), Counts()
    async with AsyncExitStack() as stack:
        if controller is not None:
            await stack.enter_async_context(controller)
        cluster = await stack.enter_async_context(ClusterApi(plan.namespace))
        reconciler = Reconciler(plan, cluster, controller, clock=clock, counts=counts)
        passes = Passes(plan, reconciler, clock=clock, counts=counts)
        page = serving_page(health, counts, alive=passes.why_not_alive, ready=passes.why_not_ready)
        started(await stack.enter_async_context(page))
        await stack.enter_async_context(_in_background(passes.run()))
        await passes.first(stop.here)
        await _watch(plan, passes.wake, stop, counts)


async def _watch(plan: Plan, wake: Callable[[], None], stop: "_Stop", counts: Counts) -> None:
    """Let kopf follow the objects until the end; without it the passes go on, only later."""
    logging.getLogger("kopf").setLevel(logging.CRITICAL)  # it logs tracebacks of what is told below
    loop = asyncio.get_running_loop()

    def woken() -> None:
        loop.call_soon_threadsafe(wake)

    while not stop.here.is_set():
        try:
            await asyncio.to_thread(_follow, plan, woken, stop.there)
        except Exception as error:  # noqa: BLE001 -- the watch's top: kopf lets everything through
            counts.failures["cluster"] += 1
            detail = f"{type(error).__name__}: {error}"[:_WORDS]
            _log.warning("The watch ended; it is begun again.", extra={"detail": detail})
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.here.wait(), plan.refresh_s)


def _follow(plan: Plan, wake: Callable[[], None], stop: threading.Event) -> None:
    """Run kopf in a loop of its own: at its end it cancels every task of the loop that began after it."""
    where: dict[str, Any] = {"namespaces": [plan.namespace]} if plan.namespace else {"clusterwide": True}
    registry, settings = _registry(wake), _settings()
    asyncio.run(kopf.operator(registry=registry, settings=settings, standalone=True, stop_flag=stop, **where))


def _registry(wake: Callable[[], None]) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return connection()

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def changed(**_: Any) -> None:
        wake()

    return registry


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.queueing.idle_timeout = EXIT_S
    settings.queueing.exit_timeout = EXIT_S
    settings.watching.server_timeout = WATCH_S
    settings.watching.client_timeout = WATCH_S + 30
    return settings


class _Stop:
    """Set at SIGINT or SIGTERM: `here` for this loop, `there` for the thread of kopf."""

    def __init__(self) -> None:
        self.here, self.there = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, self._set)

    def _set(self) -> None:
        self.here.set()
        self.there.set()


@asynccontextmanager
async def _in_background(work: Any) -> AsyncIterator[None]:
    """Run a coroutine beside the block and end it with the block."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
