"""What a training step shows arrives as traces, whatever its padding, dtype and mask; nothing else happens."""

import numpy as np
import pytest
import torch
from engines.capture_scenes import HASHER

from paritas.collectors.torch import CaptureDrop, Names, Shown
from paritas.records import LogprobSemantics, Sampling, TokenStatus

V = 50


def scene(seed, rows=3, length=7):
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, length, V, generator=g) * 3
    tokens = torch.randint(0, V, (rows, length), generator=g)
    law = torch.log_softmax(logits.double(), -1)
    return logits, tokens, law.gather(-1, tokens[..., None])[..., 0]


def test_a_step_arrives_with_names_weights_and_float64_values(watched):
    logits, tokens, exact = scene(0)
    with watched.collector.step(weights_version="12", weights_digest="w1:x") as step:
        step.observe(tokens, logits=logits, names=Names(["a", "b", "c"], ["p", "p", "q"]))
    traces = watched.traces()
    assert sorted(traces) == [("train", "a"), ("train", "b"), ("train", "c")]
    got = traces["train", "b"]
    assert (got.weights_version, got.weights_digest, got.group_id, got.run_id) == ("12", "w1:x", "p", "run")
    assert got.token.tolist() == HASHER.hash(tokens[1].numpy()).tolist()
    assert got.logprob == pytest.approx(exact[1].numpy(), abs=3e-6)
    reading = watched.collector.read()
    assert (reading.shown, reading.emitted, reading.pending, reading.dropped) == (3, 3, 0, {})
    assert (reading.steps, reading.steps_lost) == (1, 0)
    (timed,) = watched.steps()
    assert (timed.run_id, timed.weights_version, timed.device_s) == ("run", "12", None)
    assert timed.host_s == reading.step_s > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_any_dtype_is_scored_in_float32(watched, dtype):
    logits, tokens, _ = scene(1)
    low = logits.to(dtype)
    exact = torch.log_softmax(low.double(), -1).gather(-1, tokens[..., None])[..., 0]
    watched.collector.step().observe(tokens, logits=low, names=Names(["a", "b", "c"]))
    assert watched.traces()["train", "c"].logprob == pytest.approx(exact[2].numpy(), abs=3e-6)


def test_padding_left_and_right_and_the_prompt_fall_away(watched):
    logits, tokens, exact = scene(2)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0], [0, 1, 1, 0, 1, 0, 0]])
    loss = torch.tensor([[1, 1, 1, 0, 1, 1, 1], [1] * 7, [1] * 7])
    watched.collector.step().observe(
        tokens, logits=logits, mask=mask, loss_mask=loss, names=Names(["left", "right", "hole"])
    )
    traces = watched.traces()
    left, right, hole = (traces["train", name] for name in ("left", "right", "hole"))
    assert [len(left), len(right), len(hole)] == [5, 3, 4]
    assert left.status.tolist() == [0, TokenStatus.MASKED, 0, 0, 0]
    assert hole.status.tolist() == [0, 0, TokenStatus.MASKED, 0]
    valid = left.status == 0
    assert left.logprob[valid] == pytest.approx(exact[0, 2:].numpy()[valid], abs=3e-6)
    assert right.logprob == pytest.approx(exact[1, :3].numpy(), abs=3e-6)
    assert hole.token[2] == HASHER.hash(tokens[2, 3:4].numpy())[0]


def test_labels_of_minus_100_and_padding_ids_outside_the_vocabulary_are_harmless(watched):
    logits, tokens, _ = scene(3)
    tokens[0, 0], tokens[0, 1] = -100, V + 7
    watched.collector.step().observe(tokens, logits=logits, names=Names(["a", "b", "c"]))
    got = watched.traces()["train", "a"]
    assert got.status.tolist()[:2] == [TokenStatus.MISSING, TokenStatus.NONFINITE]
    assert got.token[0] == 0


