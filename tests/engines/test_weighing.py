"""Digests of a training model for every version: as `weights_digest` says, without keeping or touching the model."""

import gc
import weakref

import numpy as np
import pytest
import torch
from engines.capture_scenes import HASHER
from transformers import LlamaConfig, LlamaForCausalLM

from paritas.clock import SystemClock
from paritas.collectors.torch import CaptureLimits, Names, Stamp, TorchCollector
from paritas.collectors.torch.copies import Copies
from paritas.collectors.torch.weighing import Weigher
from paritas.collectors.torch.weights import weights_digest

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 17000,
}


def model(seed=0):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**SIZES))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_version_has_the_digest_that_its_weights_have(dtype):
    trained, weigher = model().to(dtype), Weigher(Copies())
    seen = set()
    for version in range(3):
        told = weigher.weigh(trained, str(version)).text()
        assert told == weights_digest(trained).text != ""
        seen.add(told)
        with torch.no_grad():
            for parameter in trained.parameters():
                parameter.add_(0.01)
    assert len(seen) == 3


def test_a_version_is_weighed_once():
    trained, weigher = model(), Weigher(Copies())
    first = weigher.weigh(trained, "7")
    before = weights_digest(trained).text
    with torch.no_grad():
        trained.model.norm.weight.add_(1)
        trained.model.layers[0].mlp.up_proj.weight.add_(1)
    assert weigher.weigh(trained, "7") is first
    assert first.text() == before != weights_digest(trained).text


def test_new_tensors_in_the_place_of_old_ones_are_found():
    trained, weigher = model(), Weigher(Copies())
    weigher.weigh(trained, "0")
    for module in trained.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, torch.nn.Parameter(parameter.detach() * 2))
    assert weigher.weigh(trained, "1").text() == weights_digest(trained).text != ""


def test_another_model_is_another_digest():
    weigher = Weigher(Copies())
    policy, reference = model(), model(1)
    told = [weigher.weigh(one, "7").text() for one in (policy, reference, policy)]
    assert told == [weights_digest(one).text for one in (policy, reference, policy)]
    assert told[0] != told[1]


@pytest.mark.parametrize(
    "make", [lambda: model().half(), lambda: torch.nn.Linear(2, 2), object], ids=["float16", "plain", "none"]
)
def test_what_cannot_be_compared_has_none(make):
    assert Weigher(Copies()).weigh(make(), "0").text() == ""


def test_a_freed_model_is_not_kept():
    trained, weigher = model(), Weigher(Copies())
    coming = weigher.weigh(trained, "0")
    refs = [weakref.ref(parameter) for parameter in trained.parameters()]
    del trained
    gc.collect()
    assert {ref() for ref in refs} == {None}
    assert coming.text() == weights_digest(model()).text


def shown(collector, trained, version):
    with collector.step(weights_version=version, model=trained) as step:
        step.observe(torch.tensor([[5, 6]]), logprobs=torch.full((1, 2), -0.5), names=Names([f"s{version}"]))


def test_a_step_with_its_model_fills_the_digest(watched):
    trained = model()
    shown(watched.collector, trained, "3")
    shown(watched.collector, trained, "")
    traces = watched.traces()
    assert traces["train", "s3"].weights_digest == weights_digest(trained).text != ""
    assert traces["train", "s"].weights_digest == ""  # nobody could say when to take the next


def test_it_can_be_switched_off(watched):
    limits = CaptureLimits(weighs=False)
    made = {"clock": SystemClock(), "hasher": HASHER, "stamp": Stamp("run"), "limits": limits}
    shown(TorchCollector(watched.emitter, **made), model(), "3")
    assert watched.traces()["train", "s3"].weights_digest == ""


def test_the_model_and_the_random_numbers_are_not_touched():
    trained = model()
    before, state = [p.detach().clone() for p in trained.parameters()], torch.get_rng_state()
    Weigher(Copies()).weigh(trained, "0").text()
    assert torch.equal(state, torch.get_rng_state())
    for one, other in zip(before, trained.parameters(), strict=True):
        assert torch.equal(one, other)
    assert np.all([p.grad is None and p.requires_grad for p in trained.parameters()])
