"""Slices: which instances an outcome belongs to, in which order they came, which tokens count."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_factory import EVERYTHING, lost, pair, paired, ragged_pairs

from paritas.contracts.model import Match, Operator, Requirement, Slice
from paritas.detectors.evidence import PairBatch
from paritas.detectors.slices import SliceBook, labels_match, token_mask
from paritas.records import KernelIdentity, Role

ODD_VALUES = st.lists(st.sampled_from(["x", ",", "=", "%2C", "%25", ",slice="]), max_size=3).map("".join)


def need(field, op, *values):
    return Requirement(field, Operator(op), values)


def instances(book, outcome):
    return [name for _, name in book.instances(outcome)]


def seen(*replicas, at_most=4, by=("replica",)):
    """Return the instance names a book gives to sequences of these replicas, in order."""
    book = SliceBook([Slice("replica", by=by, at_most=at_most)])
    return [instances(book, lost(attributes={"replica": r} if r else {})) for r in replicas]


def test_a_slice_without_by_is_one_slice():
    book = SliceBook([EVERYTHING])
    assert instances(book, lost()) == ["all"]
    assert book.order(EVERYTHING, "all") == 1


def test_a_by_slice_has_one_instance_a_value_and_the_rest_is_other():
    assert seen("a", "b", "a", "c", "d", "a", at_most=2) == [
        ["replica=a"],
        ["replica=b"],
        ["replica=a"],
        ["replica=other"],
        ["replica=other"],
        ["replica=a"],
    ]


def test_what_does_not_report_the_key_is_in_no_instance():
    assert seen("", "a") == [[], ["replica=a"]]


def test_several_keys_make_one_name():
    book = SliceBook([Slice("place", by=("replica", "slice"))])
    assert instances(book, lost(attributes={"replica": "a", "slice": "math"})) == ["replica=a,slice=math"]
    assert instances(book, lost(attributes={"replica": "a"})) == []


def test_instances_are_numbered_in_order_of_appearance():
    declared = Slice("replica", by=("replica",), at_most=2)
    book = SliceBook([declared])
    for replica in "bacb":
        instances(book, lost(attributes={"replica": replica}))
    names = ("replica=b", "replica=a", "replica=other")
    assert [book.order(declared, name) for name in names] == [1, 2, 3]


@given(st.lists(st.sampled_from("abcdefgh"), max_size=30), st.integers(1, 5))
def test_there_are_never_more_instances_than_declared_and_other(replicas, at_most):
    names = [name for found in seen(*replicas, at_most=at_most) for name in found]
    assert len(names) == len(replicas)
    assert len(set(names)) == min(len(set(replicas)), at_most) + (len(set(replicas)) > at_most)


LABELS = {"slice": "math", "tokens": "40", "word": "many"}


@pytest.mark.parametrize(
    ("requirement", "holds"),
    [
        (need("slice", "In", "math", "code"), True),
        (need("slice", "In", "code"), False),
        (need("nothing", "In", "math"), False),
        (need("slice", "NotIn", "code"), True),
        (need("slice", "NotIn", "math"), False),
        (need("nothing", "NotIn", "math"), True),
        (need("slice", "Exists"), True),
        (need("nothing", "Exists"), False),
        (need("slice", "DoesNotExist"), False),
        (need("nothing", "DoesNotExist"), True),
        (need("tokens", "Gt", 39.0), True),
        (need("tokens", "Gt", 40.0), False),
        (need("tokens", "Gte", 40.0), True),
        (need("tokens", "Lt", 40.0), False),
        (need("tokens", "Lte", 40.0), True),
        (need("word", "Lt", 40.0), False),
        (need("nothing", "Lt", 40.0), False),
    ],
    ids=str,
)
def test_label_requirements(requirement, holds):
    assert labels_match(Match(labels=(requirement,)), LABELS) is holds


def test_all_requirements_must_hold():
    both = Match(labels=(need("slice", "In", "math"), need("tokens", "Gt", 100.0)))
    assert not labels_match(both, LABELS)
    assert labels_match(Match(), {})


def test_labels_are_attributes_and_what_the_kernels_said():
    one = pair(
        [0.1],
        weights_version="7",
        group_id="g",
        inference=KernelIdentity(Role.INFERENCE, dtype="bfloat16", tp=2),
        attributes={"slice": "math"},
    )
    checks = {
        "run_id": "run",
        "group_id": "g",
        "weights_version": "7",
        "inference.dtype": "bfloat16",
        "inference.tp": "2",
        "slice": "math",
    }
    for field, value in checks.items():
        book = SliceBook([Slice("some", match=Match(labels=(need(field, "In", value),)))])
        assert instances(book, paired(one)) == ["some"], field
        assert instances(book, paired(replace(one, attributes={field: "other"}))) == [], field


def test_what_was_lost_still_has_its_labels():
    book = SliceBook([Slice("some", match=Match(labels=(need("slice", "In", "math"),)))])
    assert instances(book, lost(attributes={"slice": "math"})) == ["some"]


BATCH = PairBatch.of(
    [
        pair([0.0] * 3, [-0.1, -2.0, -5.0], name="a", attributes={"turn": "1"}),
        pair([0.0] * 2, [-0.2, -3.0], name="b", position=np.array([4, 7]), attributes={"turn": "x"}),
        pair([0.0], [-0.3], name="c", attributes={}),
    ]
)


@pytest.mark.parametrize(
    ("requirement", "kept"),
    [
        (need("position", "Lt", 2.0), [1, 1, 0, 0, 0, 1]),
        (need("position", "Gte", 2.0), [0, 0, 1, 1, 1, 0]),
        (need("position", "In", 0.0, 7.0), [1, 0, 0, 0, 1, 1]),
        (need("position", "NotIn", 0.0, 7.0), [0, 1, 1, 1, 0, 0]),
        (need("position", "Exists"), [1, 1, 1, 1, 1, 1]),
        (need("phase", "In", "prefill"), [1, 0, 0, 0, 0, 1]),
        (need("phase", "NotIn", "prefill"), [0, 1, 1, 1, 1, 0]),
        (need("logprob", "Gt", -1.0), [1, 0, 0, 1, 0, 1]),
        (need("logprob", "Lte", -2.0), [0, 1, 1, 0, 1, 0]),
        (need("turn", "In", 1.0), [1, 1, 1, 0, 0, 0]),
        (need("turn", "Gte", 0.0), [1, 1, 1, 0, 0, 0]),
        (need("turn", "Exists"), [1, 1, 1, 0, 0, 0]),
        (need("turn", "DoesNotExist"), [0, 0, 0, 1, 1, 1]),
    ],
    ids=str,
)
def test_token_requirements(requirement, kept):
    assert token_mask(Match(tokens=(requirement,)), BATCH).astype(int).tolist() == kept


def test_all_token_requirements_must_hold():
    both = Match(tokens=(need("position", "Lt", 5.0), need("logprob", "Lt", -1.0)))
    assert token_mask(both, BATCH).astype(int).tolist() == [0, 1, 1, 0, 0, 0]


def test_no_token_requirement_means_every_token():
    assert token_mask(None, BATCH) is None
    assert token_mask(Match(labels=(need("slice", "In", "math"),)), BATCH) is None


@given(ragged_pairs(), st.floats(-3, 12))
def test_a_mask_and_its_complement_share_out_the_tokens(pairs, limit):
    batch = PairBatch.of(pairs)
    for field in ("position", "logprob", "turn"):
        above = token_mask(Match(tokens=(need(field, "Gt", limit),)), batch)
        rest = token_mask(Match(tokens=(need(field, "Lte", limit),)), batch)
        assert (above ^ rest).all(), field


def test_a_selecting_by_slice_keeps_its_values_apart_from_another_over_the_same_label():
    plain = Slice("replica", by=("replica",))
    long = Slice(
        "long", by=("replica",), match=Match(labels=(Requirement("length", Operator.IN, ("long",)),))
    )
    book = SliceBook([plain, long])
    outcome = paired(pair([0.0], attributes={"replica": "r1", "length": "long"}))
    assert [name for _, name in book.instances(outcome)] == ["replica=r1", "long:replica=r1"]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("r2", "replica=r2"),
        ("a=b", "replica=a=b"),
        ("50%", "replica=50%"),
        ("s3%3A//pool", "replica=s3%3A//pool"),
        ("x,slice=math", "replica=x%2Cslice=math"),
        ("x%2Cslice=math", "replica=x%252Cslice=math"),
        ("%25", "replica=%2525"),
    ],
)
def test_a_comma_in_a_value_is_written_so_that_it_joins_no_keys(value, name):
    assert seen(value) == [[name]]


@given(*[st.tuples(ODD_VALUES, ODD_VALUES)] * 2)
def test_instances_of_other_values_or_other_keys_never_share_a_name(one, other):
    book = SliceBook([Slice("replica", by=("replica",)), Slice("place", by=("replica", "slice"))])
    alone, joined = [instances(book, lost(attributes={"replica": a, "slice": b})) for a, b in (one, other)]
    assert not {alone[0], joined[0]} & {alone[1], joined[1]}
    assert (alone[0] == joined[0]) is (one[0] == other[0])
    assert (alone[1] == joined[1]) is (one == other)
