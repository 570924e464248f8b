"""The proxy on real sockets.  The upstream is a real aiohttp server that replays recorded bytes: no engine runs here."""

import asyncio
import gzip
import json

import aiohttp
import numpy as np
import pytest
from aiohttp import web
from engine_answers import HASHER, events, recorded, sglang, told
from proxy_scenes import PATIENT_S, playing, replay, scene

from paritas.collectors.openai import Engine, Strip, strip
from paritas.collectors.openai.streams import EventCutter, data_of
from paritas.collectors.openai.tally import Outcome
from paritas.records import trace_id_of

RULES = Strip(("logprobs", "token_ids", "prompt_token_ids"), (), ("prompt_token_ids",))
COMPLETIONS = "/v1/completions"
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
