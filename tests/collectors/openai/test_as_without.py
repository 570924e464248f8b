"""What an addition of ours would change beyond itself: the client sees what it would have seen without it."""

import asyncio
import json

import numpy as np
import pytest
from engine_answers import HASHER, SECOND_NS, VLLM, chat, entry, observation, recorded, seen_in
from proxy_scenes import playing, replay, scene

from paritas.collectors.openai import Engine, Strip, facts_of, plan_of
from paritas.collectors.openai.naming import is_in_share
from paritas.collectors.openai.plans import Route, Unobserved
from paritas.collectors.openai.streams import EventCutter, data_of
from paritas.collectors.openai.tally import Tally
from paritas.collectors.openai.watching import EventWatcher
from paritas.records import LogprobSemantics

COMPLETIONS = "/v1/completions"
BOTH = Strip(("logprobs", "token_ids", "prompt_token_ids"), (), ("prompt_token_ids",))
IDS = {"return_token_ids": True}
LABELS = {"logprob_token_ids": [5, 9]}


def plan(route, asked, facts=VLLM):
    return plan_of(route, json.dumps(asked).encode(), facts, takes=True)


@pytest.mark.parametrize(
    ("asked", "unobserved"),
    [
        ({"logprobs": 1}, Unobserved.ECHO),  # with ids vLLM leaves the prompt out of the text
        ({"logprobs": 1, "max_tokens": 0}, Unobserved.ECHO),
        ({"logprobs": 1, "max_tokens": 0, **IDS}, Unobserved.ECHO),  # the one token there is not told
        ({"logprobs": 1, **IDS}, None),
    ],
)
def test_an_echo_stays_what_it_is(asked, unobserved):
    found = plan(Route.COMPLETIONS, {"prompt": "a", "echo": True, **asked})
    assert (found.unobserved, found.is_changed) == (unobserved, False)


def test_an_echoed_message_of_a_chat_does_not_depend_on_ids():
    assert plan(Route.CHAT, {"logprobs": True, "echo": True}).unobserved is None


@pytest.mark.parametrize(
    ("route", "asked"),
    [
        (Route.CHAT, LABELS),
        (Route.COMPLETIONS, LABELS),
        (Route.TOKENS, {"sampling_params": LABELS}),
    ],
)
def test_labels_without_logprobs_are_refused_by_the_engine_as_ever(route, asked):
    found = plan(route, asked)
    assert (found.unobserved, found.is_changed) == (Unobserved.CONFLICT, False)


@pytest.mark.parametrize(
    ("route", "asked"),
    [
        (Route.CHAT, {"logprobs": True, "top_logprobs": 3, **LABELS}),
        (Route.COMPLETIONS, {"logprobs": 3, **LABELS}),
        (Route.TOKENS, {"sampling_params": {"logprobs": 3, **LABELS}}),
    ],
)
def test_labels_that_a_client_chose_are_no_list_of_the_most_likely(route, asked):
    assert plan(route, asked).top_k == 0


def test_a_trace_with_chosen_labels_has_no_top():
    answer = chat([entry(7, -0.5, top=[(7, -0.5), (5, -9.0), (9, -11.0)])], token_ids=[7])
    asked = {"logprobs": True, "top_logprobs": 3, **LABELS}
    (trace,) = seen_in([answer], Route.CHAT, asked=asked).traces
    assert (trace.top, trace.logprob.tolist()) == (None, [-0.5])


def chunk(delta, ids, finish=None):
    told = entry(ids[0], -0.5)
    choice = {"index": 0, "delta": delta, "logprobs": {"content": [told]}, "finish_reason": finish}
    return {"id": "c", "choices": [{**choice, "token_ids": ids}]}


CALL = {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}
# What vLLM streams of a tool call: tokens its parser holds back come in an empty delta, where asked for.
CALLING = [
    {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}]},
    chunk({}, [5]),
    chunk(CALL, [6]),
    {**chunk({}, [7]), "usage": {"completion_tokens": 3}},
    chunk({}, [8], finish="tool_calls"),
]


