"""A vLLM server as inference kernel: recorded answers over real HTTP, and every way it can fail."""

import json
import socket

import numpy as np
import pytest
from engine_answers import recorded, told
from odd_servers import NO_HTTP, speaking
from replayed_vllm import COMPLETIONS, replayed_vllm
from usage_errors import failing

from paritas.collectors.kernels import Ask, open_sampler, parse_spec
from paritas.records import LogprobSemantics, Role, Sampling

PLAIN = Sampling(1.0, 1.0, 0, 0.0)
ASK = Ask("a/0", "a", np.array([1, 2, 3]), seed=7, max_tokens=16)
SERVER_INFO = "/server_info?config_format=json"


def opened(url, *options, top_k=5):
    return open_sampler(parse_spec(",".join([f"vllm:{url}", *options]), Role.INFERENCE), top_k=top_k)


def test_a_recorded_answer_is_read_whole():
    with replayed_vllm() as (url, asked):
        sampler = opened(url)
        (answer,) = sampler.sample([ASK], sampler.law(PLAIN))
    choice = told("completions.json")["choices"][0]
    assert answer.token.tolist() == choice["token_ids"]
    assert answer.logprob.tolist() == choice["logprobs"]["token_logprobs"]
    assert answer.top[0][0] == (1129, -8.081753730773926)
    assert [len(row) for row in answer.top] == [len(row) for row in choice["logprobs"]["top_logprobs"]]
    assert (answer.finish, answer.rows, answer.ask) == ("length", None, ASK)
    assert asked == [
        {
            "model": "smol",
            "prompt": [1, 2, 3],
            "max_tokens": 16,
            "seed": 7,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "logprobs": 5,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
    ]


def test_many_are_asked_together_and_stay_in_order():
    asks = [Ask(f"a/{n}", "a", np.array([n + 1]), seed=n, max_tokens=16) for n in range(20)]
    with replayed_vllm() as (url, asked):
        answers = opened(url).sample(asks, PLAIN)
    assert [a.ask.sample_id for a in answers] == [a.sample_id for a in asks]
    assert sorted(a["seed"] for a in asked) == list(range(20))


def test_what_the_server_says_of_itself():
    with replayed_vllm() as (url, _):
        plain = opened(url + "/")
    assert (plain.identity.engine, plain.identity.engine_version) == ("vllm", "0.32.0")
    assert (plain.context, plain.vocabulary) == (1024, None)
    with replayed_vllm(**{SERVER_INFO: (200, recorded("server_info_json.json"))}) as (url, _):
        talkative = opened(url)
    assert talkative.identity.dtype == "bfloat16"
    assert talkative.law(Sampling(0.6)).semantics is LogprobSemantics.RAW


def test_semantics_matter_only_where_the_law_is_processed():
    with replayed_vllm() as (url, _):
        silent, declared = opened(url), opened(url, "logprobs_mode=processed_logprobs")
        assert silent.law(PLAIN).semantics is LogprobSemantics.RAW
        assert declared.law(Sampling(0.6)).semantics is LogprobSemantics.PROCESSED
        message, hint = failing(lambda: silent.law(Sampling(0.6)))
    assert message == f"{url}: does not say what its log-probabilities mean"
    assert hint == (
        "give logprobs_mode=raw_logprobs (vLLM's default) or processed_logprobs after the address, "
        "or start the server with VLLM_SERVER_DEV_MODE=1"
    )


def test_nobody_is_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        found = failing(lambda: opened(url))
    assert found == (f"{url}: no answer: Connection refused", "is the server up? vllm serve MODEL")


@pytest.mark.parametrize("words", NO_HTTP, ids=["other", "broken"])
def test_something_else_is_there(words):
    with speaking(words) as url:
        found = failing(lambda: opened(url))
    told = f"{url}: no answer: what answers there does not speak HTTP, or broke off"
    assert found == (told, "is the server up? vllm serve MODEL")


def test_no_address():
    expected = "--inference: 'localhost:8000' is no address", "such as http://127.0.0.1:8000"
    assert failing(lambda: opened("localhost:8000")) == expected


MODELS = {
    b"<html>": ("{url}/v1/models: answered no JSON", "is it a vLLM server?"),
    b'{"data": []}': ("{url}: serves no model", "is it an OpenAI-compatible server?"),
    b"[]": ("{url}: serves no model", "is it an OpenAI-compatible server?"),
    b'{"data": [{"id": "a"}, {"id": "b"}]}': ("{url}: serves 2 models", "give one as model=NAME: a, b"),
}


@pytest.mark.parametrize("body", MODELS)
def test_what_answers_is_no_such_server(body):
    with replayed_vllm(**{"/v1/models": (200, body)}) as (url, _):
        message, hint = failing(lambda: opened(url))
    assert (message.replace(url, "{url}"), hint) == MODELS[body]


def test_another_model_is_asked_for():
    with replayed_vllm() as (url, _):
        assert failing(lambda: opened(url, "model=x")) == (f"{url}: serves no model 'x'", "it serves smol")


def test_the_servers_words_are_passed_on():
    refused = 400, recorded("error_too_many_logprobs.json")
    with replayed_vllm(**{COMPLETIONS: refused}) as (url, _):
        message, hint = failing(lambda: opened(url, top_k=50).sample([ASK], PLAIN))
    assert message == f"{url}/v1/completions: answered 400"
    assert hint.startswith("Requested sample logprobs of 50, which is greater than max allowed: 20")


BARE = {"choices": [{"text": "x", "logprobs": None, "finish_reason": "stop"}]}


@pytest.mark.parametrize("answer", [BARE, {"choices": []}, [], {"choices": [7]}])
def test_an_answer_without_tokens(answer):
    with replayed_vllm(**{COMPLETIONS: (200, json.dumps(answer).encode())}) as (url, _):
        found = failing(lambda: opened(url).sample([ASK], PLAIN))
    assert found == (f"{url}: answers without token ids and log-probabilities", "is it vLLM >= 0.10?")


def test_logits_are_not_log_probabilities():
    info = told("server_info_json.json")
    info["vllm_config"]["model_config"]["logprobs_mode"] = "raw_logits"
    with replayed_vllm(**{SERVER_INFO: (200, json.dumps(info).encode())}) as (url, _):
        found = failing(lambda: opened(url))
    assert found == (
        f"{url}: reports logits, not log-probabilities",
        "start it with --logprobs-mode raw_logprobs",
    )


TOKENS = {
    b'{"count": 2, "tokens": [5, 6]}': [5, 6],
    b'{"count": 0, "tokens": []}': [],
    b'{"tokens": ["a"]}': None,
    b"[]": None,
    b"no": None,
}


@pytest.mark.parametrize("body", TOKENS)
def test_how_the_server_tokenises(body):
    with replayed_vllm(**{"/tokenize": (200, body)}) as (url, asked):
        found = opened(url).encode("Once")
    assert (None if found is None else found.tolist()) == TOKENS[body]
    assert asked == [{"model": "smol", "prompt": "Once"}]


def test_a_server_that_tells_no_tokens():
    with replayed_vllm() as (url, _):
        assert opened(url).encode("Once") is None
