"""llama.cpp's server: what it tells of itself, what its requests mean, and what it does not tell.

The shapes were seen on llama.cpp of October 2026; tests/engines/test_proxy_llamacpp.py runs it.
"""

import json

import numpy as np
import pytest
from engine_answers import HASHER, LLAMACPP, chat, seen_in
from hypothesis import given
from hypothesis import strategies as st

from paritas.collectors.openai import Engine, facts_of, plan_of
from paritas.collectors.openai.llamacpp import timings_of_llamacpp
from paritas.collectors.openai.plans import Route, Unobserved
from paritas.records import LogprobSemantics, TokenStatus

VALID, MISSING, SENTINEL, NONFINITE = (
    TokenStatus.VALID,
    TokenStatus.MISSING,
    TokenStatus.SENTINEL,
    TokenStatus.NONFINITE,
)

SAMPLERS = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]
DEFAULTS = {
    "temperature": 0.800000011920929,
    "top_k": 40,
    "top_p": 0.949999988079071,
    "min_p": 0.05000000074505806,
    "top_n_sigma": -1.0,
    "repeat_penalty": 1.0,
    "dry_multiplier": 0.0,
    "mirostat": 0,
    "adaptive_target": -1.0,
    "ignore_eos": False,
    "samplers": SAMPLERS,
    "speculative.types": "none",
}
PROPS = {
    "default_generation_settings": {"params": DEFAULTS, "n_ctx": 2048},
    "model_ftype": "Q4_1",
    "model_path": "smol.gguf",
    "build_info": "b0-unknown",
}
FACTS = facts_of({"/props": PROPS})
NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def plan(asked, route=Route.COMPLETIONS, facts=FACTS, **named):
    return plan_of(route, json.dumps(asked).encode(), facts, **{"takes": True, **named})


def test_what_it_tells_of_itself():
    kernel = FACTS.kernel
    assert (FACTS.engine, FACTS.semantics) == (Engine.LLAMACPP, LogprobSemantics.RAW)
    assert (kernel.engine_version, kernel.quantization, kernel.speculative) == ("b0-unknown", "gguf Q4_1", "")
    assert kernel.extra == {"model": "smol.gguf"}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"params": {"speculative.types": "draft-simple"}}, "draft-simple"),
        ({"speculative": True}, "draft"),  # older servers
        ({"speculative": False}, ""),
        ({}, ""),
    ],
)
def test_drafts(settings, told):
    assert facts_of({"/props": {"default_generation_settings": settings}}).kernel.speculative == told


def test_a_request_that_says_nothing_is_not_sampled_neutrally():
    told = plan({"prompt": "a"}).sampling
    assert (told.temperature, told.top_k, told.top_p, told.min_p) == (0.8, 40, 0.95, 0.05)
    assert (told.processors, told.semantics) == ("", LogprobSemantics.RAW)
    own = plan({"prompt": "a", **NEUTRAL, "temperature": None}).sampling
    assert (own.temperature, own.top_k, own.top_p, own.min_p) == (0.8, 0, 1.0, 0.0)


def test_a_server_whose_defaults_change_the_law_says_so():
    props = {"default_generation_settings": {"params": {**DEFAULTS, "repeat_penalty": 1.1}}}
    penalising = facts_of({"/props": props})
    assert plan({}, facts=penalising).sampling.processors != ""
    assert plan({"repeat_penalty": 1.0}, facts=penalising).sampling.processors == ""
    assert plan({"samplers": ["top_k"]}).sampling.processors != ""


def test_below_zero_is_greedy():
    assert plan({"temperature": -1.0}).sampling.temperature == 0.0


