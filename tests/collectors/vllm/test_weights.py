"""Samples from workers, put together.  Layouts against real vLLM are tests/engines'."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from paritas.collectors.vllm.weights import _packed, answer_of, is_change, told_in
from paritas.collectors.weights import Piece, SamplePlan, Unknown, sample

PLAN = SamplePlan(share=1.0, elements=8)


def halves(seed=0):
    """Two workers' samples of one tensor of one layer, by rows."""
    values = np.random.default_rng(seed).integers(0, 1 << 15, (8, 4)).astype(np.uint16)
    name = "layers.0.mlp.up_proj.weight"
    for start in (0, 4):
        part = values[start : start + 4]
        piece = Piece(name, (8, 4), (start, 0), (4, 4), lambda index, part=part: part[index])
        packed = _packed(sample(PLAN, [piece]))
        yield {"kernel": {"gpu": "H100"}, "unknown": "", "total": 1, **packed}


def test_halves_give_the_digest_that_the_whole_gives():
    told = told_in(json.loads(json.dumps(list(halves()))))
    assert told.digest.text.startswith("w1:")
    assert (told.digest.elements, told.digest.unknown, told.kernel) == (8, None, {"gpu": "H100"})
    assert told_in(list(halves(1))).digest.text != told.digest.text


def test_a_half_alone_is_unknown():
    assert told_in(list(halves())[:1]).digest.unknown is Unknown.PARTS


@pytest.mark.parametrize("answers", [[], [None, "x"]])
def test_nothing_is_unknown(answers):
    assert told_in(answers).digest.unknown is Unknown.NOTHING


def test_one_worker_that_does_not_know_is_enough():
    answers = [*halves(), {"kernel": {}, "unknown": "dtype", "reason": "torch.float8_e4m3fn"}]
    told = told_in(answers)
    assert (told.digest.unknown, told.reason) == (Unknown.DTYPE, "torch.float8_e4m3fn")


def test_a_worker_without_a_model_says_why():
    told = answer_of(object())
    assert told["unknown"] == "layout"
    assert told["reason"].startswith("AttributeError: ")


def test_a_worker_that_is_not_asked_for_its_weights_reads_none():
    config = SimpleNamespace(compilation_config=SimpleNamespace(static_forward_context={}))
    told = answer_of(SimpleNamespace(vllm_config=config), weighs=False)
    assert (told["unknown"], "tensors" in told, "reason" in told) == ("nothing", False, False)
    assert told_in([told]).digest.text == ""


def test_calls_that_change_weights():
    assert is_change("update_weights")
    assert is_change("anything_new")
    assert is_change(lambda worker: None)
    assert not is_change("check_health")
