"""The proxy when something goes wrong, on real sockets.  The upstream is a real aiohttp server that replays recorded bytes: no engine runs here."""

import asyncio
import gzip
import json
import shutil
import ssl
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import pytest
from aiohttp import web
from engine_answers import recorded, told
from hostile_peers import Peer, answering, closing, deaf
from proxy_scenes import PATIENT_S, playing, replay, scene

from paritas.clock import ManualClock
from paritas.collectors.openai import Engine, Strip, strip
from paritas.collectors.openai.streams import EventCutter
from paritas.collectors.openai.tally import Outcome, ProxyFault

RULES = Strip(("logprobs", "token_ids", "prompt_token_ids"), (), ("prompt_token_ids",))
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SSE = "text/event-stream; charset=utf-8"


@pytest.mark.parametrize("status", [400, 422, 501, 500])
def test_a_refused_addition_is_asked_again_without(status):
    """An engine without the field, or one whose NaN breaks its own JSON: the client's request still works."""

    async def answer(_, body):
        if b"logprobs" in body:
            return web.json_response({"error": "no"}, status=status)
        return web.json_response({"fine": True})

    async def steps():
        async with scene(answer, clock=ManualClock()) as s:
            asked = b'{"prompt":  "a"}'
            assert (await s.post(COMPLETIONS, asked))[2] == b'{"fine": true}'
            assert [one.body == asked for one in s.upstream.posts()] == [False, True]
            assert s.proxy.tally.faults == {ProxyFault.REFUSED: 1}
            await s.post(COMPLETIONS, asked)
            again = [one.body == asked for one in s.upstream.posts()][2:]
            # 500 may be this one request; the others speak of the addition, which is left out for a while.
            assert again == ([False, True] if status == 500 else [True])
            assert s.proxy.tally.unobserved["paused"] == (0 if status == 500 else 1)

    playing(steps())


def test_after_the_pause_it_is_tried_again():
    clock = ManualClock()

    async def answer(_, body):
        return web.json_response({}, status=400 if b"logprobs" in body else 200)

    async def steps():
        async with scene(answer, clock=clock) as s:
            await s.post(COMPLETIONS, {})
            clock.advance(seconds=61)
            await s.post(COMPLETIONS, {})
            assert s.proxy.tally.faults == {ProxyFault.REFUSED: 2}

    playing(steps())


def test_the_clients_own_mistake_is_told_as_the_engine_tells_it():
    async def steps():
        error = recorded("error_too_many_logprobs.json")
        async with scene(replay(error, status=400)) as s:
            status, _, body = await s.post(CHAT, {"logprobs": True, "top_logprobs": 50})
            assert (status, body) == (400, error)
            assert not s.proxy.tally.faults
            assert await s.traces() == []

    playing(steps())


def test_an_upstream_that_is_not_there():
    async def steps():
        async with scene(replay(b""), base="http://127.0.0.1:1") as s:
            status, headers, body = await s.post(CHAT, {"messages": []})
            said = json.loads(body)["error"]
            assert (status, headers["Content-Type"]) == (502, "application/json; charset=utf-8")
            assert said["message"].startswith(
                "http://127.0.0.1:1 cannot be reached: Cannot connect to host 127.0.0.1:1"
            )
            assert (said["type"], said["code"]) == ("upstream_unreachable", 502)
            async with s.session.get(s.url + "/v1/models") as answered:
                assert answered.status == 502
            assert s.proxy.tally.outcomes == {Outcome.UPSTREAM_DOWN: 2}

    playing(steps())


@pytest.mark.parametrize("stream", [True, False])
def test_an_upstream_that_breaks_off_is_not_taken_for_a_whole_answer(stream):
    async def answer(request, _):
        response = web.StreamResponse(headers={"Content-Type": SSE if stream else "application/json"})
        await response.prepare(request)
        await response.write(EventCutter().feed(recorded("completions_stream.sse"))[0])
        request.transport.abort()
        return response

    async def steps():
        async with scene(answer) as s:
            with pytest.raises(aiohttp.ClientError):
                await s.post(COMPLETIONS, {"stream": stream})
            tally = await s.stopped()
            assert tally.outcomes == {Outcome.UPSTREAM_BROKE: 1}
            assert tally.doubts == ({"unfinished": 1} if stream else {})
            assert await s.traces() == []

    playing(steps())


@pytest.mark.parametrize("is_early", [True, False])
def test_a_client_that_leaves_frees_the_engine(is_early):
    async def answer(request, _):
        response = web.StreamResponse(headers={"Content-Type": SSE})
        if not is_early:
            await response.prepare(request)
            await response.write(b"data: {}\n\n")
        await asyncio.Event().wait()
        return response

    async def steps():
        async with scene(answer) as s:
            asking = asyncio.create_task(s.post(CHAT, {"stream": True}))
            await asyncio.wait_for(s.upstream.came.wait(), PATIENT_S)
            asking.cancel()
            await asyncio.wait_for(s.upstream.left.wait(), PATIENT_S)
            assert (await s.stopped()).outcomes == {Outcome.CLIENT_LEFT: 1}

    playing(steps())


def test_a_slow_client_slows_the_engine_and_nothing_piles_up():
    sent, event = 0, b'data: {"a": "%s"}\n\n' % (b"a" * 100_000)

    async def answer(request, _):
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": SSE})
        await response.prepare(request)
        while True:
            await response.write(event)
            sent += len(event)

    async def steps():
        async with scene(answer) as s, s.session.post(s.url + CHAT, json={"stream": True}) as answered:
            await answered.content.readany()
            with pytest.raises(TimeoutError):  # nobody reads; what is in the air stays bounded
                await asyncio.wait_for(s.upstream.left.wait(), 0.7)
            assert sent < 64_000_000, s.proxy.tally.outcomes

    playing(steps())


