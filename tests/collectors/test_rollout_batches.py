"""Batches of verl and OpenRLHF in their own shapes become rollouts; numpy stands for tensors here.

tests/engines shows the same with PyTorch and down to the agent.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from paritas.collectors import openrlhf, trl, verl
from paritas.collectors.torch import Stamp
from paritas.collectors.torch.rollouts import numbered
from paritas.records import Role

UIDS = np.array(["p", "q", "p"], dtype=object)


def verl_batch():
    """Three responses of 4 after prompts of 2: one left-padded prompt, one short response, a tool's token."""
    return {
        "prompts": np.zeros((3, 2)),
        "responses": np.array([[5, 6, 7, 8], [5, 6, 0, 0], [5, 6, 7, 8]]),
        "attention_mask": np.array([[0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]),
        "response_mask": np.array([[1, 1, 0, 1], [1, 1, 0, 0], [1, 1, 1, 1]]),
        "old_log_probs": np.full((3, 4), -1.0),
        "rollout_log_probs": np.full((3, 4), -1.1),
    }


def test_verl():
    told = verl.rollouts_of(verl_batch(), {"uid": UIDS}, prefix="7/")
    assert told.mask.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]]
    assert told.loss_mask.tolist()[0] == [1, 1, 0, 1]
    assert told.names.sequence_ids == ["7/p/0", "7/q/0", "7/p/1"]
    assert told.names.group_ids == ["7/p", "7/q", "7/p"]
    assert told.train[0, 0] == -1.0
    assert told.inference[0, 0] == -1.1


def test_verl_without_the_engines_log_probabilities_or_uids():
    batch = {k: v for k, v in verl_batch().items() if k != "rollout_log_probs"}
    told = verl.rollouts_of(batch, {}, prefix="")
    assert told.inference is None
    assert told.names.sequence_ids == ["0/0", "1/0", "2/0"]


def test_verl_request_ids_name_sequences_when_they_are_one_each():
    told = verl.rollouts_of(verl_batch(), {"uid": UIDS, "request_id": ["a", "b", "c"]}, prefix="")
    assert told.names.sequence_ids == ["a", "b", "c"]
    again = verl.rollouts_of(verl_batch(), {"uid": UIDS, "request_id": ["a", "a", "c"]}, prefix="")
    assert again.names.sequence_ids == ["p/0", "q/0", "p/1"]


def test_openrlhf():
    # Sequences of 5; the mask, one shorter, is over tokens 1..4: prompt of two, and in the second row a turn between.
    experience = SimpleNamespace(
        sequences=np.array([[1, 2, 5, 6, 7], [1, 5, 6, 7, 8]]),
        action_mask=np.array([[0, 1, 1, 1], [1, 0, 1, 1]]),
        action_log_probs=np.full((2, 4), -1.0),
        rollout_log_probs=None,
        index=None,
    )
    told = openrlhf.rollouts_of(experience, prefix="3/")
    assert told.tokens.tolist() == [[2, 5, 6, 7], [5, 6, 7, 8]]
    assert told.inference is None
    assert told.names.sequence_ids == ["3/0/0", "3/1/0"]


class Recorder:
    """A collector that keeps what it is shown and weighs by name: a real one needs PyTorch (tests/engines)."""

    def __init__(self):
        self.stamp, self.stamps = Stamp("run", weights_digest="w1:of the trainer"), []

    def weighed(self, stamp, model):
        return replace(stamp, weights_digest=f"w1:{model}")

    def show(self, shown, names, *, stamp):
        self.stamps.append(stamp)


def experience():
    return SimpleNamespace(
        sequences=np.array([[1, 2, 5]]),
        action_mask=np.array([[1, 1]]),
        action_log_probs=np.full((1, 2), -1.0),
        rollout_log_probs=np.full((1, 2), -1.1),
        index=None,
    )


def proto():
    return SimpleNamespace(batch=verl_batch(), non_tensor_batch={"uid": UIDS}, meta_info={})


@pytest.mark.parametrize(
    ("show", "batch"), [(verl.show_batch, proto()), (openrlhf.show_experience, experience())]
)
def test_the_weights_that_are_at_hand_are_the_trainers(show, batch):
    """Nothing that is seen here says which weights the engine holds."""
    recorder = Recorder()
    show(recorder, batch, weights_version="7", model="its weights")
    told = {stamp.kernel.role: stamp.weights_digest for stamp in recorder.stamps}
    assert told == {Role.TRAIN: "w1:its weights", Role.INFERENCE: ""}


def test_trl_keeps_its_columns():
    batch = {
        "completion_ids": "ids",
        "completion_mask": "mask",
        "old_per_token_logps": "old",
        "sampling_per_token_logps": "sampled",
        "tool_mask": "tool",
    }
    told = trl.rollouts_of(batch, numbered(["a"]))
    assert (told.tokens, told.mask, told.train, told.inference, told.loss_mask) == (
        "ids",
        "mask",
        "old",
        "sampled",
        "tool",
    )
    assert trl.rollouts_of(batch, numbered(["a"]), train="now").train == "now"
