"""Batches of verl and OpenRLHF in their own shapes become rollouts; numpy stands for tensors here.

tests/engines shows the same with PyTorch and down to the agent.
"""

from types import SimpleNamespace

import numpy as np

from paritas.collectors import openrlhf, trl, verl
from paritas.collectors.torch.rollouts import numbered

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