def test_a_row_with_nan_is_counted_as_such(watched):
    logits, tokens, _ = scene(4)
    logits[1, 2, 5] = torch.nan
    watched.collector.step().observe(tokens, logits=logits, names=Names(["a", "b", "c"]))
    assert watched.traces()["train", "b"].status.tolist() == [0, 0, TokenStatus.NONFINITE, 0, 0, 0, 0]


def test_logits_are_divided_by_the_declared_temperature(watched):
    logits, tokens, _ = scene(5)
    stamp = watched.collector.stamp
    cool = Sampling(temperature=0.6, semantics=LogprobSemantics.TEMPERATURE_ONLY)
    exact = torch.log_softmax(logits.double() / 0.6, -1).gather(-1, tokens[..., None])[..., 0]
    watched.collector.show(
        Shown(tokens, logits=logits),
        Names(["a", "b", "c"]),
        stamp=type(stamp)("run", stamp.kernel, sampling=cool),
    )
    got = watched.traces()["train", "a"]
    assert got.logprob == pytest.approx(exact[0].numpy(), abs=5e-6)
    assert got.sampling.temperature == 0.6


def test_the_step_is_not_touched(watched):
    logits, tokens, _ = scene(6)
    logits.requires_grad_()
    before = logits.detach().clone()
    with watched.collector.step() as step:
        step.observe(tokens, logits=logits, names=Names(["a", "b", "c"]))
        loss = torch.log_softmax(logits, -1).sum()
    loss.backward()
    assert torch.equal(before, logits.detach())
    assert logits.grad is not None
    tokens.zero_()  # the trainer reuses its buffers: what was shown is a copy
    assert watched.traces()["train", "a"].token.tolist() != HASHER.hash(tokens[0].numpy()).tolist()


FLAT = torch.zeros(2, 3)
REFUSED = {
    "both": ({"logits": torch.zeros(2, 3, V), "logprobs": FLAT}, CaptureDrop.SHAPE),
    "neither": ({}, CaptureDrop.SHAPE),
    "logits of another length": ({"logits": torch.zeros(2, 4, V)}, CaptureDrop.SHAPE),
    "a mask of another length": ({"logprobs": FLAT, "mask": torch.ones(2, 4)}, CaptureDrop.SHAPE),
    "too few names": ({"logprobs": FLAT, "names": Names(["a"])}, CaptureDrop.NAMES),
    "no response": ({"logprobs": FLAT, "mask": torch.zeros(2, 3)}, CaptureDrop.EMPTY),
    "no tensor": ({"logits": "logits"}, CaptureDrop.FAULT),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_taken_is_counted_and_never_raised(watched, case):
    told, reason = REFUSED[case]
    watched.collector.step().observe(torch.zeros(2, 3, dtype=torch.long), **told)
    assert watched.collector.read().dropped == {reason: 2}
    assert watched.traces() == {}


def test_things_that_are_no_tensors_are_counted_too(watched):
    watched.collector.step().observe(None, logits=None)
    watched.collector.step().observe([1, 2], logprobs=[0.1, 0.2])
    assert sum(watched.collector.read().dropped.values()) == 2


def test_after_the_end_batches_are_counted(watched):
    watched.collector.close()
    watched.collector.close()
    watched.collector.step().observe(torch.zeros(2, 3, dtype=torch.long), logprobs=torch.zeros(2, 3))
    assert watched.collector.read().dropped == {CaptureDrop.CLOSED: 2}


def test_an_exception_of_the_step_stays_what_it_is(watched):
    with pytest.raises(ZeroDivisionError, match="the host's own"), watched.collector.step():
        raise ZeroDivisionError("the host's own")
    assert watched.collector.read().steps == 1


def test_logits_that_are_a_view_are_scored_without_a_copy_of_them(watched):
    logits, tokens, exact = scene(7, length=8)
    view = logits[:, :-1]
    watched.collector.step().observe(tokens[:, :-1], logits=view, names=Names(["a", "b", "c"]))
    got = watched.traces()["train", "a"]
    assert got.logprob == pytest.approx(exact[0, :-1].numpy(), abs=3e-6)
    assert np.isfinite(got.logprob).all()
