"""`paritas roster` at work: follow every namespace, write the rosters, serve the page, end on a signal."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from paritas.agent.health_page import health_page
from paritas.clock import Clock
from paritas.commands.exposition import exposition
from paritas.commands.roster_page import judge, roster_families
from paritas.commands.roster_writing import RosterWriter, Sink
from paritas.controller.kubernetes.access import ClusterAccess
from paritas.controller.kubernetes.following import Following
from paritas.controller.kubernetes.members import Members
from paritas.controller.kubernetes.pods import PodSource

__all__ = ["Plan", "serve"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for."""

    access: ClusterAccess
    names: dict[str, str]
    selector: str
    container: str
    every_s: float
    health: str


async def serve(plan: Plan, sink: Sink, clock: Clock) -> None:
    """Follow and write until a signal comes."""
    writer, stop = RosterWriter(sink, plan.names, plan.every_s, clock), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        page = stack.enter_context(_page(plan, writer))
        tasks = await _start(plan, writer, stack)
        sys.stdout.write(_ready(plan, sink, page))
        sys.stdout.flush()
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        sink.close()  # so that no thread is left waiting for the log
        await _cancel([stopped, *tasks])
    sys.stdout.write(f"stopped: {writer.records} rosters written, {writer.write_failures} failed\n")


async def _start(plan: Plan, writer: RosterWriter, stack: AsyncExitStack) -> list[asyncio.Task[None]]:
    for space in plan.names:
        source = PodSource(plan.access, namespace=space, selector=plan.selector)
        await stack.enter_async_context(source)
        writer.followed[space] = Following(
            source,
            Members(plan.container),
            on_change=writer.changed(space),
            random=Random(os.getpid()),  # noqa: S311 -- spreads tries, guards nothing
        )
    runs = [*(followed.run() for followed in writer.followed.values()), writer.run()]
    return [asyncio.create_task(coroutine) for coroutine in runs]


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """End the tasks; what one of them died of is raised."""
    for task in tasks:
        task.cancel()
    for found in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(found, BaseException) and not isinstance(found, asyncio.CancelledError):
            raise found


@contextmanager
def _page(plan: Plan, writer: RosterWriter) -> Iterator[str]:
    """Serve the page while inside; its address, empty for none."""

    def page() -> str:
        reading = writer.read()
        return exposition(roster_families(reading, judge(reading)))

    if not plan.health:
        yield ""
        return
    with health_page(plan.health, health=lambda: judge(writer.read()), page=page) as served:
        yield served.address


def _ready(plan: Plan, sink: Sink, page: str) -> str:
    lines = [f"telling {sink} which pods with {plan.selector} must report, in {', '.join(plan.names)}"]
    lines += [f"  health: http://{page}/readyz"] if page else []
    return "".join(f"{line}\n" for line in lines)
