"""What is asked of each engine in the client's place, and what is never touched."""

import json

import pytest
from engine_answers import LLAMACPP, SGLANG, VLLM
from hypothesis import given
from hypothesis import strategies as st

from paritas.collectors.openai import Engine, Strip, facts_of, plan_of
from paritas.collectors.openai.plans import Route, Unobserved

NEW_VLLM = facts_of({"/version": {"version": "0.33.1"}})
OTHER = facts_of({}, engine=Engine.OTHER)
IDS = {"return_token_ids": True}


def plan(route, asked, facts=VLLM, **named):
    return plan_of(route, json.dumps(asked).encode(), facts, **{"takes": True, **named})


@pytest.mark.parametrize(
    ("facts", "route", "asked", "top_k", "added"),
    [
        (
            VLLM,
            Route.CHAT,
            {},
            0,
            {"logprobs": True, "top_logprobs": 0, "return_tokens_as_token_ids": True, **IDS},
        ),
        (
            VLLM,
            Route.CHAT,
            {"logprobs": False},
            2,
            {"logprobs": True, "top_logprobs": 3, "return_tokens_as_token_ids": True, **IDS},
        ),
        (VLLM, Route.CHAT, {"logprobs": True, "top_logprobs": 4}, 9, IDS),
        (VLLM, Route.COMPLETIONS, {}, 2, {"logprobs": 2, "return_tokens_as_token_ids": True, **IDS}),
        (VLLM, Route.COMPLETIONS, {"logprobs": 0}, 2, IDS),
        (VLLM, Route.COMPLETIONS, {"logprobs": 1, "return_token_ids": True}, 2, {}),
        (NEW_VLLM, Route.COMPLETIONS, {"logprobs": 1, **IDS}, 0, {"return_weight_versions": True}),
        (
            VLLM,
            Route.TOKENS,
            {"sampling_params": {"max_tokens": 3}},
            1,
            {"sampling_params": {"max_tokens": 3, "logprobs": 1}},
        ),
        (VLLM, Route.TOKENS, {"sampling_params": {"logprobs": 2}}, 1, {}),
        (
            SGLANG,
            Route.GENERATE,
            {"text": "a"},
            3,
            {"return_logprob": True, "logprob_start_len": -1, "top_logprobs_num": 3},
        ),
        (SGLANG, Route.GENERATE, {"logprob_start_len": 5}, 0, {"return_logprob": True}),
        (SGLANG, Route.GENERATE, {"return_logprob": True}, 3, {}),
        (SGLANG, Route.CHAT, {}, 1, {"logprobs": True, "top_logprobs": 1, "return_meta_info": True}),
        (SGLANG, Route.CHAT, {"logprobs": True}, 1, {"return_meta_info": True}),
        (SGLANG, Route.COMPLETIONS, {"stream": True}, 0, {"logprobs": 0, **IDS}),
        (LLAMACPP, Route.CHAT, {}, 0, {"logprobs": True, "top_logprobs": 1}),
        (LLAMACPP, Route.COMPLETIONS, {}, 5, {"logprobs": 5}),
        (LLAMACPP, Route.COMPLETIONS, {"logprobs": 3}, 5, {}),
    ],
)
def test_what_is_added(facts, route, asked, top_k, added):
    found = plan(route, asked, facts, top_k=top_k)
    assert found.unobserved is None
    assert json.loads(found.body) == {**asked, **added}
    assert found.is_changed is bool(added)
    assert bool(found.strip) is bool(added)


@pytest.mark.parametrize(
    ("facts", "route", "asked", "reason"),
    [
        (VLLM, Route.COMPLETIONS, {"echo": True}, Unobserved.ECHO),
        (VLLM, Route.COMPLETIONS, {"use_beam_search": True}, Unobserved.BEAM_SEARCH),
        (VLLM, Route.CHAT, {"top_logprobs": 2}, Unobserved.CONFLICT),
        (VLLM, Route.GENERATE, {}, Unobserved.NO_TOKEN_IDS),
        (SGLANG, Route.CHAT, {"stream": True}, Unobserved.NO_TOKEN_IDS),
        (SGLANG, Route.GENERATE, {"return_logprob": [True, False]}, Unobserved.CONFLICT),
        (LLAMACPP, Route.CHAT, {"stream": True, "tools": [{}]}, Unobserved.CONFLICT),
        (OTHER, Route.CHAT, {"logprobs": True}, Unobserved.NO_TOKEN_IDS),
    ],
)
def test_what_passes_as_it_came(facts, route, asked, reason):
    found = plan(route, asked, facts)
    assert (found.unobserved, found.is_changed, found.body) == (reason, False, json.dumps(asked).encode())


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"7", b'{"a": NaN}', b'{"temperature": 1e999}', b"\xff", b"[" * 100_000]
)
def test_what_cannot_be_read_passes(body):
    found = plan_of(Route.CHAT, body, VLLM, takes=True)
    assert (found.unobserved, found.body) == (Unobserved.NOT_JSON, body)


def test_the_share_is_for_those_who_did_not_ask():
    assert plan(Route.CHAT, {}, takes=False).unobserved is Unobserved.NOT_IN_SHARE
    assert plan(Route.CHAT, {"logprobs": True}, takes=False).unobserved is None


