"""Equal weights give equal digests however they are stored; what cannot be told is unknown."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sharded_weights import (
    HEAD_DIM,
    HEADS,
    INTERMEDIATE,
    KV_HEADS,
    LAYERS,
    checkpoint,
    cut_pieces,
    engine_blocks,
    whole_pieces,
)

from paritas.collectors.weights import (
    Block,
    EngineLayout,
    SamplePlan,
    Unknown,
    digest_of,
    engine_pieces,
    merge,
    sample,
)

PLAN = SamplePlan(share=1.0, elements=16)
LAYOUT = EngineLayout(heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM, intermediate=INTERMEDIATE)
WEIGHTS = checkpoint()
WHOLE = digest_of(sample(PLAN, whole_pieces(WEIGHTS)), layers=LAYERS)


def merged_digest(ranks, plan=PLAN):
    return digest_of(merge(sample(plan, pieces) for pieces in ranks), layers=LAYERS)


def test_a_whole_model_has_a_digest():
    assert WHOLE.unknown is None
    assert WHOLE.text.startswith("w1:")
    assert len(WHOLE.text) == 3 + 32
    assert WHOLE.elements == 16 * len(WEIGHTS)


@settings(max_examples=25)
@given(data=st.data())
def test_any_slices_by_rows_or_columns_put_together_are_the_whole(data):
    cuts = {}
    for name, array in WEIGHTS.items():
        dim = data.draw(st.integers(0, array.ndim - 1))
        places = st.lists(st.integers(0, array.shape[dim]), min_size=2, max_size=2)
        cuts[name] = (dim, data.draw(places))
    ranks = cut_pieces(WEIGHTS, cuts)
    assert merged_digest(ranks) == WHOLE
    assert merged_digest(ranks[::-1]) == WHOLE


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("padding", [0, 60])
def test_an_engines_fused_and_padded_ranks_are_the_whole(tp, padding):
    ranks = [engine_pieces(blocks, LAYOUT) for blocks in engine_blocks(WEIGHTS, tp, padding=padding)]
    assert merged_digest(ranks) == WHOLE


def test_one_rank_of_several_knows_a_part():
    first, _ = engine_blocks(WEIGHTS, 2)
    told = digest_of(sample(PLAN, engine_pieces(first, LAYOUT)), layers=LAYERS)
    assert (told.text, told.unknown) == ("", Unknown.PARTS)


def test_a_stage_of_a_pipeline_knows_a_part():
    stage = {name: array for name, array in WEIGHTS.items() if "layers.2." not in name}
    assert digest_of(sample(PLAN, whole_pieces(stage)), layers=LAYERS).unknown is Unknown.PARTS


def test_wrappers_do_not_change_the_digest():
    wrapped = {f"module._orig_mod.{name}": array for name, array in WEIGHTS.items()}
    assert digest_of(sample(PLAN, whole_pieces(wrapped)), layers=LAYERS) == WHOLE


def test_bfloat16_of_the_same_weights_has_the_same_digest():
    bits = {name: array.view(np.uint32) for name, array in WEIGHTS.items()}
    rounded = {
        name: ((whole + 0x7FFF + ((whole >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
        for name, whole in bits.items()
    }
    assert any(np.any(rounded[name] != WEIGHTS[name]) for name in WEIGHTS)
    assert digest_of(sample(PLAN, whole_pieces(rounded)), layers=LAYERS) == WHOLE


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), share=st.floats(0.2, 1.0))
def test_an_update_of_many_elements_is_seen(seed, share):
    r = np.random.default_rng(seed)
    moved = {name: np.where(r.random(a.shape) < share, a * 1.02, a) for name, a in WEIGHTS.items()}
    moved = {name: array.astype(np.float32) for name, array in moved.items()}
    told = digest_of(sample(PLAN, whole_pieces(moved)), layers=LAYERS)
    assert told.unknown is None
    assert told.text != WHOLE.text


def test_an_update_of_one_element_in_a_thousand_is_missed_as_often_as_is_said():
    # n = 16 * 39 elements are looked at and 0.1 % move: the update is missed with probability 0.999^n.
    n, f, tries, missed = WHOLE.elements, 0.001, 200, 0
    r = np.random.default_rng(1)
    for _ in range(tries):
        moved = {name: np.where(r.random(a.shape) < f, -a, a) for name, a in WEIGHTS.items()}
        missed += digest_of(sample(PLAN, whole_pieces(moved)), layers=LAYERS) == WHOLE
    expected = tries * (1 - f) ** n
    assert abs(missed - expected) < 4 * np.sqrt(expected)


def test_another_seed_looks_at_other_elements():
    other = SamplePlan(seed="other", share=1.0, elements=16)
    assert digest_of(sample(other, whole_pieces(WEIGHTS)), layers=LAYERS).text != WHOLE.text


def test_copies_that_differ_are_named():
    ranks = engine_blocks(WEIGHTS, 2)
    stale = engine_blocks(checkpoint(1), 2)
    mixed = merge(sample(PLAN, engine_pieces(blocks, LAYOUT)) for blocks in (ranks[0], stale[1]))
    assert mixed is Unknown.REPLICAS


def test_a_shape_that_is_not_as_told_is_unknown():
    odd = [("model.layers.0.self_attn.qkv_proj.weight", Block((7, 16), lambda at: None))]
    assert engine_pieces(odd, LAYOUT) is Unknown.LAYOUT
    other = merge([sample(PLAN, whole_pieces({"model.norm.weight": np.ones(n, np.float32)})) for n in (4, 5)])
    assert other is Unknown.LAYOUT


def test_a_model_of_which_nothing_is_looked_at_has_none():
    assert digest_of(sample(PLAN, []), layers=0).unknown is Unknown.NOTHING
    gpt = {"transformer.h.0.attn.c_attn.weight": np.ones((4, 4), np.float32)}
    assert (
        digest_of(sample(PLAN, [p for p in whole_pieces(gpt) if p.name]), layers=1).unknown is Unknown.NOTHING
    )


def test_the_digest_of_this_recipe_is_fixed():
    """Both sides may run different releases: a change of the recipe must change its name."""
    ones = {name: np.ones_like(array) for name, array in WEIGHTS.items()}
    told = digest_of(sample(SamplePlan(), whole_pieces(ones)), layers=LAYERS)
    assert told.text == "w1:2ffd58635a2dc52c27854414739505ee"