@pytest.mark.parametrize(
    ("route", "asked", "added", "top_k"),
    [
        (Route.COMPLETIONS, {}, {"logprobs": 1}, 1),
        (Route.COMPLETIONS, {"logprobs": 0}, {"logprobs": 1}, 1),  # it tells nothing then
        (Route.COMPLETIONS, {"logprobs": -1}, {"logprobs": 1}, 1),
        (Route.COMPLETIONS, {"logprobs": True}, {}, 1),
        (Route.COMPLETIONS, {"logprobs": 3.0}, {}, 3),
        (Route.COMPLETIONS, {"logprobs": 500_000}, {}, 1024),
        (Route.COMPLETIONS, {"logprobs": 1, "n_probs": 5}, {}, 5),
        (Route.COMPLETIONS, {"logprobs": 2, "n_probs": None}, {}, 2),
        (Route.COMPLETIONS, {"n_probs": 5}, {}, 5),
        (Route.CHAT, {}, {"logprobs": True, "top_logprobs": 1}, 1),
        (Route.CHAT, {"logprobs": True, "top_logprobs": 0}, {"logprobs": True, "top_logprobs": 1}, 1),
        (Route.CHAT, {"logprobs": True}, {}, 20),
        (Route.CHAT, {"logprobs": True, "top_logprobs": 4}, {}, 4),
        (Route.CHAT, {"n_probs": 2}, {}, 2),
    ],
)
def test_what_is_asked_for(route, asked, added, top_k):
    found = plan(asked, route, top_k=1)
    assert found.unobserved is None
    assert json.loads(found.body) == {**asked, **added}
    assert bool(found.strip) is bool(added)
    assert found.top_k == top_k
    assert plan(asked, route, takes=False).unobserved == (Unobserved.NOT_IN_SHARE if added else None)


@pytest.mark.parametrize(
    ("route", "asked"),
    [
        (Route.COMPLETIONS, {"n_probs": 0}),  # it forbids what we would add
        (Route.COMPLETIONS, {"logprobs": "x"}),  # it refuses these, and shall
        (Route.CHAT, {"logprobs": True, "top_logprobs": "x"}),
        (Route.CHAT, {"top_logprobs": 2}),
        (Route.CHAT, {"stream": True, "tools": [{}]}),
    ],
)
def test_what_passes_as_it_came(route, asked):
    found = plan(asked, route)
    assert (found.unobserved, found.is_changed) == (Unobserved.CONFLICT, False)


def test_echo_is_ignored():
    """It tells no prompt back, so nothing is cut off."""
    answer = {**answer_of("ab"), "usage": {"prompt_tokens": 1, "completion_tokens": 2}}
    (trace,) = seen_in([answer], Route.CHAT, LLAMACPP, asked={"logprobs": True, "echo": True}).traces
    assert len(trace) == 2


def answer_of(texts, finish="stop", predicted=None, first=0):
    """An answer with one entry a text; ids count up."""
    entries = [{"id": first + n, "token": text, "logprob": -0.5} for n, text in enumerate(texts)]
    timings = {} if predicted is None else {"timings": {"predicted_n": predicted, "predicted_ms": 500.0}}
    return chat(entries, finish_reason=finish) | timings


# Smiles of two tokens tell one; the end token is told in whole answers only; a stop text cuts the entries.
@pytest.mark.parametrize(
    ("texts", "finish", "predicted", "asked", "is_whole"),
    [
        ("ab", "length", 2, {}, True),
        ("é!", "length", 2, {}, True),
        ("é!", "length", 3, {}, False),
        ("é!", "stop", 3, {}, False),
        ("é!", "stop", 3, {"stream": True}, True),  # the end
        ("é!", "stop", 2, {"stream": True}, False),
        ("é!", "stop", 4, {"stream": True}, False),
        ("é!", "stop", 3, {"stream": True, "stop": ["x"]}, False),  # the end, or a part of é
        ("ab", "stop", 9, {"stop": "x"}, True),
        ("ab", "stop", 9, {"stop": ["é"]}, False),
        ("é!", "length", None, {}, False),
        ("ab", "length", None, {}, True),
    ],
)
def test_tokens_that_are_not_told(texts, finish, predicted, asked, is_whole):
    seen = seen_in([answer_of(texts, finish, predicted)], Route.CHAT, LLAMACPP, asked=asked)
    assert (len(seen.traces), dict(seen.doubts)) == ((1, {}) if is_whole else (0, {"hidden_tokens": 1}))


def test_counts_of_one_choice_say_nothing_of_several():
    first = answer_of("é!", "length", 2)["choices"][0]
    second = {**answer_of("ab", "length", first=5)["choices"][0], "index": 1}
    answer = {"id": "c", "choices": [first, second], "timings": {"predicted_n": 2}}
    seen = seen_in([answer], Route.COMPLETIONS, LLAMACPP, asked={"prompt": ["a", "b"]})
    assert [trace.token.tolist() for trace in seen.traces] == [HASHER.hash(np.array([5, 6])).tolist()]
    assert dict(seen.doubts) == {"hidden_tokens": 1}


