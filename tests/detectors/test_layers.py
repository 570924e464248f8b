"""Layers: every entry has one place, and whole arrays advance as each instance alone would."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import SEEDS

from paritas.detectors.layers import Layers, along


@st.composite
def entries(draw):
    """Instances of some entries, each at least once."""
    rng, a = np.random.default_rng(draw(SEEDS)), draw(st.integers(1, 6))
    return rng.permutation(np.concatenate([np.arange(a), rng.integers(0, a, draw(st.integers(0, 30)))])), a


@given(entries())
def test_entries_stand_by_instance_in_the_order_in_which_they_came(drawn):
    instance, a = drawn
    layers = Layers.of(instance, a)
    counts = np.bincount(instance, minlength=a)
    assert np.diff(counts[layers.instances]).max(initial=0) <= 0
    for rank, (lo, hi) in enumerate(zip(layers.starts, layers.stops, strict=True)):
        expected = np.flatnonzero(instance == layers.instances[rank])
        assert layers.order[lo:hi].tolist() == expected.tolist()
        assert (layers.rank[lo:hi] == rank).all()


@given(entries())
def test_a_layer_holds_the_next_entry_of_every_instance_that_has_one(drawn):
    instance, a = drawn
    layers = Layers.of(instance, a)
    for layer, (lo, hi) in enumerate(layers.blocks()):
        places = layers.layered[lo:hi]
        assert layers.rank[places].tolist() == list(range(hi - lo))
        assert (places - layers.starts[: hi - lo] == layer).all()
    assert sorted(layers.layered.tolist()) == list(range(len(instance)))
    assert (layers.layered[layers.last] == layers.stops - 1).all()


@settings(max_examples=50)
@given(entries(), SEEDS)
def test_running_sums_are_those_of_each_instance_alone(drawn, seed):
    instance, a = drawn
    layers, rng = Layers.of(instance, a), np.random.default_rng(seed)
    start, values = rng.normal(size=(a, 2)), rng.normal(size=(len(instance), 2))
    got = along(np.add, start, values, layers)
    for rank, (lo, hi) in enumerate(zip(layers.starts, layers.stops, strict=True)):
        total = start[rank].copy()
        for i in range(lo, hi):
            assert got.before[i].tobytes() == total.tobytes()
            total += values[i]
            assert got.after[i].tobytes() == total.tobytes()
        assert got.last[rank].tobytes() == total.tobytes()


def test_values_in_layers_go_back_to_their_instances():
    layers = Layers.of(np.array([0, 1, 1, 0, 1]), 2)
    values = np.array([10, 11, 12, 20, 21])
    assert layers.by_instance(values[layers.layered]).tolist() == values.tolist()
