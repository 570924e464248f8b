"""A proxy between a real client and a real upstream server.  No engine runs: it replays bytes."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from emitter_scenes import Agent, emitter_to, socket_path
from engine_answers import HASHER

from paritas.clock import SystemClock
from paritas.collectors.openai.engines import PROBES, Engine
from paritas.collectors.openai.proxy import Proxy, ProxySettings

PATIENT_S = 60.0
PROBED = {path.partition("?")[0] for path in PROBES}


@dataclass
class Asked:
    """One request as the upstream got it."""

    method: str
    path: str
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


@dataclass
class Upstream:
    """A server that answers as a test says; `answer` is an aiohttp handler that gets the body too.

    Attributes
    ----------
    asked : list of Asked
    came, left : asyncio.Event
        Set when a request came, and when a handler was cancelled: its client went away.
    """

    answer: object
    tls: object = None
    asked: list = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    is_shy: bool = True

    async def _handle(self, request):
        if self.is_shy and request.path in PROBED:
            return web.Response(status=404)
        body = await request.read()
        self.came.set()
        self.asked.append(Asked(request.method, request.raw_path, dict(request.headers), body))
        try:
            return await self.answer(request, body)
        except asyncio.CancelledError:
            self.left.set()
            raise

    @asynccontextmanager
    async def serving(self):
        application = web.Application(client_max_size=1 << 30)
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(
            application, handler_cancellation=True, auto_decompress=False, shutdown_timeout=0.1
        )
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.tls)
        await site.start()
        try:
            yield f"http{'s' if self.tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    def posts(self):
        """The requests that are no probes."""
        return [one for one in self.asked if one.method == "POST"]


@dataclass
class Scene:
    """What a test holds."""

    url: str
    proxy: Proxy
    runner: web.AppRunner
    upstream: Upstream
    session: aiohttp.ClientSession
    emitter: object
    agent: Agent

    async def post(self, path, asked, **headers):
        """Return status, headers and body."""
        body = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
        named = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        async with self.session.post(self.url + path, data=body, headers=named) as answer:
            return answer.status, answer.headers, await answer.read()

    async def traces(self):
        """What the agent has once everything is delivered."""
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, lambda: self.emitter.flush(timeout_s=PATIENT_S))
        return self.agent.traces()

    async def stopped(self):
        """Stop the proxy, which waits for what is under way: all is counted then."""
        await self.runner.cleanup()
        return self.proxy.tally


@asynccontextmanager
async def scene(answer, *, engine=Engine.VLLM, base=None, serving_tls=None, clock=None, **settings):
    """A proxy before `answer`; `base` names another upstream address."""
    upstream = Upstream(answer, serving_tls, is_shy=engine is not None)
    with socket_path() as path, Agent(path) as agent, emitter_to(path) as emitter:
        async with upstream.serving() as address:
            told = ProxySettings(
                base or address, **{"run_id": "run", "share": 1.0, "engine": engine, **settings}
            )
            proxy = Proxy(told, clock=clock or SystemClock(), emitter=emitter, hasher=HASHER)
            runner = proxy.runner()
            await runner.setup()
            await asyncio.wait_for(
                proxy._has_looked.wait(), PATIENT_S
            )  # the proxy itself waits a little only
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                async with aiohttp.ClientSession(auto_decompress=False) as session:
                    yield Scene(url, proxy, runner, upstream, session, emitter, agent)
            finally:
                await runner.cleanup()


def playing(steps):
    """Run one asynchronous test."""
    asyncio.run(asyncio.wait_for(steps, 2 * PATIENT_S))


def replay(body, content_type="application/json", status=200, **headers):
    """Answer with these bytes."""

    async def answer(_, __):
        named = {"Content-Type": content_type, **{k.replace("_", "-"): v for k, v in headers.items()}}
        return web.Response(status=status, body=body, headers=named)

    return answer
