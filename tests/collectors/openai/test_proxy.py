"""The proxy on real sockets.  The upstream is a real aiohttp server that replays recorded bytes: no engine runs here."""

import asyncio
import gzip
import json
import shutil
import ssl
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import numpy as np
import pytest
from aiohttp import web
from engine_answers import HASHER, events, recorded, sglang, told
from hostile_peers import Peer, answering, closing, deaf
from proxy_scenes import PATIENT_S, playing, replay, scene

from paritas.clock import ManualClock
from paritas.collectors.openai import Engine, Strip, strip
from paritas.collectors.openai.streams import EventCutter, data_of
from paritas.collectors.openai.tally import Outcome, ProxyFault
from paritas.records import trace_id_of

RULES = Strip(("logprobs", "token_ids", "prompt_token_ids"), (), ("prompt_token_ids",))
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SSE = "text/event-stream; charset=utf-8"
CLIENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


def test_a_client_that_asked_nothing_sees_nothing_and_a_trace_arrives():
    async def steps():
        async with scene(replay(recorded("completions.json"))) as s:
            status, headers, body = await s.post(COMPLETIONS, {"prompt": "The"}, x_paritas_group_id="g")
            assert status == 200
            assert json.loads(body) == strip(told("completions.json"), RULES)
            assert headers["Content-Type"] == "application/json"
            asked = s.upstream.posts()[0]
            assert asked.json == {
                "prompt": "The",
                "logprobs": 0,
                "return_tokens_as_token_ids": True,
                "return_token_ids": True,
            }
            assert not any(name.lower().startswith("x-paritas") for name in asked.headers)
            (trace,) = await s.traces()
            ids = told("completions.json")["choices"][0]["token_ids"]
            assert trace.token.tolist() == HASHER.hash(np.array(ids)).tolist()
            assert (trace.run_id, trace.group_id, trace.sequence_id) == ("run", "g", "cmpl-9c3f82c59de2d78a")
            assert trace.traceparent == asked.headers["traceparent"]
            assert s.proxy.tally.outcomes == {Outcome.ANSWERED: 1}

    playing(steps())


def test_a_client_that_asked_everything_gets_the_very_bytes():
    async def steps():
        async with scene(replay(recorded("completions.json"))) as s:
            asked = json.dumps({"prompt": "The", "logprobs": 5, "return_token_ids": True}).encode()
            _, headers, body = await s.post(COMPLETIONS, asked)
            assert body == recorded("completions.json")
            assert headers["Content-Length"] == str(len(body))
            assert s.upstream.posts()[0].body == asked
            assert len(await s.traces()) == 1

    playing(steps())


def test_events_go_out_one_by_one():
    """The upstream sends an event only when the client has the one before: nothing is held back."""
    whole = EventCutter().feed(recorded("completions_stream.sse"))
    got = asyncio.Semaphore(0)

    async def answer(request, _):
        response = web.StreamResponse(headers={"Content-Type": SSE})
        await response.prepare(request)
        for event in whole:
            await response.write(event)
            await asyncio.wait_for(got.acquire(), PATIENT_S)
        return response

    async def steps():
        async with (
            scene(answer) as s,
            s.session.post(s.url + COMPLETIONS, json={"prompt": "a", "stream": True}) as answered,
        ):
            cutter, seen = EventCutter(), []
            async for piece in answered.content.iter_any():
                for event in cutter.feed(piece):
                    seen.append(data_of(event))
                    got.release()
            assert seen[:-1] == [strip(one, RULES) for one in events("completions_stream.sse")]
            (trace,) = await s.traces()
            assert (len(trace), trace.final) == (8, True)
            assert trace.itl_s.shape == (8,)
            assert trace.timings.ttft_s > 0

    playing(steps())


def test_an_unstripped_stream_is_the_very_bytes():
    async def steps():
        async with scene(replay(recorded("completions_stream.sse"), SSE)) as s:
            asked = {"prompt": "a", "stream": True, "logprobs": 2, "return_token_ids": True}
            assert (await s.post(COMPLETIONS, asked))[2] == recorded("completions_stream.sse")
            assert len(await s.traces()) == 1

    playing(steps())


