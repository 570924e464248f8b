"""Sentinels, nulls and defects that engines are known for, as inputs.

Each case names the public report it comes from.  Reports that need two kernels, time or a whole
fleet (drift by position, stale caches, a trend) belong to the detectors and are tested there.
"""

import json
import math

import numpy as np
import pytest
from engine_answers import HASHER, SGLANG, VLLM, chat, entry, seen_in, sglang

from paritas.collectors.openai import Engine, facts_of, plan_of
from paritas.collectors.openai.columns import columns_of
from paritas.collectors.openai.plans import Route, Unobserved
from paritas.collectors.openai.responses import Spoken
from paritas.records import LogprobSemantics, TokenStatus

VALID, MISSING, SENTINEL, NONFINITE, POSITIVE = (
    TokenStatus.VALID,
    TokenStatus.MISSING,
    TokenStatus.SENTINEL,
    TokenStatus.NONFINITE,
    TokenStatus.POSITIVE,
)


def statuses(answer, route=Route.CHAT, facts=VLLM, **named):
    """Statuses of the one trace, and the doubts."""
    seen = seen_in([answer], route, facts, **named)
    (trace,) = seen.traces
    return trace.status.tolist(), {str(doubt): n for doubt, n in seen.doubts.items()}


@pytest.mark.parametrize(
    ("logprob", "status"),
    [
        (-0.5, VALID),
        (0.0, VALID),
        (5e-7, VALID),  # rounding of a log-softmax
        (-9999.0, SENTINEL),  # vLLM: -inf, and also "no entry"
        (-3.4028234663852886e38, SENTINEL),  # SGLang: clamped to the lowest float32
        (-1e30, SENTINEL),  # SGLang with SGLANG_SANITIZE_NAN_LOGITS
        (None, MISSING),  # vLLM's stream and SGLang: NaN or nothing
        ("-inf", MISSING),
        (True, MISSING),
        (float("nan"), NONFINITE),  # bare NaN of older encoders
        (float("-inf"), NONFINITE),
        (10**400, NONFINITE),
        (1.0, POSITIVE),
        (12.5, POSITIVE),  # a logit
    ],
)
def test_each_value_has_its_status(logprob, status):
    answer = chat([entry(5, -0.5), entry(6, logprob)], token_ids=[5, 6])
    assert statuses(answer)[0] == [VALID, status]
    tuples = [[-0.5, 5, None], [logprob, 6, None]]
    assert statuses(sglang(tuples), Route.GENERATE, SGLANG)[0] == [VALID, status]
    lists = {"tokens": ["a", "b"], "token_logprobs": [-0.5, logprob], "top_logprobs": None}
    completion = {
        "id": "c",
        "choices": [
            {"index": 0, "text": "ab", "finish_reason": "stop", "token_ids": [5, 6], "logprobs": lists}
        ],
    }
    assert statuses(completion, Route.COMPLETIONS)[0] == [VALID, status]


@pytest.mark.parametrize(
    ("rank", "logprob", "status"),
    [
        (1, -0.5, VALID),
        (None, -9999.0, NONFINITE),
        (7, -9999.0, SENTINEL),
        (0, -0.5, NONFINITE),
        (None, -0.5, VALID),
    ],
)
def test_rank_tells_nan_on_the_tokens_route(rank, logprob, status):
    """vLLM's token-in token-out route writes NaN as -9999 with rank null; rank 0 is NaN in objects."""
    content = [{"token_id": 5, "logprob": logprob, "rank": rank, "top_logprobs": []}]
    answer = {
        "request_id": "g",
        "choices": [
            {"index": 0, "token_ids": [5], "logprobs": {"content": content}, "finish_reason": "stop"}
        ],
    }
    assert statuses(answer, Route.TOKENS)[0] == [status]