def test_what_is_added_is_what_is_stripped():
    assert plan(Route.CHAT, {}).strip == Strip(
        ("logprobs", "token_ids", "prompt_token_ids"), (), ("prompt_token_ids",)
    )
    assert plan(Route.CHAT, {"logprobs": True}).strip.null_in_choice == ("token_ids", "prompt_token_ids")
    assert plan(Route.COMPLETIONS, {"logprobs": 1, **IDS}).strip == Strip()
    assert plan(Route.CHAT, {}, SGLANG).strip == Strip(("logprobs",), ("meta_info",))
    assert plan(Route.COMPLETIONS, {}, SGLANG).strip == Strip(
        ("logprobs",), ("token_ids", "prompt_token_ids")
    )
    assert plan(Route.CHAT, {}, LLAMACPP).strip == Strip((), ("logprobs",))
    assert "output_token_logprobs" in plan(Route.GENERATE, {}, SGLANG).strip.drop_in_meta


@pytest.mark.parametrize(
    ("asked", "is_many"),
    [
        ({"prompt": "a"}, False),
        ({"prompt": ["a"]}, False),
        ({"prompt": ["a", "b"]}, True),
        ({"prompt": [1, 2, 3]}, False),
        ({"prompt": [[1, 2], [3]]}, True),
        ({"n": 4}, True),
        ({"n": 1}, False),
    ],
)
def test_whether_several_choices_may_come(asked, is_many):
    assert plan(Route.COMPLETIONS, asked).is_many is is_many


def test_the_rest_of_a_plan():
    found = plan(Route.COMPLETIONS, {"stream": True, "echo": True, "logprobs": 4, "user": "u", **IDS})
    assert (found.is_stream, found.echo, found.top_k, found.user) == (True, True, 4, "u")
    assert plan(Route.CHAT, {"logprobs": True, "top_logprobs": 4}).top_k == 3  # the sampled one took a place
    assert plan(Route.GENERATE, {"return_logprob": True, "top_logprobs_num": 2}, SGLANG).top_k == 2


@pytest.mark.parametrize(
    ("asked", "same", "differs"),
    [
        ({}, {"presence_penalty": 0.0, "logit_bias": {}, "response_format": None}, {"presence_penalty": 0.5}),
        (
            {"logit_bias": {"5": 1}},
            {"logit_bias": {"5": 1}, "repetition_penalty": 1.0},
            {"logit_bias": {"5": 2}},
        ),
        ({}, {"tool_choice": "auto"}, {"tool_choice": "required"}),
        ({}, {"response_format": {"type": "text"}}, {"response_format": {"type": "json_object"}}),
    ],
)
def test_processors_are_told_by_what_they_do(asked, same, differs):
    digests = [plan(Route.CHAT, one).sampling.processors for one in (asked, same, differs)]
    assert digests[0] == digests[1] != digests[2]


def test_sampling_of_the_inner_parameters():
    found = plan(Route.GENERATE, {"sampling_params": {"temperature": 0, "top_p": 0.5, "top_k": 40}}, SGLANG)
    assert (found.sampling.temperature, found.sampling.top_k, found.sampling.top_p) == (1.0, 1, 0.5)  # greedy
    odd = plan(Route.CHAT, {"temperature": "hot", "top_p": True, "top_k": 2**40, "min_p": None})
    assert (odd.sampling.temperature, odd.sampling.top_p, odd.sampling.top_k) == (None, None, None)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "logprobs",
        "top_logprobs",
        "prompt",
        "n",
        "stream",
        "echo",
        "user",
        "temperature",
        "top_k",
        "logit_bias",
        "return_logprob",
        "sampling_params",
        "return_token_ids",
        "tool_choice",
        "text",
        "messages",
        "n_probs",
    ]
)


@given(
    st.dictionaries(KEYS | st.text(), JSON, max_size=6),
    st.sampled_from(list(Route)),
    st.sampled_from([VLLM, SGLANG, LLAMACPP]),
)
def test_nothing_a_client_asked_is_lost(asked, route, facts):
    """Whatever comes: planning does not fail, and every field of the client is still there."""
    found = plan(route, asked, facts, top_k=2)
    sent = json.loads(found.body)
    owned = {"logprobs", "top_logprobs", "return_logprob", "sampling_params", "logprob_start_len", "n_probs"}
    owned |= {
        "return_token_ids",
        "return_meta_info",
        "return_weight_versions",
        "top_logprobs_num",
        "return_tokens_as_token_ids",
    }
    assert {k: v for k, v in sent.items() if k not in owned} == {
        k: v for k, v in asked.items() if k not in owned
    }
    for name in set(asked) & owned - {"sampling_params"}:
        assert (
            sent[name] == asked[name]
            or not asked[name]
            or name in ("top_logprobs_num", "return_tokens_as_token_ids", "top_logprobs")
        )


def test_a_lone_surrogate_travels():
    body = b'{"prompt":"\\ud83d"}'
    assert json.loads(plan_of(Route.COMPLETIONS, body, VLLM, takes=True).body)["prompt"] == "\ud83d"
