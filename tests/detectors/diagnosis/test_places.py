"""Places: the value that drifts more is found, no other is, and memory stays bounded."""

import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_factory import SEEDS, pair

from paritas.detectors.diagnosis import Whereabouts, fingerprints
from paritas.detectors.diagnosis.places import FEW, VALUES, Places, labels_at, labels_of
from paritas.detectors.evidence import PairBatch


def folded(pairs, into=None):
    """Whereabouts after some pairs."""
    whereabouts = Whereabouts() if into is None else into
    for one, unit in zip(pairs, fingerprints(PairBatch.of(pairs)), strict=True):
        whereabouts.fold(one, unit)
    return whereabouts


def some_pairs(seed, sequences, size=lambda _: 0.05, **labels):
    """Sequences with attributes that are functions of their number, and a size that is one of those."""
    rng, made = np.random.default_rng(seed), []
    for i in range(sequences):
        told = {name: str(value(i, rng)) for name, value in labels.items()}
        made.append(pair(size(told) * rng.standard_t(4, 40), name=f"s-{i}", attributes=told))
    return made


def turns(i, _):
    return i % 4


def any_of(n):
    return lambda _, rng: rng.integers(n)


def worst(pairs):
    found = folded(pairs).places.worst()
    return None if found is None else (found.attribute, found.value)


@pytest.mark.parametrize("name", ["replica", "adapter", "environment", "turn", "slice", "prefix_cache"])
def test_the_value_that_drifts_more_is_the_worst(name):
    labels = {"replica": any_of(4), "adapter": any_of(3), "environment": any_of(2), name: turns}
    pairs = some_pairs(1, 96, lambda told: 0.15 if told[name] == "2" else 0.05, **labels)
    assert worst(pairs) == (name, "2")
    found = folded(pairs).places.worst()
    assert found.times > 2.0
    assert found.fingerprint["tokens"] == 24 * 40


def test_no_place_is_worse_where_all_are_alike():
    labels = {"replica": turns, "adapter": any_of(3), "environment": any_of(2), "slice": any_of(6)}
    assert [worst(some_pairs(seed, 200, **labels)) for seed in range(40)].count(None) >= 38


def test_kinds_of_prompt_differ_by_nature_and_replicas_do_not():
    for name, looked_at in (("replica", "2"), ("slice", None)):
        pairs = some_pairs(
            1, 300, lambda told, name=name: 0.08 if told[name] == "2" else 0.05, **{name: turns}
        )
        places = folded(pairs).places
        assert places.worst().value == "2"
        assert getattr(places.likely(), "value", None) == looked_at


def test_a_place_that_drifts_many_times_as_much_is_looked_at_with_less_evidence():
    pairs = some_pairs(
        1, 28, lambda told: 0.5 if told["slice"] == "2" else 0.05, slice=turns, adapter=any_of(8)
    )
    places = folded(pairs).places
    assert places.worst() is None
    assert places.likely().value == "2"


def test_a_change_that_hits_everybody_speaks_for_no_place():
    """The second half drifts ten times as much, and one value came mostly in that half."""
    rng = np.random.default_rng(3)
    made = []
    for i in range(300):
        late = i >= 150
        value = "a" if rng.random() < (0.9 if late else 0.1) else "b"
        size = 0.5 if late else 0.05
        made.append(pair(size * rng.standard_t(4, 40), name=f"s-{i}", attributes={"replica": value}))
    assert worst(made) is None


def test_a_value_alone_has_nobody_to_be_compared_with():
    assert folded(some_pairs(1, 50, replica=lambda *_: "only")).places.ranked() == ()


def test_the_evidence_is_corrected_for_every_place_looked_at():
    few = folded(some_pairs(1, 96, lambda t: 0.2 if t["replica"] == "2" else 0.05, replica=turns))
    more = folded(
        some_pairs(1, 96, lambda t: 0.2 if t["replica"] == "2" else 0.05, replica=turns, adapter=any_of(8))
    )
    one, other = few.places.ranked()[0], more.places.ranked()[0]
    assert (one.value, other.value) == ("2", "2")
    assert other.log10_e < one.log10_e


def test_many_values_are_together_and_memory_is_bounded():
    many = {name: any_of(10_000) for name in ("replica", "adapter", "environment", "slice", "gpu")}
    whereabouts = folded(some_pairs(1, 300, **many))
    size = len(pickle.dumps(whereabouts))
    assert all(len(known) == VALUES + 1 for known in whereabouts.places.places.values())
    assert len(pickle.dumps(folded(some_pairs(2, 300, **many), whereabouts))) <= 1.05 * size


