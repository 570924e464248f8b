"""Against a real receiver in this process, which checks signatures as its users would."""

import asyncio
import base64
import hashlib
import hmac
import json
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from fleets import ALL, fleet_of, route

from paritas.clock import ManualClock
from paritas.controller.drivers.driver import Outcome
from paritas.controller.drivers.webhook import WebhookDriver, WebhookSettings
from paritas.errors import TransientError

KEY = b"both sides know this"


class Receiver:
    """Keeps the newest document whose signature is right; `answers` are statuses to give first."""

    def __init__(self, *answers):
        self.answers, self.document, self.refused = list(answers), {}, 0

    async def post(self, request):
        if self.answers:
            return web.Response(status=self.answers.pop(0), headers={"location": "http://127.0.0.1:1/"})
        body = await request.read()
        given = request.headers["webhook-signature"].partition(",")[2]
        stamped = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + body
        if base64.b64decode(given) != hmac.digest(KEY, stamped, hashlib.sha256):
            self.refused += 1
            return web.Response(status=401)
        self.document = json.loads(body)
        return web.Response(status=204)

    async def get(self, _request):
        return web.json_response(self.document)


@asynccontextmanager
async def listening(receiver):
    application = web.Application()
    application.add_routes([web.post("/routes", receiver.post), web.get("/routes", receiver.get)])
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/routes"
    finally:
        await runner.cleanup()


def told(tmp_path, receiver, routes, *, key=KEY, observed=True):
    """Apply `routes` once; return the outcomes and, if it can be asked, what is in effect."""
    (tmp_path / "key").write_bytes(key)

    async def applied():
        async with listening(receiver) as url:
            settings = WebhookSettings(url, tmp_path / "key", url if observed else "")
            async with WebhookDriver(settings, fleet_of(), ManualClock()) as driver:
                outcomes = await driver.apply(routes)
                return outcomes, (await driver.observe() if receiver.document and observed else None)

    return asyncio.run(applied())


def test_a_signed_state_is_taken_and_read_back(tmp_path):
    receiver = Receiver()
    (applied,), observed = told(tmp_path, receiver, [route(inference=0.25, revision=7)])
    assert (applied.outcome, applied.detail) == (Outcome.APPLIED, "")
    assert observed.weights == {ALL: {"inference": 0.25, "reference": 0.75}}
    assert receiver.document["routes"][0]["replicas"] == {"r0": 1250, "r1": 1250, "ref": 7500}


def test_without_a_place_to_ask_nothing_is_claimed(tmp_path):
    (applied,), _ = told(tmp_path, Receiver(), [route()], observed=False)
    assert (applied.outcome, applied.detail) == (Outcome.ACCEPTED, "no observe_url is set")


def test_a_wrong_key_is_refused_and_said(tmp_path):
    receiver = Receiver()
    (applied,), _ = told(tmp_path, receiver, [route()], key=b"another")
    assert (applied.outcome, receiver.refused) == (Outcome.FAILED, 1)
    assert applied.detail.endswith("/routes gave 401")


@pytest.mark.parametrize("status", [302, 500, 503])
def test_neither_an_error_nor_a_redirect_counts_as_done(tmp_path, status):
    (applied,), _ = told(tmp_path, Receiver(status), [route()])
    assert applied.outcome is Outcome.FAILED
    assert applied.detail.endswith(f"/routes gave {status}")


def test_a_receiver_that_shows_something_else_has_not_applied_it(tmp_path):
    class Stubborn(Receiver):
        async def post(self, request):
            answer = await super().post(request)
            self.document["routes"] = []
            return answer

    (applied,), _ = told(tmp_path, Stubborn(), [route()])
    assert (applied.outcome, applied.detail) == (Outcome.ACCEPTED, "the receiver does not show it yet")


def test_nobody_there_is_a_failure_and_an_observation_that_cannot_be_made(tmp_path):
    (tmp_path / "key").write_bytes(KEY)

    async def asked():
        settings = WebhookSettings("http://127.0.0.1:1/", tmp_path / "key")
        async with WebhookDriver(settings, fleet_of(), ManualClock()) as driver:
            (applied,) = await driver.apply([route()])
            with pytest.raises(
                TransientError, match=r"^webhook: no observe_url is set; what is in effect is not known$"
            ):
                await driver.observe()
            return applied

    applied = asyncio.run(asked())
    assert applied.outcome is Outcome.FAILED
    assert applied.detail.startswith("webhook: POST http://127.0.0.1:1/ failed: ")


def test_a_document_that_comes_in_many_pieces_is_read_whole(tmp_path):
    (applied,), observed = told(tmp_path, Receiver(), [route(inference=0.25, detail="x" * 600_000)])
    assert (applied.outcome, applied.detail) == (Outcome.APPLIED, "")
    assert observed.weights == {ALL: {"inference": 0.25, "reference": 0.75}}


def test_an_answer_without_end_is_not_read_to_it(tmp_path):
    class Endless(Receiver):
        async def get(self, _request):
            return web.Response(body=b" " * 2_000_000)

    (applied,), _ = told(tmp_path, Endless(500), [route()])
    assert applied.detail.endswith("gave 500")
    receiver = Endless()
    receiver.document = {}
    (tmp_path / "key").write_bytes(KEY)

    async def asked():
        async with listening(receiver) as url:
            settings = WebhookSettings(url, tmp_path / "key", url)
            async with WebhookDriver(settings, fleet_of(), ManualClock()) as driver:
                with pytest.raises(
                    TransientError, match=r"^webhook: the answer has more than 1048576 bytes$"
                ):
                    await driver.observe()

    asyncio.run(asked())