def test_the_generate_route_of_sglang():
    answer = sglang([[-0.5, 5, None], [-0.25, 6, None]], weight_version="12")

    async def steps():
        async with scene(replay(json.dumps([answer, answer]).encode()), engine=Engine.SGLANG) as s:
            _, _, body = await s.post("/generate", {"text": ["a", "b"]})
            assert "output_token_logprobs" not in json.loads(body)[0]["meta_info"]
            assert json.loads(body)[1]["output_ids"] == [5, 6]
            traces = await s.traces()
            assert [one.sequence_id for one in traces] == ["a1/0", "a1/1"]
            assert [one.weights_version for one in traces] == ["12", "12"]
            assert s.upstream.posts()[0].json["return_logprob"] is True

    playing(steps())


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "POST"])
def test_every_other_path_passes_unchanged(method):
    body = gzip.compress(b"anything")

    async def steps():
        answer = replay(
            body, "application/x", status=418, Content_Encoding="gzip", Set_Cookie="a=b", X_Odd="1"
        )
        async with scene(answer) as s:
            sent = {"Authorization": "Bearer secret", "X-Mine": "é", "Cookie": "c=d"}
            url = s.url + "/v1/%2Fmodels?x=%20y&x=2"
            data = b"body" if method in ("PUT", "POST") else None
            async with s.session.request(
                method, aiohttp.client.URL(url, encoded=True), data=data, headers=sent
            ) as answered:
                assert (answered.status, answered.reason) == (418, "I'm a Teapot")
                assert (answered.headers["X-Odd"], answered.headers["Set-Cookie"]) == ("1", "a=b")
                assert await answered.read() == body
            asked = s.upstream.asked[-1]
            assert (asked.method, asked.path, asked.body) == (method, "/v1/%2Fmodels?x=%20y&x=2", data or b"")
            assert {name: asked.headers.get(name) for name in sent} == sent
            assert asked.headers["Host"] == s.proxy._settings.upstream.removeprefix("http://")
            assert s.proxy.tally.observed == 0

    playing(steps())


def test_redirects_are_the_clients_business():
    async def steps():
        async with (
            scene(replay(b"", status=307, Location="/elsewhere")) as s,
            s.session.get(s.url + "/x", allow_redirects=False) as answered,
        ):
            assert (answered.status, answered.headers["Location"]) == (307, "/elsewhere")

    playing(steps())


def test_head_and_empty_answers():
    async def steps():
        async with scene(replay(b"", status=204)) as s:
            async with s.session.get(s.url + "/x") as answered:
                assert (answered.status, await answered.read()) == (204, b"")
            async with s.session.head(s.url + "/y") as answered:
                assert answered.status == 204

    playing(steps())


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


@pytest.mark.parametrize("size", [100, 5000])
def test_large_and_compressed_requests_pass_unobserved(size):
    body = b'{"prompt": "' + b"a" * size + b'"}'

    async def steps():
        async with scene(replay(recorded("completions.json")), body_limit_bytes=1000) as s:
            assert (await s.post(COMPLETIONS, body))[0] == 200
            packed = gzip.compress(body)
            await s.post(COMPLETIONS, packed, Content_Encoding="gzip")
            assert s.upstream.posts()[1].body == packed
            assert s.upstream.posts()[1].headers["Content-Encoding"] == "gzip"
            unobserved = {str(k): v for k, v in s.proxy.tally.unobserved.items()}
            assert unobserved == (
                {"body_encoded": 1} if size == 100 else {"body_too_large": 1, "body_encoded": 1}
            )
            assert (s.upstream.posts()[0].body == body) is (size == 5000)

    playing(steps())


def test_without_a_share_nothing_is_asked():
    async def steps():
        async with scene(replay(recorded("completions.json")), share=0.0) as s:
            assert (await s.post(COMPLETIONS, b"{ }"))[2] == recorded("completions.json")
            asked = s.upstream.posts()[0]
            assert asked.body == b"{ }"
            assert "traceparent" not in asked.headers
            assert s.proxy.tally.unobserved == {"not_in_share": 1}

    playing(steps())


def test_an_unknown_engine_is_asked_what_it_is():
    async def answer(request, _):
        if request.path == "/version":
            return web.json_response({"version": "0.32.0"})
        if request.method == "GET":
            return web.Response(status=404)
        return web.Response(body=recorded("completions.json"), content_type="application/json")

    async def steps():
        async with scene(answer, engine=None) as s:
            assert (s.proxy.facts.engine, s.proxy.facts.version) == (Engine.VLLM, "0.32.0")
            await s.post(COMPLETIONS, {})
            assert (await s.traces())[0].kernel.engine_version == "0.32.0"
        async with scene(replay(b"", status=404), engine=None) as s:
            await s.post(COMPLETIONS, {})
            assert (s.proxy.facts, s.proxy.tally.unobserved) == (None, {"engine_unknown": 1})

    playing(steps())


def test_trace_contexts():
    async def steps():
        async with scene(replay(recorded("completions.json"))) as s:
            await s.post(COMPLETIONS, {}, traceparent=CLIENT, tracestate="v=1")
            await s.post(COMPLETIONS, {}, x_paritas_sequence_id="s-1", x_paritas_run_id="r")
            given, named = s.upstream.posts()
            assert (given.headers["traceparent"], given.headers["tracestate"]) == (CLIENT, "v=1")
            assert named.headers["traceparent"].split("-")[1] == trace_id_of("r", "s-1")
            by_sequence = {one.sequence_id: one for one in await s.traces()}
            assert by_sequence["cmpl-9c3f82c59de2d78a"].traceparent == CLIENT
            assert by_sequence["s-1"].traceparent == ""  # the engine's spans stand in this very trace

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
