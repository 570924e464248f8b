"""The proxy before a real vLLM: clients see what they see without it, and the traces are whole."""

import json

import numpy as np
import pytest
from engine_answers import HASHER
from engines.engines_setup import why_not_here
from engines.vllm_scenes import environment, joined, serving
from engines.watched_engine import watching
from proxy_scenes import playing

from paritas.collectors.openai import Engine
from paritas.collectors.openai.streams import EventCutter, data_of
from paritas.records import LogprobSemantics, TokenStatus

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(why_not_here("vllm")), reason=why_not_here("vllm") or ""),
]

CHANGING = ("id", "created", "metrics", "request_id")  # differ from request to request
PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def engine(small_model, tmp_path_factory):
    """The address of a vLLM that serves the real small model."""
    folder = tmp_path_factory.mktemp("engine")
    with serving(small_model, folder, environment(folder)) as served:
        # What counts likelier tokens is compiled when first needed: not within a test's two minutes.
        served.ask(COMPLETION[0], {**COMPLETION[1], "max_tokens": 1, "logprobs": 1})
        yield served.url


async def ask(session, url, path, asked):
    """Return what a client gets: one JSON value, or those of a stream."""
    async with session.post(url + path, json=asked) as answer:
        body = await answer.read()
        assert answer.status == 200, body
        if answer.content_type != "text/event-stream":
            return [json.loads(body)]
    events = EventCutter().feed(body)
    assert events[-1] == b"data: [DONE]\n\n"
    return [data_of(event) for event in events[:-1]]


def lasting(answers):
    """What must be the same with and without the proxy."""
    return {name: value for name, value in joined(answers).items() if name not in CHANGING}


def told_text(answers):
    """All text of all choices."""
    return "".join(
        choice.get("text") or (choice.get("delta") or choice.get("message") or {}).get("content") or ""
        for one in answers
        for choice in one["choices"]
    )


COMPLETION = (
    "/v1/completions",
    {"model": "smol", "prompt": PROMPT, "max_tokens": 16, "temperature": 0, "ignore_eos": True},
)
CHAT = (
    "/v1/chat/completions",
    {
        "model": "smol",
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 16,
        "temperature": 0,
        "ignore_eos": True,
    },
)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("route", [COMPLETION, CHAT], ids=["completions", "chat"])
def test_clients_see_no_difference_and_traces_are_whole(engine, route, stream):
    path, asked = route

    async def steps():
        async with watching(engine, top_k=2) as s:
            assert (s.proxy.facts.engine, s.proxy.facts.semantics) == (Engine.VLLM, LogprobSemantics.RAW)
            assert s.proxy.facts.kernel.dtype == "bfloat16"
            body = {**asked, "stream": stream}
            straight = await ask(s.session, engine, path, body)
            through = await ask(s.session, s.url, path, body)
            assert told_text(through) == told_text(straight)
            if not stream:
                assert lasting(through) == lasting(straight)
            keys = [[set(choice) for choice in joined(told)["choices"]] for told in (straight, through)]
            assert keys[0] == keys[1]
            assert all(choice["logprobs"] is None for one in through for choice in one["choices"])
            (trace,) = await s.traces()
            assert trace.sequence_id == through[0]["id"]
            assert len(trace) == 16
            assert set(trace.status.tolist()) == {TokenStatus.VALID}
            assert (trace.token != 0).all()
            assert trace.top.logprob.shape == (16, 2)
            # Greedy: the sampled token is the most likely one, or as likely; logits of bfloat16 tie now and then.
            assert trace.logprob == pytest.approx(trace.top.logprob[:, 0], abs=1e-6)
            is_tied = trace.logprob - trace.top.logprob[:, 1] < 1e-6
            assert (trace.top.token[:, 0] == trace.token)[~is_tied].all()
            assert not s.proxy.tally.doubts
            if stream:
                assert trace.timings.ttft_s > 0
                assert trace.itl_s.shape == (16,)
            else:  # without --enable-per-request-metrics the engine tells no times
                assert (trace.timings.ttft_s, trace.itl_s) == (None, None)

    playing(steps())


def test_what_a_client_asked_for_stays(engine):
    path, asked = COMPLETION

    async def steps():
        async with watching(engine) as s:
            body = {**asked, "logprobs": 3, "return_token_ids": True}
            straight, through = [(await ask(s.session, url, path, body))[0] for url in (engine, s.url)]
            assert lasting([through]) == lasting([straight])
            (trace,) = await s.traces()
            ids = through["choices"][0]["token_ids"]
            assert trace.token.tolist() == HASHER.hash(np.array(ids)).tolist()

    playing(steps())


@pytest.mark.parametrize("max_tokens", [0, 4])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_echoed_prompt_stays(engine, stream, max_tokens):
    """With token ids asked for, vLLM 0.32 leaves the prompt out of the text."""
    path, asked = COMPLETION

    async def steps():
        async with watching(engine) as s:
            body = {**asked, "echo": True, "logprobs": 1, "max_tokens": max_tokens, "stream": stream}
            straight, through = [await ask(s.session, url, path, body) for url in (engine, s.url)]
            assert lasting(through) == lasting(straight)
            assert told_text(through).startswith(PROMPT)
            assert s.proxy.tally.unobserved == {"echo": 1}
            with_ids = await ask(s.session, engine, path, {**body, "return_token_ids": True})
            assert not told_text(with_ids).startswith(PROMPT)  # or they could be observed after all

    playing(steps())


def test_an_engine_error_is_the_engines(engine):
    path, asked = COMPLETION

    async def steps():
        async with watching(engine) as s:
            status, _, body = await s.post(path, {**asked, "logprobs": 50})
            assert (status, json.loads(body)["error"]["type"]) == (400, "BadRequestError")

    playing(steps())