def test_a_stream_counts_each_choice():
    """Of several prompts each comes to its end with a count of its own, and ``data: null`` stands between them."""
    pieces = [answer_of("é!", "length", 2), None, answer_of("é!", "length", 3)]
    pieces[2]["choices"][0]["index"] = 1
    seen = seen_in(pieces, Route.COMPLETIONS, LLAMACPP, asked={"prompt": ["a", "b"], "stream": True})
    assert [trace.sequence_id for trace in seen.traces] == ["chatcmpl-1/0"]
    assert dict(seen.doubts) == {"hidden_tokens": 1}
    assert seen.traces[0].timings.prefill_s is None  # it times one of them


def test_a_stream_with_times():
    pieces = [answer_of("a", None), answer_of("b", None, first=1), answer_of("", "length", 2)]
    pieces[-1]["choices"][0]["logprobs"] = None
    (trace,) = seen_in(pieces, Route.CHAT, LLAMACPP, asked={"stream": True}).traces
    assert trace.token.tolist() == HASHER.hash(np.array([0, 1])).tolist()
    assert (trace.timings.ttft_s, trace.timings.decode_s, trace.itl_s[1]) == (1.0, 1.0, 1.0)


@given(
    st.dictionaries(
        st.sampled_from(["prompt_ms", "predicted_ms"]), st.none() | st.booleans() | st.floats() | st.text()
    )
)
def test_times_are_seconds_or_nothing(told):
    times = timings_of_llamacpp(told)
    assert all(one is None or (np.isfinite(one) and one >= 0) for one in (times.prefill_s, times.decode_s))


def test_llamacpp_entries_carry_ids():
    content = [
        {
            "id": 5,
            "token": "a",
            "bytes": [97],
            "logprob": -0.5,
            "top_logprobs": [{"id": 5, "token": "a", "logprob": -0.5}],
        }
    ]
    (trace,) = seen_in([chat(content)], Route.CHAT, LLAMACPP, top_k=1).traces
    assert trace.token.tolist() == trace.top.token[:, 0].tolist() == HASHER.hash(np.array([5])).tolist()


def test_llamacpp_streams():
    """Shapes as tools/server/server-task.cpp of llama.cpp writes them: ids in each entry, the end has none."""

    def content(token_id, logprob):
        own = {"id": token_id, "token": "a", "bytes": [97], "logprob": logprob}
        return {"content": [{**own, "top_logprobs": [own]}]}

    choices = [
        {"finish_reason": None, "index": 0, "delta": {"role": "assistant", "content": None}},
        {"finish_reason": None, "index": 0, "delta": {"content": "a"}, "logprobs": content(5, -0.5)},
        {
            "finish_reason": None,
            "index": 0,
            "delta": {"content": "a"},
            "logprobs": content(6, -3.4028234663852886e38),
        },
        {"finish_reason": "stop", "index": 0, "delta": {}},
    ]
    chunks = [{"id": "chatcmpl-l", "object": "chat.completion.chunk", "choices": [one]} for one in choices]
    chunks.append({"choices": [], "usage": {"completion_tokens": 3}, "timings": {"predicted_n": 3}})
    seen = seen_in(chunks, Route.CHAT, LLAMACPP, asked={"stream": True})
    (trace,) = seen.traces
    assert trace.status.tolist() == [VALID, SENTINEL]
    assert (seen.doubts.total(), trace.sampling.semantics) == (0, LogprobSemantics.RAW)


def test_llamacpp_with_post_sampling_probs_tells_another_law():
    """The fields become linear `prob` and `top_probs`, of the law the token was drawn from."""
    content = [
        {"id": 5, "token": "a", "bytes": [97], "prob": 0.5, "top_probs": [{"id": 6, "prob": 0.5}]},
        {"id": 5, "token": "a", "bytes": [97], "prob": 0.0, "top_probs": []},
        {"id": 5, "token": "a", "bytes": [97], "prob": -0.5, "top_probs": []},
        {"id": 5, "token": "a", "bytes": [97], "prob": None, "top_probs": []},
    ]
    asked = {"post_sampling_probs": True, "logprobs": True, "top_logprobs": 1}
    (trace,) = seen_in([chat(content)], Route.CHAT, LLAMACPP, asked=asked).traces
    assert trace.logprob[0] == trace.top.logprob[0, 0] == np.float32(np.log(0.5))
    assert trace.status.tolist() == [VALID, NONFINITE, NONFINITE, MISSING]
    assert trace.sampling.semantics is LogprobSemantics.PROCESSED