def test_ranks_of_the_tokens_route_arrive():
    told = [(5, 1), (6, None), (7, 0), (8, 48_000), (9, True), (10, -1)]
    content = [{"token_id": token, "logprob": -0.5, "rank": rank, "top_logprobs": []} for token, rank in told]
    spoken = Spoken()
    spoken.read_choice(
        {"index": 0, "token_ids": list(range(5, 11)), "logprobs": {"content": content}}, now_ns=0
    )
    columns = columns_of(spoken, HASHER, top_k=0)
    assert columns.rank.tolist() == [1, 0, 0, 48_000, 0, 0]
    del content[0]["rank"], content[3]["rank"]
    spoken = Spoken()
    spoken.read_choice(
        {"index": 0, "token_ids": list(range(5, 11)), "logprobs": {"content": content}}, now_ns=0
    )
    assert columns_of(spoken, HASHER, top_k=0).rank is None


@pytest.mark.parametrize("report", ["vllm 17876", "llama.cpp 27972", "TensorRT-LLM 2406", "lmdeploy 2232"])
def test_all_zero_is_a_doubt(report):
    answer = chat([entry(n, 0.0) for n in range(10)], token_ids=list(range(10)))
    assert statuses(answer, asked={"temperature": 0.7})[1] == {"all_zero": 1}


@pytest.mark.parametrize("asked", [{"temperature": 0}, {"top_k": 1}])
def test_all_zero_is_the_truth_when_greedy(asked):
    """lmdeploy 2232, the other half: after truncation to one token, zero is right."""
    answer = chat([entry(n, 0.0) for n in range(10)], token_ids=list(range(10)))
    assert statuses(answer, asked=asked)[1] == {}


def test_only_the_first_logprob_came():
    """SGLang 14046: with speculative decoding one of N."""
    answer = chat([entry(5, -0.5)], token_ids=[5, 6, 7])
    assert statuses(answer) == ([VALID, MISSING, MISSING], {"length_mismatch": 1})


def test_no_logprobs_came():
    """SGLang 28601, 10660: they vanish beside a parser; the tokens stay and are counted."""
    assert statuses(chat(None, token_ids=[5, 6])) == ([MISSING, MISSING], {"no_logprobs": 1})


def test_a_dropped_token_costs_only_itself():
    """vLLM 37738: the <tool_call> token has no log-probability in a stream."""
    answer = chat([entry(5, -0.5), entry(7, -0.25), entry(8, -1.0)], token_ids=[5, 6, 7, 8])
    assert statuses(answer) == ([VALID, MISSING, VALID, VALID], {"length_mismatch": 1})


def test_a_dropped_token_without_ids_in_the_entries_costs_all():
    """Nothing says which one is missing: better none than shifted ones."""
    entries = [{"token": text, "logprob": -0.5, "top_logprobs": []} for text in "ab"]
    answer = chat(entries, token_ids=[5, 6, 7])
    assert statuses(answer) == ([MISSING] * 3, {"length_mismatch": 1, "no_logprobs": 1})


def test_logprobs_cover_reasoning_the_text_does_not():
    """SGLang 25055: aligned by ids; the text is never looked at."""
    answer = chat([entry(n, -0.5) for n in (1, 2, 3)], token_ids=[1, 2, 3])
    answer["choices"][0]["message"]["content"] = ""
    assert statuses(answer)[0] == [VALID] * 3


def test_a_logprob_of_another_token():
    """vLLM 44106: values of wrong ids; detection rule ID."""
    answer = chat([entry(5, -0.5), entry(9, -0.5)], token_ids=[5, 6])
    assert statuses(answer) == ([VALID, MISSING], {"id_mismatch": 1})


def test_fewer_top_entries_than_asked():
    """vLLM 44319: two ids decode to one text; what is missing is NaN with token 0, never made up."""
    answer = chat([entry(5, -0.5, top=[(5, -0.5), (6, -1.5)])], token_ids=[5])
    (trace,) = seen_in([answer], Route.CHAT, top_k=3).traces
    assert trace.top.token.tolist() == [[*HASHER.hash(np.array([5, 6])).tolist(), 0]]
    assert trace.top.logprob[0, :2].tolist() == [-0.5, -1.5]
    assert math.isnan(trace.top.logprob[0, 2])


