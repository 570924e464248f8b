"""Batches of verl and OpenRLHF with real tensors, down to the agent."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from engines.capture_scenes import HASHER
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import LlamaConfig, LlamaForCausalLM

from paritas.clock import SystemClock
from paritas.collectors import openrlhf, verl
from paritas.collectors.torch import CaptureDrop, CaptureLimits, Stamp, TorchCollector
from paritas.collectors.torch.weights import weights_digest
from paritas.records import LogprobSemantics, Sampling, TokenStatus


def data_proto():
    """The three parts of a `DataProto` that are read, in verl's shapes."""
    return SimpleNamespace(
        batch={
            "responses": torch.tensor([[5, 6, 7, 8], [5, 6, 0, 0]]),
            "attention_mask": torch.tensor([[0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]),
            "response_mask": torch.tensor([[1, 1, 0, 1], [1, 1, 0, 0]]),
            "old_log_probs": torch.full((2, 4), -1.0, requires_grad=True),
            "rollout_log_probs": torch.tensor([[-1.1, torch.nan, 0.0, -1.1], [-1.1, -1.1, 0.0, 0.0]]),
        },
        non_tensor_batch={"uid": np.array(["p", "p"], dtype=object)},
        meta_info={"temperature": 0.7, "global_steps": 8},
    )


def test_verl_gives_both_kernels(watched):
    verl.show_batch(
        watched.collector, data_proto(), weights_version="7", truncation=Sampling(top_p=1.0, top_k=-1)
    )
    traces = watched.traces()
    assert sorted(traces) == [(role, f"7/p/{n}") for role in ("inference", "train") for n in range(2)]
    ours, theirs = traces["train", "7/p/0"], traces["inference", "7/p/0"]
    assert ours.token.tolist() == theirs.token.tolist()
    assert ours.status.tolist() == [0, 0, TokenStatus.MASKED, 0]
    assert theirs.status.tolist() == [0, TokenStatus.NONFINITE, TokenStatus.MASKED, 0]
    assert (ours.sampling.temperature, ours.sampling.semantics) == (0.7, LogprobSemantics.TEMPERATURE_ONLY)
    assert theirs.sampling.semantics is LogprobSemantics.PROCESSED
    assert len(traces["train", "7/p/1"]) == 2
    assert ours.weights_version == theirs.weights_version == "7"


def experience():
    """An `Experience` in OpenRLHF's shapes."""
    return SimpleNamespace(
        sequences=torch.tensor([[1, 2, 5, 6, 7], [1, 5, 6, 7, 8]]),
        action_mask=torch.tensor([[0, 1, 1, 1], [1, 0, 1, 1]]).bool(),
        action_log_probs=torch.full((2, 4), -1.0),
        rollout_log_probs=torch.full((2, 4), -1.1),
        index=[4, 9],
    )


def test_openrlhf_gives_both_kernels(watched):
    openrlhf.show_experience(
        watched.collector, experience(), weights_version="3", sampling=Sampling(temperature=1.0)
    )
    traces = watched.traces()
    assert sorted(traces) == [(role, name) for role in ("inference", "train") for name in ("3/4/0", "3/9/0")]
    assert traces["train", "3/9/0"].status.tolist() == [0, TokenStatus.MASKED, 0, 0]
    assert len(traces["inference", "3/4/0"]) == 3


def test_a_batch_that_is_none_is_counted(watched):
    verl.show_batch(watched.collector, None, weights_version="7")
    openrlhf.show_experience(watched.collector, None, weights_version="7")
    assert watched.collector.read().dropped == {CaptureDrop.SHAPE: 2}
    assert watched.traces() == {}


def policy(seed=0):
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
    )
    return LlamaForCausalLM(config)


class Wrapper(torch.nn.Module):
    """Holds a module under a name, as OpenRLHF's Actor does with `model` and DeepSpeed's engine with `module`."""

    def __init__(self, name, inner):
        super().__init__()
        self.add_module(name, inner)


def shards():
    """A policy as ZeRO 3 leaves it between its steps: nothing where parameters were."""
    sharded = policy()
    for parameter in sharded.parameters():
        parameter.data = torch.empty(0)
    return sharded


def half():
    return policy().half()


def plain():
    return torch.nn.Linear(2, 2)


def show_verl(collector, **named):
    verl.show_batch(collector, data_proto(), **{"weights_version": "7", **named})


def show_openrlhf(collector, **named):
    openrlhf.show_experience(collector, experience(), **{"weights_version": "7", **named})


HOOKS = pytest.mark.parametrize("show", [show_verl, show_openrlhf], ids=["verl", "openrlhf"])


def digests(traces):
    """What each role tells, by version."""
    return {(role, trace.weights_version): trace.weights_digest for (role, _), trace in traces.items()}


@HOOKS
def test_a_module_at_hand_is_weighed_once_a_version(watched, show):
    trained, expected = policy(), {}
    for version in ("7", "8"):
        expected["train", version], expected["inference", version] = weights_digest(trained).text, ""
        show(watched.collector, weights_version=version, model=trained)
        with torch.no_grad():
            for parameter in trained.parameters():
                parameter.mul_(1.5)
    assert digests(watched.traces()) == expected
    assert "" != expected["train", "7"] != expected["train", "8"] != ""


def test_an_actor_of_openrlhf_is_looked_into(watched):
    trained = policy()
    show_openrlhf(watched.collector, weights_version="1", model=Wrapper("model", trained))
    show_openrlhf(watched.collector, weights_version="2", model=Wrapper("model", Wrapper("module", trained)))
    show_verl(watched.collector, weights_version="3", model=Wrapper("module", trained))
    told = digests(watched.traces())
    assert {told["train", version] for version in "123"} == {weights_digest(trained).text} != {""}


@HOOKS
@pytest.mark.parametrize("make", [object, str, plain, half, shards])
def test_weights_that_cannot_be_compared_are_unknown_and_their_traces_told(watched, show, make):
    show(watched.collector, model=make())
    traces = watched.traces()
    assert len(traces) == 4
    assert set(digests(traces).values()) == {""}
    assert watched.collector.read().dropped == {}


@HOOKS
def test_weighing_can_be_switched_off(watched, show):
    limits = CaptureLimits(weighs=False)
    collector = TorchCollector(
        watched.emitter, clock=SystemClock(), hasher=HASHER, stamp=Stamp("run"), limits=limits
    )
    show(collector, model=policy())
    assert set(digests(watched.traces()).values()) == {""}


@pytest.fixture
def second_of_two():
    """This process as rank 1 of 2; the other is made up."""
    torch.distributed.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


@HOOKS
def test_ranks_name_their_own_parts(watched, show, second_of_two):
    show(watched.collector, model=policy())
    traces = watched.traces()
    assert len(traces) == 4
    assert all(name.startswith("7/1/") for _, name in traces)
    assert traces["train", min(name for _, name in traces)].weights_digest == weights_digest(policy()).text