@pytest.mark.parametrize(
    "peer", [closing, deaf, answering(b"garbage\r\n\r\n")], ids=["closes", "deaf", "garbage"]
)
def test_a_broken_agent_changes_no_answer(peer):
    from emitter_scenes import QUICK, emitter_to, holds

    async def steps():
        async with scene(replay(recorded("completions.json"))) as s:
            with Peer(peer) as broken, emitter_to(broken.path, QUICK) as emitter:
                s.proxy._emitter = emitter
                for _ in range(5):
                    assert (await s.post(COMPLETIONS, {}))[0] == 200
                await s.stopped()
                emitter.close(timeout_s=0.0)
                assert holds(emitter).accepted == 5

    playing(steps())


def test_a_fault_of_ours_changes_no_answer():
    class Broken:
        def hash(self, ids):
            raise RuntimeError

    async def steps():
        async with scene(replay(recorded("completions.json"))) as s:
            s.proxy._hasher = Broken()
            status, _, body = await s.post(COMPLETIONS, {})
            assert (status, json.loads(body)) == (200, strip(told("completions.json"), RULES))
            assert (await s.stopped()).faults == {ProxyFault.OBSERVING: 1}

    playing(steps())


def test_a_compressed_answer_passes_as_it_came():
    async def steps():
        packed = gzip.compress(recorded("completions.json"))
        async with scene(replay(packed, Content_Encoding="gzip")) as s:
            assert (await s.post(COMPLETIONS, {}))[2] == packed
            assert s.proxy.tally.faults == {ProxyFault.ANSWER_ENCODED: 1}

    playing(steps())


def test_upgrades_are_refused_in_words():
    async def steps():
        async with scene(replay(b"")) as s:
            sent = {"Connection": "Upgrade", "Upgrade": "websocket"}
            async with s.session.get(s.url + "/v1/realtime", headers=sent) as answered:
                assert answered.status == 501
                said = (await answered.json())["error"]["message"]
                assert said == "this proxy passes HTTP only, no WebSockets"

    playing(steps())


def test_an_offer_of_http2_is_passed_over():
    async def steps():
        async with scene(replay(recorded("completions.json"))) as s:
            offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}
            assert (await s.post(COMPLETIONS, {}, **offer))[0] == 200
            assert "Upgrade" not in s.upstream.posts()[0].headers

    playing(steps())


def test_one_late_probe_changes_no_kernel():
    told_once = {"/version": {"version": "0.32.0"}, "/server_info": told("server_info_json.json")}

    async def answer(request, _):
        found = told_once.get(request.path)
        return web.Response(status=404) if found is None else web.json_response(found)

    async def steps():
        async with scene(answer, engine=None) as s:
            before = s.proxy.facts
            assert before.kernel.dtype == "bfloat16"
            del told_once["/server_info"]
            await s.proxy.look()
            assert s.proxy.facts == before
            told_once["/version"] = {"version": "0.33.0"}
            await s.proxy.look()
            assert s.proxy.facts.version == "0.33.0"

    playing(steps())


def test_a_probe_that_no_parser_follows_ends_no_looking():
    async def answer(request, _):
        if request.path == "/version":
            return web.json_response({"version": "0.32.0"})
        return web.Response(body=b"[" * 100_000, content_type="application/json")

    async def steps():
        async with scene(answer, engine=None) as s:
            assert (s.proxy.facts.engine, s.proxy.facts.version) == (Engine.VLLM, "0.32.0")

    playing(steps())


def test_its_own_pages():
    async def steps():
        async with scene(replay(recorded("completions.json"))) as s:
            await s.post(COMPLETIONS, {})
            await s.traces()
            async with s.session.get(s.url + "/paritas/healthz") as answered:
                assert await answered.json() == {"status": "ok", "engine": "vllm"}
            async with s.session.get(s.url + "/paritas/other") as answered:
                assert answered.status == 404
            async with s.session.get(s.url + "/paritas/metrics") as answered:
                lines = (await answered.text()).splitlines()
            for line in (
                'paritas_proxy_requests_total{outcome="answered"} 1',
                'paritas_proxy_unobserved_total{reason="not_in_share"} 0',
                'paritas_proxy_faults_total{reason="refused"} 0',
                'paritas_proxy_doubts_total{reason="all_zero"} 0',
                'paritas_proxy_tokens_total{status="valid"} 16',
                "paritas_proxy_traces_accepted_total 1",
                "paritas_proxy_traces_delivered_total 1",
                "paritas_proxy_traces_queued 0",
                'paritas_proxy_engine{engine="vllm",version="",semantics="unknown"} 1',
            ):
                assert line in lines
            assert len(s.upstream.posts()) == 1

    playing(steps())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_an_upstream_behind_tls():
    async def steps(certificate, key):
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(certificate, key)
        answer = replay(recorded("completions.json"))
        async with scene(answer, serving_tls=serving) as s:
            status, _, body = await s.post(COMPLETIONS, {})
            assert status == 502
            assert "certificate" in json.loads(body)["error"]["message"].lower()
        trusted = ssl.create_default_context(cafile=certificate)
        async with scene(answer, serving_tls=serving, tls=trusted) as s:
            assert (await s.post(COMPLETIONS, {}))[0] == 200
            assert len(await s.traces()) == 1

    with TemporaryDirectory() as folder:
        certificate, key = Path(folder) / "c.pem", Path(folder) / "k.pem"
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x"]
        make += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", key]
        subprocess.run(make, check=True, capture_output=True)
        playing(steps(certificate, key))