def test_the_top_does_not_depend_on_the_sampled_token():
    """vLLM 42259: the sampled token stands first, even when it is not likely, and may stand twice."""
    unlikely = entry(9, -7.0, top=[(9, -7.0), (1, -0.2), (2, -2.0)])
    likely = entry(2, -2.0, top=[(2, -2.0), (2, -2.0), (1, -0.2), (3, -4.0)])
    traces = [
        seen_in([chat([one], token_ids=[one_id])], Route.CHAT, top_k=2).traces[0]
        for one, one_id in ((unlikely, 9), (likely, 2))
    ]
    assert (
        traces[0].top.token.tolist()
        == traces[1].top.token.tolist()
        == [HASHER.hash(np.array([1, 2])).tolist()]
    )


def test_sentinels_do_not_stand_in_the_top():
    answer = chat([entry(5, -0.5, top=[(5, -0.5), (6, -9999.0), (7, None)])], token_ids=[5])
    (trace,) = seen_in([answer], Route.CHAT, top_k=3).traces
    assert np.isnan(trace.top.logprob[0]).tolist() == [False, True, True]


def test_a_top_that_sums_to_more_than_one():
    """Detection rule SUM: logits under the name of log-probabilities."""
    answer = chat([entry(5, -0.1, top=[(5, -0.1), (6, -0.1)])], token_ids=[5])
    seen = seen_in([answer], Route.CHAT, top_k=2)
    assert dict(seen.doubts) == {"bad_top": 1}


def test_a_server_in_logits_mode_is_not_asked():
    config = {"vllm_config": {"model_config": {"logprobs_mode": "raw_logits"}}}
    facts = facts_of({"/version": {"version": "0.33.0"}, "/server_info?config_format=json": config})
    assert plan_of(Route.CHAT, b"{}", facts, takes=True).unobserved is Unobserved.LOGITS


def test_duplicate_samples_in_a_group():
    """UniRL 208: SGLang's deterministic mode gives every sample of a group one seed."""
    choices = [
        chat([entry(n, -0.5) for n in range(8)], token_ids=list(range(8)), index=i)["choices"][0]
        for i in range(3)
    ]
    answer = {"id": "x", "choices": choices}
    assert dict(seen_in([answer], Route.CHAT, asked={"n": 3}).doubts) == {"duplicate_choices": 2}
    assert not seen_in([answer], Route.CHAT, asked={"n": 3, "temperature": 0}).doubts


def test_a_boundary_token_is_null():
    """strands-sglang 34: the first scored token of a turn."""
    tuples = [[None, 5, "a"], [-0.5, 6, "b"]]
    assert statuses(sglang(tuples), Route.GENERATE, SGLANG)[0] == [MISSING, VALID]


@pytest.mark.parametrize(
    ("facts", "semantics"),
    [
        (facts_of({}, engine=Engine.VLLM), "unknown"),  # raw by default, but it may be set and is not told
        (facts_of({}, engine=Engine.VLLM, semantics=LogprobSemantics.PROCESSED), "processed"),
        (facts_of({}, engine=Engine.SGLANG), "temperature_only"),
        (facts_of({}, engine=Engine.LLAMACPP), "raw"),
        (facts_of({}, engine=Engine.OTHER), "unknown"),
    ],
)
def test_semantics_are_recorded(facts, semantics):
    """TRL 4159, 6789, TGI 2108, miles 1345: the law and the temperature travel with each trace."""
    assert facts.semantics.value == semantics
    if facts.engine is not Engine.OTHER:
        plan = plan_of(Route.CHAT, b'{"temperature": 0.6, "top_p": 0.9}', facts, takes=True)
        assert (plan.sampling.temperature, plan.sampling.top_p) == (0.6, 0.9)
        assert plan.sampling.semantics.value == semantics


def test_sglang_streams_are_cumulative_or_not():
    """Both ways of streaming give the same trace; chunks that do not add up are a doubt."""
    tuples = [[-0.5 - n / 8, 5 + n, None] for n in range(4)]

    def chunk(part, total, last=False):
        return sglang(part, completion_tokens=total, finish_reason={"type": "stop"} if last else None)

    cumulative = [chunk(tuples[:1], 1), chunk(tuples[:3], 3), chunk(tuples, 4, last=True)]
    sliced = [chunk(tuples[:1], 1), chunk(tuples[1:3], 3), chunk(tuples[3:], 4, last=True)]
    traces = [
        seen_in(one, Route.GENERATE, SGLANG, asked={"stream": True}).traces[0] for one in (cumulative, sliced)
    ]
    assert traces[0].logprob.tolist() == traces[1].logprob.tolist() == [-0.5, -0.625, -0.75, -0.875]
    assert traces[0].itl_s[1:].tolist() == [1.0, 0.0, 1.0]
    lost = seen_in([sliced[0], sliced[2]], Route.GENERATE, SGLANG, asked={"stream": True})
    assert dict(lost.doubts) == {"out_of_step": 1}


