"""Batches of verl and OpenRLHF with real tensors, down to the agent."""

from types import SimpleNamespace

import numpy as np
import torch

from paritas.collectors import openrlhf, verl
from paritas.collectors.torch import CaptureDrop
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


def test_openrlhf_gives_both_kernels(watched):
    experience = SimpleNamespace(
        sequences=torch.tensor([[1, 2, 5, 6, 7], [1, 5, 6, 7, 8]]),
        action_mask=torch.tensor([[0, 1, 1, 1], [1, 0, 1, 1]]).bool(),
        action_log_probs=torch.full((2, 4), -1.0),
        rollout_log_probs=torch.full((2, 4), -1.1),
        index=[4, 9],
    )
    openrlhf.show_experience(
        watched.collector, experience, weights_version="3", sampling=Sampling(temperature=1.0)
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
