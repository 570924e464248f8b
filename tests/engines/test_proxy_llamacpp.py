"""The proxy before a real llama.cpp server: clients see no difference, traces are whole, verdicts are right."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from engine_answers import HASHER
from engines.engines_setup import why_not_here
from engines.llamacpp_scenes import NEUTRAL, SLOTS, Trainer, judged, rollouts, serving
from engines.real_model import gguf_file
from engines.watched_engine import watching
from proxy_scenes import playing

from paritas.collectors.openai import Engine
from paritas.collectors.openai.columns import Doubt
from paritas.collectors.openai.plans import Unobserved
from paritas.collectors.openai.streams import EventCutter, data_of
from paritas.records import LogprobSemantics, TokenStatus

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(why_not_here("llamacpp")), reason=why_not_here("llamacpp") or ""),
]

CHANGING = ("id", "created", "timings")  # differ from request to request
PROMPT = "The capital of France is"
# Without its cache a prompt goes through the model in the same batches each time: answers are equal bit by bit.
COMMON = {"max_tokens": 16, "cache_prompt": False}
GREEDY = {**COMMON, "temperature": 0}
SEEDED = {**COMMON, "seed": 5, "temperature": 0.9, "top_p": 0.9}
MESSAGES = {"messages": [{"role": "user", "content": "Name three colours."}]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
COMPLETION, CHAT, NATIVE = "/v1/completions", "/v1/chat/completions", "/completion"


@pytest.fixture(scope="module")
def engine():
    with serving(gguf_file(), slots=1) as address:
        yield address


@pytest.fixture(scope="module")
def many():
    with serving(gguf_file(), slots=SLOTS) as address:
        yield address


@pytest.fixture(scope="module")
def trainer(small_model):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.float32)
    return Trainer(model, AutoTokenizer.from_pretrained(small_model))


async def ask(s, url, path, asked):
    """Return what a client gets: one JSON value, or those of a stream."""
    async with s.session.post(url + path, json=asked) as answer:
        body = await answer.read()
        assert answer.status == 200, body
        if answer.content_type != "text/event-stream":
            return [json.loads(body)]
    events = EventCutter().feed(body)
    assert events[-1] == b"data: [DONE]\n\n"
    return [data_of(event) for event in events[:-1]]


async def both(s, engine, path, asked):
    """Ask the engine and the proxy; what lasts of the two answers."""
    return [
        [{name: value for name, value in (one or {}).items() if name not in CHANGING} for one in answers]
        for answers in [await ask(s, url, path, asked) for url in (engine, s.url)]
    ]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize(
    ("path", "what"), [(COMPLETION, {"prompt": PROMPT}), (CHAT, MESSAGES)], ids=["completions", "chat"]
)
def test_clients_see_no_difference_and_traces_are_whole(engine, path, what, sampling, stream):
    async def steps():
        async with watching(engine, top_k=2) as s:
            asked = {**what, **sampling, "stream": stream, "ignore_eos": True}
            straight, through = await both(s, engine, path, asked)
            assert through == straight
            assert "logprob" not in json.dumps(through).replace('"logprobs": null', "")
            (trace,) = await s.traces()
            assert len(trace) == 16
            assert set(trace.status.tolist()) == {TokenStatus.VALID}
            assert (trace.token != 0).all()
            assert trace.top.logprob.shape == (16, 2)
            if sampling is GREEDY:
                assert (trace.top.token[:, 0] == trace.token).all()
                assert (trace.top.logprob[:, 0] == trace.logprob).all()
            assert trace.sampling.temperature == sampling["temperature"]
            assert (trace.sampling.top_k, trace.sampling.min_p) == (40, 0.05)  # its own, and not asked for
            assert trace.sampling.semantics is LogprobSemantics.RAW
            assert trace.timings.decode_s > 0
            assert (trace.timings.ttft_s is not None) == stream
            assert (await s.stopped()).doubts.total() == 0

    playing(steps())


def test_the_kernel_is_what_the_server_says(engine):
    async def steps():
        async with watching(engine) as s:
            facts = s.proxy.facts
            assert (facts.engine, facts.kernel.quantization) == (Engine.LLAMACPP, "gguf Q4_1")
            assert facts.kernel.engine_version != ""
            assert facts.kernel.extra["model"].endswith(".gguf")
            assert facts.defaults["top_k"] == 40

    playing(steps())


@pytest.mark.parametrize(
    ("path", "asked", "top_k"),
    [
        (COMPLETION, {"prompt": PROMPT, "logprobs": 3}, 3),
        (COMPLETION, {"prompt": PROMPT, "n_probs": 2}, 2),
        (COMPLETION, {"prompt": PROMPT, "logprobs": 2, "echo": True}, 2),
        (COMPLETION, {"prompt": PROMPT, "logprobs": 2, "stream": True}, 2),
        (CHAT, {**MESSAGES, "logprobs": True}, 20),
        (CHAT, {**MESSAGES, "logprobs": True, "top_logprobs": 2, "stream": True}, 2),
    ],
)
def test_what_a_client_asked_for_stays(engine, path, asked, top_k):
    async def steps():
        async with watching(engine, share=0.0) as s:
            straight, through = await both(s, engine, path, {**asked, **SEEDED})
            assert through == straight
            entries = [
                entry
                for one in through
                for choice in one["choices"]
                for entry in (choice.get("logprobs") or {"content": []})["content"]
            ]
            (trace,) = await s.traces()
            assert trace.token.tolist() == HASHER.hash(np.array([one["id"] for one in entries])).tolist()
            assert trace.logprob.tolist() == pytest.approx([one["logprob"] for one in entries], rel=1e-6)
            assert trace.top.logprob.shape == (len(trace), top_k)

    playing(steps())


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        (COMPLETION, {"prompt": PROMPT, "logprobs": 0}),
        (CHAT, {**MESSAGES, "logprobs": True, "top_logprobs": 0}),
        (COMPLETION, {"prompt": [PROMPT, "One, two, three,"]}),
        (COMPLETION, {"prompt": [PROMPT, "Water boils at"], "stream": True}),
        (COMPLETION, {"prompt": "Count: one, two, three,", "stop": ["five, six"]}),
        (COMPLETION, {"prompt": "Count: one, two, three,", "stop": ["five, six"], "stream": True}),
        (COMPLETION, {"prompt": "a", "grammar": 'root ::= "xyz"'}),
        (CHAT, {**MESSAGES, "max_tokens": 64}),
        (CHAT, {**MESSAGES, "max_tokens": 64, "stream": True}),
        (CHAT, {**MESSAGES, "tools": TOOLS}),
    ],
)
def test_other_requests_pass_unchanged_too(engine, path, asked):
    async def steps():
        async with watching(engine) as s:
            straight, through = await both(s, engine, path, {**GREEDY, **asked})
            assert through == straight
            traces = await s.traces()
            assert len(traces) == (2 if isinstance(asked.get("prompt"), list) else 1)
            assert all(set(trace.status.tolist()) == {TokenStatus.VALID} for trace in traces)
            assert not (await s.stopped()).faults

    playing(steps())


@pytest.mark.parametrize(
    ("path", "asked", "reason"),
    [
        (COMPLETION, {"prompt": PROMPT, "n_probs": 0}, Unobserved.CONFLICT),
        (CHAT, {**MESSAGES, "top_logprobs": 2}, Unobserved.CONFLICT),
        (COMPLETION, {"prompt": PROMPT, "logprobs": "x"}, Unobserved.CONFLICT),
        (NATIVE, {"prompt": PROMPT, "n_probs": 0}, Unobserved.CONFLICT),
        (NATIVE, {"prompt": PROMPT, "logprobs": 0}, Unobserved.CONFLICT),
        (NATIVE, {"prompt": PROMPT, "response_fields": ["content"]}, Unobserved.NO_TOKEN_IDS),
        (NATIVE, {"prompt": [{}]}, None),  # it refuses this, whoever asks
    ],
)
def test_what_is_not_observed_is_the_engines_alone(engine, path, asked, reason):
    async def steps():
        async with watching(engine) as s:
            bodies = []
            for url in (engine, s.url):
                async with s.session.post(url + path, json={**GREEDY, **asked}) as answer:
                    told = json.loads(await answer.read())
                    bodies.append((answer.status, {k: v for k, v in told.items() if k not in CHANGING}))
            assert bodies[0] == bodies[1]
            assert await s.traces() == []
            assert (await s.stopped()).unobserved == ({reason: 1} if reason else {})

    playing(steps())


SMILES = "Translate smile to emoji: happy = 😀, sad = 😢, love ="


async def bytes_of(s, url, path, asked):
    """Return the bytes of an answer but its times."""
    async with s.session.post(url + path, json=asked) as answer:
        body = await answer.read()
        assert answer.status == 200, body
        return re.sub(rb'"timings":\{[^}]*\}', b"", body)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("path", "asked", "lengths"),
    [
        (NATIVE, {"prompt": PROMPT}, [16]),
        ("/completions", {"prompt": PROMPT, "n_probs": 2, "seed": 5, "temperature": 0.9}, [16]),
        (NATIVE, {"prompt": PROMPT, "post_sampling_probs": True, "seed": 5, "temperature": 0.9}, [16]),
        (NATIVE, {"prompt": [PROMPT, "Water boils at"], "timings_per_token": True}, [16, 16]),
        (NATIVE, {"prompt": "Say it: ", "grammar": 'root ::= "hé \\"you\\"\\n"', "return_tokens": True}, [9]),
        (NATIVE, {"prompt": "Count: one, two, three,", "stop": ["six"]}, None),
        (NATIVE, {"prompt": SMILES}, []),
    ],
)
def test_its_own_route_passes_to_the_byte(engine, path, asked, lengths, stream):
    async def steps():
        async with watching(engine) as s:
            wanted = {**GREEDY, **asked, "stream": stream, "ignore_eos": "grammar" not in asked}
            straight, through = [await bytes_of(s, url, path, wanted) for url in (engine, s.url)]
            assert through == straight
            traces = await s.traces()
            assert lengths is None or [len(trace) for trace in traces] == lengths
            assert all(set(trace.status.tolist()) == {TokenStatus.VALID} for trace in traces)
            assert all(trace.timings.decode_s > 0 for trace in traces if len(traces) == 1)
            hidden = {} if lengths != [] else {Doubt.HIDDEN_TOKENS: 1}
            assert (await s.stopped()).doubts == hidden

    playing(steps())


def test_its_own_route_tells_what_the_other_tells(engine):
    async def steps():
        async with watching(engine, top_k=2) as s:
            for path in (COMPLETION, NATIVE):
                await ask(s, s.url, path, {"prompt": PROMPT, **GREEDY})
            one, other = await s.traces()
            assert one.token.tolist() == other.token.tolist()
            assert one.logprob.tolist() == other.logprob.tolist()
            assert one.top.logprob.tolist() == other.top.logprob.tolist()
            assert (one.sampling, one.kernel.engine_version) == (other.sampling, other.kernel.engine_version)

    playing(steps())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_characters_of_several_tokens_are_counted_and_give_no_trace(engine, stream):
    async def steps():
        async with watching(engine) as s:
            asked = {"prompt": SMILES, **GREEDY, "stream": stream}
            straight, through = await both(s, engine, COMPLETION, asked)
            assert through == straight
            assert "\\ud83d" in json.dumps(through)
            assert await s.traces() == []
            assert (await s.stopped()).doubts == {Doubt.HIDDEN_TOKENS: 1}

    playing(steps())


def test_raw_whatever_the_sampling_and_processed_if_asked(engine, trainer):
    """The law that is declared is the law that it is: PyTorch, with the same weights, says so."""
    import torch

    law = {"temperature": 0.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "logit_bias": [[28, 3.0]], "seed": 4}
    found = {}

    async def steps():
        async with watching(engine) as s:
            for is_after in (False, True):
                asked = {"prompt": PROMPT, **COMMON, **law, "logprobs": 1, "post_sampling_probs": is_after}
                (answer,) = await ask(s, s.url, COMPLETION, asked)
                found[is_after] = [one["id"] for one in answer["choices"][0]["logprobs"]["content"]]
            before, after = await s.traces()
            assert before.sampling.semantics is LogprobSemantics.RAW
            assert after.sampling.semantics is LogprobSemantics.PROCESSED
            assert before.sampling.processors == after.sampling.processors != ""
            assert found[False] == found[True]
            rows = [("s", PROMPT, found[False])]
            (_, ids, start) = next(trainer.batches(rows))
            with torch.no_grad():
                logits = trainer.model(ids).logits[0, start - 1 : -1]
            biased = logits.clone()
            biased[:, 28] += 3.0
            for trace, expected in ((before, logits), (after, biased / 0.5)):
                mine = expected.log_softmax(-1).gather(-1, ids[0, start:, None])[:, 0].numpy()
                assert np.abs(trace.logprob - mine).max() < 0.5
                assert np.abs(trace.logprob - mine).mean() < 0.12  # rounding of activations to 8 bits

    playing(steps())


# From here on: the whole path, from what llama.cpp sampled through the command to a verdict with its cause.


def test_healthy_q4_1_is_quiet_and_stale_weights_are_found(many, trainer, tmp_path):
    inference, rows = rollouts(many, tmp_path, **NEUTRAL)
    train = trainer.traces(rows)
    assert judged(inference, train)[:2] == (set(), [])
    newer = trainer.some_steps_on(rows).traces(rows)
    violated, found, facts = judged(inference, newer)
    assert "mean-ratio" in violated, (found, facts)
    assert found[0] == "stale_weights", facts
    versions = [replace(trace, weights_version="1") for trace in inference]
    violated, _, _ = judged(versions, [replace(trace, weights_version="2") for trace in newer])
    assert "paired" in violated  # sequences of other weights do not pair


@pytest.mark.thorough
def test_a_wrong_temperature_is_found(many, trainer, tmp_path):
    inference, rows = rollouts(many, tmp_path, **{**NEUTRAL, "temperature": 0.6})
    violated, found, facts = judged(inference, trainer.traces(rows))
    assert "law" in violated, (found, facts)
    assert found[0] == "wrong_law", facts
    assert facts["temperature"] == 0.6


def test_the_servers_own_defaults_are_found(many, trainer, tmp_path):
    """A client that says nothing gets temperature 0.8 and three truncations; the trainer believes in softmax."""
    inference, rows = rollouts(many, tmp_path)
    violated, found, facts = judged(inference, trainer.traces(rows))
    assert "law" in violated, (found, facts)
    assert found[0] == "wrong_law", facts
    assert (facts["temperature"], facts["top_p"]) == (0.8, 0.95)


@pytest.mark.parametrize(
    ("sampling", "cause"),
    [({"temperature": 0.6}, "temperature_mismatch"), ({"top_p": 0.8}, "support_mismatch")],
)
def test_another_law_on_one_side_only_is_found(many, trainer, tmp_path, sampling, cause):
    inference, rows = rollouts(many, tmp_path, **{**NEUTRAL, **sampling}, post_sampling_probs=True)
    assert {trace.sampling.semantics for trace in inference} == {LogprobSemantics.PROCESSED}
    train = trainer.traces(rows)
    assert "paired" in judged(inference, train)[0]  # what is declared of both sides cannot be compared
    # A trainer that believes what it is told of neither side.
    blind = [
        replace(trace, sampling=replace(trace.sampling, semantics=LogprobSemantics.UNKNOWN))
        for trace in inference
    ]
    violated, found, facts = judged(blind, train)
    assert violated
    assert found[0] == cause, (violated, facts)
