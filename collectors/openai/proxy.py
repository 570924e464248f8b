"""The reverse proxy: sockets around the pure parts.  Needs aiohttp (``paritas[proxy]``).

aiohttp, because it holds an HTTP/1.1 server and a client with back pressure in one library that
speaks bytes: no framework that re-writes bodies lies between engine and client.

The rule above all others: a client sees what it would have seen without the proxy.  Observing may
fail; then the answer passes and the failure is counted.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace

import aiohttp
import yarl
from aiohttp import web

from paritas.clock import Clock
from paritas.collectors.emitter import Emitter
from paritas.collectors.openai.engines import EngineFacts, facts_of
from paritas.collectors.openai.headers import answer_headers, request_headers
from paritas.collectors.openai.messages import (
    cut_off,
    error_response,
    read_at_most,
    rest_of,
    streamed,
    trace_context,
    write,
)
from paritas.collectors.openai.naming import is_in_share, names_of, request_id_of
from paritas.collectors.openai.observation import Context, Observation
from paritas.collectors.openai.plans import ROUTES, Plan, Route, Unobserved, without_observation
from paritas.collectors.openai.probing import probe
from paritas.collectors.openai.proxy_settings import ProxySettings
from paritas.collectors.openai.requests import plan_of, user_of
from paritas.collectors.openai.tally import Outcome, ProxyFault, Tally, page
from paritas.collectors.openai.watching import EventWatcher, Passing, WholeWatcher
from paritas.tokens import TokenHasher

__all__ = ["Proxy", "ProxySettings"]

OWN_PREFIX = "/paritas/"
NS_PER_S = 1_000_000_000
HEADER_LIMIT_BYTES = 64 * 1024
START_S = 3.0
# A request that only our addition made wrong: the engine's word for it, by engine and version.
REFUSALS = frozenset((400, 404, 405, 422, 500, 501))
# 500 may be this one request (a NaN that JSON cannot hold); the others speak of the addition.
PAUSING = REFUSALS - {500}
AUTOMATIC_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class Proxy:
    """Serves one upstream; `application` is what an aiohttp runner runs.

    Parameters
    ----------
    settings : ProxySettings
    clock : Clock
    emitter : Emitter
        Stays the caller's: it is not closed here.
    hasher : TokenHasher

    Attributes
    ----------
    tally : Tally
    facts : EngineFacts or None
        None until the first look at the engine is over, and until it answered unless it is declared: a
        kernel is named once and as a whole.
    """

    def __init__(
        self, settings: ProxySettings, *, clock: Clock, emitter: Emitter, hasher: TokenHasher
    ) -> None:
        self._settings, self._clock, self._emitter, self._hasher = settings, clock, emitter, hasher
        self.tally = Tally()
        self.facts: EngineFacts | None = None
        self._paused_until_ns: dict[Route, int] = {}
        self._told: dict[str, object] = {}
        self._has_looked = asyncio.Event()

    def runner(self) -> web.AppRunner:
        """Return a runner whose requests are cancelled when their clients leave, and that logs nothing."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        application.cleanup_ctx.append(self._serving)
        return web.AppRunner(
            application,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            max_line_size=HEADER_LIMIT_BYTES,
            max_field_size=HEADER_LIMIT_BYTES,
            shutdown_timeout=10.0,
        )

    async def _serving(self, _: web.Application) -> AsyncIterator[None]:
        """Hold the client session, and look at the engine now and then."""
        # A kept connection may be closed by the engine just as a request goes out on it, and a
        # POST cannot be repeated: one connection a request costs less than that.
        connector = aiohttp.TCPConnector(limit=0, force_close=True, ssl=self._settings.tls or True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._settings.connect_s)
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=AUTOMATIC_HEADERS,
            max_line_size=HEADER_LIMIT_BYTES,
            max_field_size=HEADER_LIMIT_BYTES,
        ) as self._session:
            looking = asyncio.create_task(self._look_on())
            await self._known_soon()
            yield
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _known_soon(self) -> None:
        """Wait a little for the first look; requests that come before its end pass unobserved."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_looked.wait(), START_S)

    async def _look_on(self) -> None:
        while True:
            await self.look()
            known = self.facts is not None
            await asyncio.sleep(self._settings.probe_s if known else min(5.0, self._settings.probe_s))

    async def look(self) -> None:
        """Ask the engine what it is; what it does not answer leaves what is known."""
        answers = await probe(self._session, self._settings.upstream)
        # One answer that is late changes no kernel: what was told before still holds.
        self._told.update(answers)
        if answers or self._settings.engine is not None:
            self.facts = self._facts_in(self._told)
        self._has_looked.set()

    def _facts_in(self, answers: Mapping[str, object]) -> EngineFacts:
        settings = self._settings
        facts = facts_of(answers, role=settings.role, engine=settings.engine, semantics=settings.semantics)
        return replace(facts, weights_version=facts.weights_version or settings.weights_version)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith(OWN_PREFIX):
            return self._own(request.path)
        # Other offers (h2c) may be ignored, and clients that make them go on in HTTP/1.1.
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return error_response(501, "upgrade_not_supported", "this proxy passes HTTP only, no WebSockets")
        route = ROUTES.get(request.path) if request.method == "POST" else None
        if route is None:
            return await self._exchange(request, _Ask(body=streamed(request)))
        return await self._handle_route(request, route)

    def _own(self, path: str) -> web.Response:
        match path.removeprefix(OWN_PREFIX):
            case "healthz":
                engine = str(self.facts.engine) if self.facts else "unknown"
                return web.json_response({"status": "ok", "engine": engine})
            case "metrics":
                return web.Response(text=page(self.tally, self._emitter.read(), self.facts))
        return error_response(
            404, "not_found", f"{path}: only /paritas/healthz and /paritas/metrics are served here"
        )

    async def _handle_route(self, request: web.Request, route: Route) -> web.StreamResponse:
        body, is_whole = await read_at_most(request, self._settings.body_limit_bytes)
        user = user_of(body) if is_whole else ""
        names = names_of({name.lower(): value for name, value in request.headers.items()}, user)
        fresh = os.urandom(16).hex()
        plan = (
            self._plan(route, body, request, names.sequence_id or request.headers.get("X-Request-Id", fresh))
            if is_whole
            else without_observation(route, body, Unobserved.BODY_TOO_LARGE)
        )
        if plan.unobserved is not None:
            self.tally.unobserved[plan.unobserved] += 1
            return await self._exchange(request, _Ask(body=body if is_whole else rest_of(body, request)))
        return await self._observe(request, plan, fresh)

    def _plan(self, route: Route, body: bytes, request: web.Request, key: str) -> Plan:
        """Plan the request; a fault of ours in planning passes it as it came."""
        reason = self._why_not(route, request)
        if reason is not None or self.facts is None:
            return without_observation(route, body, reason or Unobserved.ENGINE_UNKNOWN)
        settings = self._settings
        try:
            takes = is_in_share(key, settings.share)
            return plan_of(route, body, self.facts, takes=takes, top_k=settings.top_k)
        except Exception:  # noqa: BLE001 -- the client's request does not depend on what we make of it
            self.tally.faults[ProxyFault.OBSERVING] += 1
            return without_observation(route, body, Unobserved.CONFLICT)

    def _why_not(self, route: Route, request: web.Request) -> Unobserved | None:
        if self.facts is None:
            return Unobserved.ENGINE_UNKNOWN
        if request.headers.get("Content-Encoding", "identity") != "identity":
            return Unobserved.BODY_ENCODED
        if self._clock.monotonic_ns() < self._paused_until_ns.get(route, 0):
            return Unobserved.PAUSED
        return None

    async def _observe(self, request: web.Request, plan: Plan, fresh: str) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        names = names_of(headers, plan.user)
        names = replace(
            names,
            run_id=names.run_id or self._settings.run_id,
            attributes={**self._settings.attributes, **names.attributes},
        )
        sent, link = trace_context(request, names, plan, fresh)
        assert self.facts is not None, "a plan was made with it"
        context = Context(
            plan,
            self.facts,
            names,
            self._hasher,
            event_ns=self._clock.now_ns(),
            started_ns=self._clock.monotonic_ns(),
            traceparent=link,
            request_id=request_id_of(headers, fresh),
        )
        observation = Observation(context)
        added = {"accept-encoding": "identity", "traceparent": sent}
        self.tally.observed += 1
        try:
            return await self._exchange(request, _Ask(plan.body, added, plan, observation))
        finally:
            self._conclude(observation)

    def _conclude(self, observation: Observation) -> None:
        """Hand over what was seen; nothing of it reaches the client."""
        try:
            seen = observation.finish()
            self.tally.add(seen)
            self._emitter.emit_many(seen.traces)
        except Exception:  # noqa: BLE001 -- the answer has gone out; a fault here is ours alone
            self.tally.faults[ProxyFault.OBSERVING] += 1

    async def _exchange(self, request: web.Request, ask: "_Ask") -> web.StreamResponse:
        """Ask the engine and bring its answer to the client; leaving early closes both sides."""
        try:
            async with AsyncExitStack() as stack:
                try:
                    answer, passing = await self._answer(request, ask, stack)
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    self.tally.outcomes[Outcome.UPSTREAM_DOWN] += 1
                    return self._unreachable(error)
                return await self._relay(request, answer, passing)
        except asyncio.CancelledError:
            self.tally.outcomes[Outcome.CLIENT_LEFT] += 1
            raise

    async def _answer(
        self, request: web.Request, ask: "_Ask", stack: AsyncExitStack
    ) -> "tuple[aiohttp.ClientResponse, Passing | None]":
        """Return the engine's answer and how it passes; a refused addition is asked again without it."""
        answer = await stack.enter_async_context(self._asked(request, ask))
        plan = ask.plan
        if plan is None or not plan.is_changed or answer.status not in REFUSALS:
            return answer, self._passing(ask, answer)
        answer.close()
        again = await stack.enter_async_context(self._asked(request, _Ask(plan.original, ask.added)))
        if again.status < 400:
            self.tally.faults[ProxyFault.REFUSED] += 1
            if answer.status in PAUSING:
                until_ns = self._clock.monotonic_ns() + round(self._settings.pause_s * NS_PER_S)
                self._paused_until_ns[plan.route] = until_ns
        return again, None

    def _asked(self, request: web.Request, ask: "_Ask") -> "aiohttp.client._RequestContextManager":
        is_own_body = ask.plan is not None or isinstance(ask.body, bytes)
        headers = request_headers(request.headers.items(), added=ask.added, is_changed=is_own_body)
        return self._session.request(
            request.method,
            yarl.URL(self._settings.upstream + request.rel_url.raw_path_qs, encoded=True),
            data=ask.body,
            headers=headers,
            allow_redirects=False,
        )

    def _passing(self, ask: "_Ask", answer: aiohttp.ClientResponse) -> Passing | None:
        """Choose what watches the answer; None lets it pass untouched."""
        if ask.plan is None or ask.observation is None or answer.status != 200:
            return None
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            self.tally.faults[ProxyFault.ANSWER_ENCODED] += 1
            return None
        now_ns, rules = self._clock.monotonic_ns, ask.plan.strip
        if answer.content_type == "text/event-stream":
            return EventWatcher(ask.observation, rules, self.tally, now_ns=now_ns)
        limit_bytes = self._settings.answer_limit_bytes
        return WholeWatcher(ask.observation, rules, self.tally, now_ns=now_ns, limit_bytes=limit_bytes)

    async def _relay(
        self, request: web.Request, answer: aiohttp.ClientResponse, passing: Passing | None
    ) -> web.StreamResponse:
        """Bring the answer to the client piece by piece; the slower of the two sets the pace."""
        is_changed = passing is not None and passing.is_changing
        response = web.StreamResponse(status=answer.status, reason=answer.reason)
        response.headers.clear()
        response.headers.extend(answer_headers(answer.headers.items(), is_changed=is_changed))
        await response.prepare(request)
        pieces = answer.content.iter_any()
        is_last = False
        while not is_last:
            try:
                piece = await anext(pieces, b"")
            except (aiohttp.ClientError, OSError):
                cut_off(request)  # so that the client sees it, too
                return self._ended(Outcome.UPSTREAM_BROKE, response)
            is_last = not piece
            out = piece if passing is None else passing.rest() if is_last else passing.feed(piece)
            try:
                await write(response, out, is_last=is_last)
            except OSError:
                return self._ended(Outcome.CLIENT_LEFT, response)
        return self._ended(Outcome.ANSWERED, response)

    def _ended(self, outcome: Outcome, response: web.StreamResponse) -> web.StreamResponse:
        self.tally.outcomes[outcome] += 1
        return response

    def _unreachable(self, error: Exception) -> web.Response:
        reason = str(error) or type(error).__name__
        return error_response(
            502, "upstream_unreachable", f"{self._settings.upstream} cannot be reached: {reason}"
        )


@dataclass(frozen=True, slots=True)
class _Ask:
    """One question to the engine, and what is to be made of the answer."""

    body: "bytes | AsyncIterator[bytes] | None"
    added: Mapping[str, str] = field(default_factory=dict)
    plan: Plan | None = None
    observation: Observation | None = None
