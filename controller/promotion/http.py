"""Verdicts and hooks over HTTP, for rollout controllers.  Needs aiohttp (``paritas[proxy]``).

Verdicts are read-only and open to whoever reaches the port; hooks want the bearer token.  The port is
this machine's unless told otherwise.
"""

import hmac
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from aiohttp import web

from paritas.contracts.model import Stage
from paritas.controller.promotion.answer import answer, unknown
from paritas.controller.promotion.config import PromotionConfig
from paritas.controller.promotion.flagger import (
    ASKED_NOTHING,
    Hook,
    HookAnswer,
    answer_hook,
    answer_rollback,
    granted_increases,
)
from paritas.controller.promotion.ledger import Ledger
from paritas.controller.promotion.model import Promotion
from paritas.controller.refusals import RefusalError
from paritas.errors import ParitasError, UsageError

__all__ = ["serving_http"]

BODY_BYTES = 64 * 1024
HOOKS = "/v1/hooks/flagger"
STEP = re.compile("[1-9][0-9]{0,5}")
TOKEN_BYTES = 16  # a shorter one can be guessed
SHUTDOWN_S = 1.0

Handler = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving_http(config: PromotionConfig, ledger: Ledger) -> AsyncIterator[str]:
    """Serve during the block; yields ``host:port``.

    Raises
    ------
    UsageError
        The address cannot be bound, or the token cannot be read.
    """
    token = _token(config.hook_token)
    runner = web.AppRunner(_application(ledger, token), access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        yield await _bind(runner, config.http)
    finally:
        await runner.cleanup()


async def _bind(runner: web.AppRunner, listen: str) -> str:
    host, _, port = listen.rpartition(":")
    if not (host and port.isdecimal()):
        raise UsageError(f"promotion http: {listen!r} is not an address", hint="write host:port")
    site = web.TCPSite(runner, host.strip("[]"), int(port))
    try:
        await site.start()
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(f"promotion http: cannot bind {listen!r}", hint="choose another address") from error
    return f"{host}:{runner.addresses[0][1]}"


def _token(path: Path | None) -> bytes:
    if path is None:
        return b""
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(token) < TOKEN_BYTES:
        message = f"{path}: a token of fewer than {TOKEN_BYTES} bytes can be guessed"
        raise UsageError(message, hint=f"openssl rand -hex 32 > {path}")
    return token


def _application(ledger: Ledger, token: bytes) -> web.Application:
    pages = _Pages(ledger, token)
    application = web.Application(client_max_size=BODY_BYTES)
    application.router.add_get("/v1/verdict", pages.verdict)
    application.router.add_post(f"{HOOKS}/rollback", pages.guarded(pages.rollback))
    application.router.add_post(f"{HOOKS}/{{hook}}", pages.guarded(pages.hook))
    return application


class _Pages:
    """The handlers."""

    def __init__(self, ledger: Ledger, token: bytes) -> None:
        self._ledger = ledger
        self._token = token

    async def verdict(self, request: web.Request) -> web.StreamResponse:
        """Answer 200 whatever is asked: any other status is an error and no verdict to who reads this."""
        asked = request.query
        name, number = asked.get("stage", ""), asked.get("step", "")
        if name not in tuple(Stage):
            return _json(HTTPStatus.OK, _unclear(name))
        stage, step = Stage(name), _step(number)
        if number and (step is None or stage is not Stage.CANARY):
            return _json(HTTPStatus.OK, _no_step(name, number))
        try:
            found = await self._ledger.of_candidate(asked.get("contract", ""), asked.get("candidate", ""))
        except ParitasError as error:
            return _json(HTTPStatus.OK, unknown(stage, str(error)).as_dict())
        if found is None:
            return _json(HTTPStatus.OK, unknown(stage, "no such candidate is promoted under it").as_dict())
        now_ns = self._ledger.clock.now_ns()
        told = answer(found, stage, now_ns=now_ns, keys=self._ledger.keys, step=step)
        return _json(HTTPStatus.OK, told.as_dict() | ({} if step is None else {"step": step}))

    def guarded(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Let in who carries the token: in the header, or in the metadata, which is all that Flagger can send."""

        async def call(request: web.Request) -> web.StreamResponse:
            body = await _body(request)
            if not self._is_known(request.headers.get("Authorization", ""), body):
                return _json(HTTPStatus.UNAUTHORIZED, {"text": "the hooks want their token"})
            if body is None:
                return _json(HTTPStatus.BAD_REQUEST, {"text": "the body is not what Flagger sends"})
            try:
                return await handler(request, body)
            except ParitasError as error:  # the log cannot be read or written just now: no, and worth a retry
                return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"text": str(error)})

        return call

    def _is_known(self, header: str, body: dict[str, Any] | None) -> bool:
        """Compare in constant time, and both even where the first is right."""
        scheme, _, told = header.partition(" ")
        given = (told.strip() if scheme.lower() == "bearer" else "", str(_metadata(body).get("token", "")))
        same = [hmac.compare_digest(t.encode(errors="replace"), self._token) for t in given]
        return bool(self._token) and any(same)

    async def hook(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """Answer every hook but rollback."""
        name = request.match_info["hook"]
        if name not in tuple(Hook):
            return _json(HTTPStatus.NOT_FOUND, {"text": f"there is no hook {name!r}"})
        hook, promotion = Hook(name), await self._promotion(body)
        if promotion is None:
            return _json(*_nobody(hook))
        told = answer_hook(hook, promotion)
        if hook is Hook.CONFIRM_TRAFFIC_INCREASE and told.status is HTTPStatus.OK:
            told = await self._grant(promotion, body)
        return _json(told.status, {"text": told.text})

    async def _grant(self, promotion: Promotion, body: dict[str, Any]) -> HookAnswer:
        """Count the increases of one rollout, so that every step is passed before the next."""
        run = "/".join(str(body.get(name, ""))[:200] for name in ("namespace", "name", "checksum"))
        allowed = granted_increases(promotion)
        if await self._ledger.grant(promotion.promotion_id, run, at_most=allowed):
            return HookAnswer(HTTPStatus.OK, f"{promotion.promotion_id} is at {promotion.gate}")
        text = f"INSUFFICIENT: {promotion.gate} of {promotion.promotion_id} is not passed yet"
        return HookAnswer(HTTPStatus.CONFLICT, text)

    async def rollback(self, _request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """Answer 200, which rolls back, to a FAIL and to nothing else."""
        told = answer_rollback(await self._promotion(body))
        return _json(told.status, {"text": told.text})

    async def _promotion(self, body: dict[str, Any]) -> Promotion | None:
        """The promotion the hook's metadata names: by id, or by contract and candidate."""
        told = _metadata(body)
        try:
            if told.get("promotion"):
                return (await self._ledger.whole(str(told["promotion"]))).stored.promotion
            names = (str(told.get("contract", "")), str(told.get("candidate", "")))
            found = await self._ledger.of_candidate(*names)
        except RefusalError:
            return None
        return None if found is None else found.stored.promotion


def _nobody(hook: Hook) -> tuple[HTTPStatus, dict[str, object]]:
    text = "metadata names no promotion: give promotion, or contract and candidate"
    return (HTTPStatus.OK if hook in ASKED_NOTHING else HTTPStatus.NOT_FOUND), {"text": text}


def _metadata(body: dict[str, Any] | None) -> dict[str, Any]:
    metadata = None if body is None else body.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


async def _body(request: web.Request) -> dict[str, Any] | None:
    try:
        told = json.loads(await request.read())
        json.dumps(told, ensure_ascii=False).encode()  # a lone surrogate is no text that could be looked for
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _step(number: str) -> int | None:
    return int(number) if STEP.fullmatch(number) else None


def _unclear(name: str) -> dict[str, object]:
    return _malformed(name, f"stage: {name[:40]!r} is none of {', '.join(Stage)}")


def _no_step(name: str, number: str) -> dict[str, object]:
    return _malformed(name, f"step: {number[:40]!r} of {name}: a step of the canary is a number from 1")


def _malformed(name: str, text: str) -> dict[str, object]:
    return {"verdict": "INSUFFICIENT", "stage": name, "reason": "malformed", "text": text}


def _json(status: HTTPStatus, told: dict[str, object]) -> web.Response:
    text = json.dumps(told, allow_nan=False)
    return web.Response(status=int(status), text=text, content_type="application/json")
