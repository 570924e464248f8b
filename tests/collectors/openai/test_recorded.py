"""Every shape that a real vLLM 0.32 answered with: token ids stand beside their log-probabilities."""

import json

import numpy as np
import pytest
from engine_answers import DATA, HASHER, VLLM, events, recorded, seen_in, told

from paritas.collectors.openai import Entry, facts_of, read_prompt_logprobs
from paritas.collectors.openai.plans import ROUTES, Route
from paritas.records import KernelIdentity, LogprobSemantics, Role, TokenStatus


def test_every_recording_is_used_here():
    """A recording that nobody reads proves nothing."""
    named = {
        "chat.json",
        "chat_stream.sse",
        "completions.json",
        "completions_stream.sse",
        "error_too_many_logprobs.json",
        "generate.json",
        "generate_prompt_logprobs.json",
        "models.json",
        "prompt_logprobs.json",
        "server_info.json",
        "server_info_json.json",
        "version.json",
    }
    assert {path.name for path in DATA.iterdir()} == named


def the(seen):
    (trace,) = seen.traces
    return trace


def test_completions():
    answer = told("completions.json")
    choice = answer["choices"][0]
    trace = the(seen_in([answer], Route.COMPLETIONS, top_k=4))
    assert trace.token.tolist() == HASHER.hash(np.array(choice["token_ids"])).tolist()
    assert trace.logprob.tolist() == np.float32(choice["logprobs"]["token_logprobs"]).tolist()
    assert set(trace.status.tolist()) == {TokenStatus.VALID}
    assert trace.sequence_id == "cmpl-9c3f82c59de2d78a"
    assert trace.kernel.extra["system_fingerprint"] == "vllm-0.32.0-e77b56ff"
    # The first token was none of the five: the list holds six, and its best four stay.
    assert trace.top.token[0].tolist() == HASHER.hash(np.array([7042, 260, 4528, 2250])).tolist()
    told_top = sorted(choice["logprobs"]["top_logprobs"][0].values(), reverse=True)
    assert trace.top.logprob[0].tolist() == np.float32(told_top[:4]).tolist()


def test_timings_of_vllm_leave_the_queue_out_and_ours_do_not():
    trace = the(seen_in([told("completions.json")], Route.COMPLETIONS))
    metrics = told("completions.json")["metrics"]
    assert trace.timings.queue_s == metrics["queue_time_ms"] / 1000
    assert trace.timings.prefill_s == metrics["time_to_first_token_ms"] / 1000
    assert trace.timings.ttft_s == trace.timings.queue_s + trace.timings.prefill_s
    assert trace.timings.decode_s == metrics["generation_time_ms"] / 1000
    assert trace.itl_s is None


def test_chat():
    answer = told("chat.json")
    choice = answer["choices"][0]
    seen = seen_in([answer], Route.CHAT)
    trace = the(seen)
    assert trace.token.tolist() == HASHER.hash(np.array(choice["token_ids"])).tolist()
    assert (
        trace.logprob.tolist() == np.float32([e["logprob"] for e in choice["logprobs"]["content"]]).tolist()
    )
    assert (trace.top, seen.doubts.total()) == (None, 0)  # texts name no tokens


def test_completions_stream():
    chunks = events("completions_stream.sse")
    trace = the(seen_in(chunks, Route.COMPLETIONS, asked={"stream": True}))
    ids = [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]]
    assert len(ids) == 8
    assert trace.token.tolist() == HASHER.hash(np.array(ids)).tolist()
    assert trace.logprob[0] == np.float32(-0.2692539393901825)
    assert np.isnan(trace.itl_s[0])
    assert trace.itl_s[1:].tolist() == [1.0] * 7
    assert (trace.timings.ttft_s, trace.timings.decode_s) == (1.0, 7.0)


def test_chat_stream_of_a_client_that_asked_no_ids():
    """Recorded without return_token_ids: there is nothing to name tokens by, and it is counted."""
    seen = seen_in(events("chat_stream.sse"), Route.CHAT, asked={"stream": True})
    assert (seen.traces, dict(seen.doubts)) == ((), {"no_token_ids": 1})