def test_lmdeploy_pairs():
    choice = {
        "index": 0,
        "text": "ab",
        "finish_reason": "stop",
        "output_token_logprobs": [[-0.5, 5], [-0.25, 6]],
    }
    (trace,) = seen_in([{"id": "l", "choices": [choice]}], Route.COMPLETIONS, SGLANG).traces
    assert trace.token.tolist() == HASHER.hash(np.array([5, 6])).tolist()


def test_weights_that_changed_on_the_way():
    spans = [{"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 2}]
    answer = chat([entry(5, -0.5), entry(6, -0.5)], token_ids=[5, 6], weight_versions=spans)
    seen = seen_in([answer], Route.CHAT)
    assert (seen.traces[0].weights_version, dict(seen.doubts)) == ("3+4", {"mixed_weights": 1})


def test_weights_of_sglang_stand_in_the_metadata():
    answer = {**chat([entry(5, -0.5)], token_ids=[5]), "metadata": {"weight_version": "12"}}
    assert seen_in([answer], Route.CHAT, SGLANG).traces[0].weights_version == "12"


def test_an_unfinished_choice_gives_no_trace():
    answer = chat([entry(5, -0.5)], token_ids=[5], finish_reason=None)
    seen = seen_in([answer], Route.CHAT)
    assert (seen.traces, dict(seen.doubts)) == ((), {"unfinished": 1})


def test_echo_leaves_the_prompt_out():
    lists = {
        "tokens": ["p", "q", "a"],
        "token_logprobs": [None, -3.0, -0.5],
        "top_logprobs": [None, None, None],
    }
    choice = {"index": 0, "text": "pqa", "finish_reason": "stop", "token_ids": [7], "logprobs": lists}
    asked = {"echo": True, "logprobs": 1, "return_token_ids": True}
    (trace,) = seen_in([{"id": "e", "choices": [choice]}], Route.COMPLETIONS, asked=asked).traces
    assert trace.logprob.tolist() == [-0.5]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        7,
        {"choices": 7},
        {"choices": [None, 7, {}]},
        {"choices": [{"index": "x", "logprobs": []}]},
        {
            "choices": [
                {
                    "logprobs": {"content": [None, 7, {"logprob": {}}]},
                    "token_ids": [1, None, "x"],
                    "finish_reason": "stop",
                }
            ]
        },
        {
            "choices": [
                {
                    "logprobs": {"token_logprobs": [1, None], "tokens": 3, "top_logprobs": [5]},
                    "token_ids": {},
                    "finish_reason": 1,
                }
            ]
        },
        {
            "metrics": [],
            "usage": 3,
            "metadata": {"weight_versions": 3},
            "choices": [{"meta_info": {"output_token_logprobs": [[1]]}}],
        },
        {"meta_info": 3},
        {
            "meta_info": {
                "output_token_logprobs": [None, [], [1, 2, 3]],
                "completion_tokens": "x",
                "output_top_logprobs": [3],
            }
        },
    ],
)
@pytest.mark.parametrize("route", [Route.CHAT, Route.GENERATE])
def test_nonsense_is_survived(answer, route):
    facts = SGLANG if route is Route.GENERATE else VLLM
    seen = seen_in([json.loads(json.dumps(answer))], route, facts, top_k=2)
    assert all(len(trace) for trace in seen.traces)


def test_usage_counts_what_the_lists_do_not_hold():
    """Detection rule LEN: token ids, log-probabilities and the engine's own count must agree."""
    answer = {**chat([entry(5, -0.5)], token_ids=[5]), "usage": {"completion_tokens": 2, "prompt_tokens": 1}}
    assert statuses(answer) == ([VALID], {"length_mismatch": 1})
    answer["usage"]["completion_tokens"] = 1
    assert statuses(answer) == ([VALID], {})