def streamed(rules):
    watching = observation(Route.CHAT, asked={"stream": True})
    out = EventWatcher(watching, rules, Tally(), now_ns=lambda: SECOND_NS)
    content = b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in CALLING)
    passed = out.feed(content) + out.rest()
    return passed, [data_of(event) for event in EventCutter().feed(passed)], watching.finish()


def test_events_that_came_for_our_additions_alone_are_taken_out():
    _, out, seen = streamed(BOTH)
    assert [one["choices"][0]["delta"] for one in out] == [
        CALLING[0]["choices"][0]["delta"],
        CALL,
        {},  # it tells the end
    ]
    (trace,) = seen.traces
    assert trace.token.tolist() == HASHER.hash(np.array([5, 6, 7, 8])).tolist()


@pytest.mark.parametrize("rules", [Strip(), Strip(("token_ids", "prompt_token_ids"))])
def test_a_client_that_asked_gets_every_event(rules):
    passed, out, _ = streamed(rules)
    assert [one["choices"][0]["delta"] for one in out] == [one["choices"][0]["delta"] for one in CALLING]
    assert passed.count(b'"logprob":') == 4  # one of each token


@pytest.mark.parametrize(
    ("asked", "semantics"),
    [
        ({"temperature": 0}, LogprobSemantics.RAW),
        ({"temperature": 0, "logit_bias": {"5": 1}}, LogprobSemantics.UNKNOWN),
        ({"temperature": 0.5}, LogprobSemantics.PROCESSED),
        ({}, LogprobSemantics.PROCESSED),
    ],
)
def test_greedy_requests_are_told_by_the_law_of_temperature_one(asked, semantics):
    """The same in the proxy as in the plugin, or no greedy sequence of such an engine would pair."""
    facts = facts_of({}, engine=Engine.VLLM, semantics=LogprobSemantics.PROCESSED)
    assert plan(Route.CHAT, asked, facts).sampling.semantics is semantics


async def posted(url, body, headers):
    """Send bytes that no HTTP client would; return the whole answer."""
    host, _, port = url.removeprefix("http://").partition(":")
    reading, writing = await asyncio.open_connection(host, int(port))
    length = b"Content-Length: %d\r\nConnection: close\r\n" % len(body)
    writing.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + length + headers + b"\r\n" + body)
    answer = await reading.read()
    writing.close()
    await writing.wait_closed()
    return answer


def test_names_that_no_trace_can_hold_change_no_answer():
    """Latin-1 in a header, and half a surrogate pair in `user`: the request goes on unnamed."""
    half = b'{"prompt": "a", "user": "paritas:sequence=\\ud83d,run=\\ud83d,group=g"}'
    latin = b"x-paritas-sequence-id: caf\xe9\r\nx-paritas-attributes: slice=\xe9,environment=e\r\n"

    async def steps():
        async with scene(replay(recorded("completions.json"))) as s:
            for body, headers in ((b"{}", latin), (half, b"")):
                answer = await posted(s.url, body, headers)
                assert answer.startswith(b"HTTP/1.1 200 OK")
                assert b'"logprobs":null' in answer
            by_group = {one.group_id: one for one in await s.traces()}
            assert by_group[""].attributes == {"slice": "", "environment": "e"}
            assert by_group["g"].run_id == "run"
            assert {one.sequence_id for one in by_group.values()} == {"cmpl-9c3f82c59de2d78a"}
            assert not s.proxy.tally.faults

    playing(steps())


def test_a_sequence_named_in_user_is_taken_by_its_name():
    """As one named in a header is: all its requests or none."""
    taken, left = (
        next(f"s-{n}" for n in range(99) if is_in_share(f"s-{n}", 0.5) is wanted) for wanted in (True, False)
    )

    async def steps():
        async with scene(replay(recorded("completions.json")), share=0.5) as s:
            for name in (taken, left) * 8:
                await s.post(COMPLETIONS, {"prompt": "a", "user": f"paritas:sequence={name}"})
            assert [one.sequence_id for one in await s.traces()] == [taken] * 8
            assert s.proxy.tally.unobserved == {Unobserved.NOT_IN_SHARE: 8}

    playing(steps())