def test_an_old_weights_version_makes_room_for_a_new_one():
    pairs = [replace(one, weights_version=str(i // 4)) for i, one in enumerate(some_pairs(1, 80))]
    known = folded(pairs).places.places["weights_version"]
    assert list(known) == [str(v) for v in range(20 - VALUES, 20)]


def test_labels_are_few():
    one = pair([0.1], attributes={"turn": "7", "replica": "r", "other": "x"}, lag=9, weights_version="w")
    assert labels_at(one) == {
        "turn": f"{FEW}+",
        "replica": "r",
        "weights_version": "w",
        "weights_lag": f"{FEW}+",
    }
    assert labels_at(pair([0.1], attributes={"turn": "first"}, lag=1)) == {
        "turn": "first",
        "weights_lag": "1",
    }


def told(places):
    """Every place to the last bit."""
    return [
        (w.attribute, w.value, w.log10_e, w.times, w.fingerprint.values.tobytes()) for w in places.ranked()
    ]


@settings(max_examples=15)
@given(SEEDS, st.integers(0, 30))
def test_how_pairs_are_cut_changes_nothing(seed, cut):
    pairs = some_pairs(seed, 30, replica=turns, adapter=any_of(3))
    whole, parts = folded(pairs), folded(pairs[cut:], folded(pairs[:cut]) if cut else None)
    restored = pickle.loads(pickle.dumps(parts))
    for other in (parts, restored):
        assert told(other.places) == told(whole.places)
        assert repr((other.rhythm, other.places.newest)) == repr((whole.rhythm, whole.places.newest))


def test_slices_that_are_a_place_follow_none():
    assert folded(some_pairs(1, 20, replica=turns), Whereabouts(is_followed=False)).places == Places()


def test_sequences_without_tokens_are_in_no_place():
    assert folded([pair([], attributes={"replica": "r"})]).places == Places()


def state_of(whereabouts):
    """Everything that is remembered, exactly; the order of labels does not count."""
    places = {
        name: [(value, p.sums.tobytes(), p.bets, p.units, p.compared) for value, p in known.items()]
        for name, known in whereabouts.places.places.items()
    }
    return places, whereabouts.places.newest, whereabouts.places.units, repr(whereabouts.rhythm)


def any_pair(rng, i):
    """A pair with labels, versions and lags that come, go and are missing; some without tokens."""
    told = {"replica": f"r{rng.integers(0, 12)}", "turn": str(rng.integers(0, 9)), "unknown": "x"}
    told |= {"slice": rng.choice(["math", "code", "other"])}
    size = rng.choice([0.0, 0.05, 0.2])
    return pair(
        size * rng.standard_t(4, rng.choice([0, 1, 3])),
        name=f"s-{i}",
        attributes={name: value for name, value in told.items() if rng.random() < 0.8},
        weights_version=rng.choice(
            ["", *(str(v) for v in range(i // 40, i // 40 + 12))], p=[0.1, *[0.9 / 12] * 12]
        ),
        lag=rng.choice([None, 0, 1, 9]),
    )


@settings(max_examples=30)
@given(SEEDS, st.integers(1, 300), st.lists(st.integers(0, 300), max_size=4), st.booleans())
def test_many_pairs_at_once_are_remembered_as_one_by_one(seed, n, cuts, is_sticky):
    rng = np.random.default_rng(seed)
    pairs = [any_pair(rng, i) for i in range(n)]
    if is_sticky:  # long stretches of one value
        pairs = sorted(pairs, key=lambda p: p.attributes.get("replica", ""))
    units, many = fingerprints(PairBatch.of(pairs)), Whereabouts()
    edges = [0, *sorted(min(cut, n) for cut in cuts), n]
    for start, stop in pairwise(edges):
        some = pairs[start:stop]
        many.fold_many(labels_of(some), [p.weights_version for p in some], units[start:stop].copy())
    assert state_of(many) == state_of(folded(pairs))


def test_a_slice_by_value_is_itself_a_place_and_follows_none():
    whereabouts = Whereabouts(is_followed=False)
    whereabouts.fold_many({"replica": ["a"]}, ["1"], fingerprints(PairBatch.of([pair([0.1])])))
    assert whereabouts.places.places == {}