def test_chat_stream_with_the_ids_that_the_proxy_asks_for():
    """The same chunks with the token ids each would carry; the last brings vLLM's own metrics."""
    chunks = events("chat_stream.sse")
    for number, chunk in enumerate(chunks[1:-1]):
        chunk["choices"][0]["token_ids"] = [100 + number]
    trace = the(seen_in(chunks, Route.CHAT, asked={"stream": True}))
    assert trace.token.tolist() == HASHER.hash(np.arange(100, 112)).tolist()
    assert trace.logprob[-1] == np.float32(-7.333100318908691)
    assert trace.timings.queue_s == 0.023654999949940247 / 1000
    assert trace.timings.ttft_s == 2.0  # as it arrived here: the first chunk holds no token
    assert trace.event_ns == 7


def test_tokens_route():
    answer = told("generate.json")
    choice = answer["choices"][0]
    trace = the(seen_in([answer], Route.TOKENS, top_k=4))
    assert trace.token.tolist() == HASHER.hash(np.array(choice["token_ids"])).tolist()
    assert (
        trace.logprob.tolist() == np.float32([e["logprob"] for e in choice["logprobs"]["content"]]).tolist()
    )
    assert trace.weights_version == ""  # "default" says that nobody named them
    fifth = [504, 788, 1348, 2068]  # the sampled token, rank 50, is not among the likely ones
    assert trace.top.token[4].tolist() == HASHER.hash(np.array(fifth)).tolist()


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("prompt_logprobs.json", lambda answer: answer["choices"][0]["prompt_logprobs"]),
        ("generate_prompt_logprobs.json", lambda answer: answer["prompt_logprobs"]),
    ],
)
def test_prompt_logprobs(name, where):
    entries = read_prompt_logprobs(where(told(name)))
    assert entries[0] == Entry(None, None)
    assert [one.token_id for one in entries[1:4]] == [3575, 282, 4649]
    assert [one.logprob for one in entries[1:3]] == [-11.70806884765625, -0.33559009432792664]


def test_an_answer_with_prompt_logprobs_only_gives_no_trace():
    seen = seen_in([told("prompt_logprobs.json")], Route.COMPLETIONS)
    assert (seen.traces, dict(seen.doubts)) == ((), {"no_token_ids": 1})


def test_an_error_is_no_answer():
    seen = seen_in([told("error_too_many_logprobs.json")], Route.CHAT)
    assert (seen.traces, seen.doubts.total()) == ((), 0)


def test_the_server_is_recognised_and_its_kernel_named():
    answers = {
        "/version": told("version.json"),
        "/v1/models": told("models.json"),
        "/server_info?config_format=json": told("server_info_json.json"),
    }
    facts = facts_of(answers)
    assert facts.kernel == KernelIdentity(
        Role.INFERENCE,
        engine="vllm",
        engine_version="0.32.0",
        dtype="bfloat16",
        kv_cache_dtype="auto",
        tp=1,
        pp=1,
        batch_invariant=False,
        cuda_graphs=False,
        prefix_caching=True,
        chunked_prefill=True,
        extra={"model": "smol", "logprobs_mode": "raw_logprobs"},
    )
    assert facts.semantics is LogprobSemantics.RAW


def test_the_text_form_of_server_info_tells_nothing_and_does_no_harm():
    facts = facts_of(
        {"/version": told("version.json"), "/server_info?config_format=json": told("server_info.json")}
    )
    assert (facts.version, facts.semantics, facts.kernel.dtype) == ("0.32.0", LogprobSemantics.UNKNOWN, "")


@pytest.mark.parametrize("name", ["chat_stream.sse", "completions_stream.sse"])
def test_streams_are_read_the_same_however_they_are_cut(name):
    from paritas.collectors.openai.streams import EventCutter

    content = recorded(name)
    whole = EventCutter().feed(content)
    for size in (1, 7, 1000):
        cutter = EventCutter()
        cut = [event for at in range(0, len(content), size) for event in cutter.feed(content[at : at + size])]
        assert cut == whole
        assert b"".join([*cut, cutter.rest()]) == content


def test_routes_are_those_of_the_recordings():
    assert ROUTES["/v1/completions"] is Route.COMPLETIONS
    assert json.loads(recorded("models.json"))["data"][0]["owned_by"] == VLLM.engine
