"""``/healthz``, ``/readyz`` and ``/metrics`` of the operator.  Needs aiohttp."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

from paritas.controller.operator.counts import Counts, prometheus_text
from paritas.errors import UsageError

__all__ = ["serving_page"]

SHUTDOWN_S = 1.0
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Check = Callable[[], str]


@asynccontextmanager
async def serving_page(listen: str, counts: Counts, *, alive: Check, ready: Check) -> AsyncIterator[str]:
    """Serve during the block; yields ``host:port``, or nothing where `listen` is empty.

    Parameters
    ----------
    alive, ready : callable
        Return why it is not; empty text if it is.

    Raises
    ------
    UsageError
        The address cannot be bound.
    """
    if not listen:
        yield ""
        return
    runner = web.AppRunner(_application(counts, alive, ready), access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        yield await _bind(runner, listen)
    finally:
        await runner.cleanup()


def _application(counts: Counts, alive: Check, ready: Check) -> web.Application:
    application = web.Application()
    application.router.add_get("/healthz", _answering(alive))
    application.router.add_get("/readyz", _answering(ready))

    async def metrics(_request: web.Request) -> web.Response:
        body = prometheus_text(counts).encode()
        return web.Response(body=body, headers={"content-type": CONTENT_TYPE})

    application.router.add_get("/metrics", metrics)
    return application


def _answering(check: Check) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_request: web.Request) -> web.StreamResponse:
        why_not = check()
        status = HTTPStatus.SERVICE_UNAVAILABLE if why_not else HTTPStatus.OK
        return web.Response(text=f"{why_not or 'ok'}\n", status=status)

    return answer


async def _bind(runner: web.AppRunner, listen: str) -> str:
    host, _, port = listen.rpartition(":")
    if not (host and port.isdecimal()):
        raise UsageError(f"--health: {listen!r} is not an address", hint="write HOST:PORT")
    site = web.TCPSite(runner, host.strip("[]"), int(port))
    try:
        await site.start()
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(f"--health: cannot bind {listen!r}", hint="choose another address") from error
    return f"{host}:{runner.addresses[0][1]}"
