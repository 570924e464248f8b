"""Values of Python as messages and back."""

import math

import numpy as np
import pytest
from escalation_examples import TEXT, VALUES
from hypothesis import given
from hypothesis import strategies as st

from paritas.controller.refusals import RefusalError
from paritas.controller.values import map_of, map_to, value_of, value_to
from paritas.proto.v1 import escalation_pb2 as pb


def over_the_wire(value):
    return value_of(pb.Value.FromString(value_to(value, place="x").SerializeToString()))


@given(VALUES)
def test_values_come_back(value):
    assert repr_sorted(over_the_wire(value)) == repr_sorted(value)


def repr_sorted(value):
    """Text that tells 1 from 1.0 and True, 0.0 from -0.0, and finds NaN equal."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{k!r}:{repr_sorted(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(repr_sorted, value)) + "]"
    return repr(value)


@given(st.dictionaries(TEXT, VALUES, max_size=3))
def test_maps_come_back(items):
    assert repr_sorted(map_of(map_to(items, place="x"))) == repr_sorted(items)


def test_tuples_become_lists_and_numpy_numbers_plain_ones():
    value = over_the_wire({"t": (1, 2), "f": np.float32(0.5), "i": np.int64(3), "b": True})
    assert value == {"b": True, "f": 0.5, "i": 3, "t": [1, 2]}
    assert [type(value[key]) for key in "bfi"] == [bool, float, int]


def test_nan_and_infinity_pass():
    assert math.isnan(over_the_wire(math.nan))
    assert over_the_wire([math.inf, -math.inf]) == [math.inf, -math.inf]


MISTAKES = {
    "args.a: cannot carry a value of type 'set'": {"a": {1}},
    "args.a[1]: cannot carry a value of type 'bytes'": {"a": [1, b"x"]},
    "args.a: 9223372036854775808 does not fit 64 bits": {"a": 2**63},
    "args: keys must be text, got 'int'": {1: 2},
    "args.a: keys must be text, got 'int'": {"a": {1: 2}},
    "args.a: text with a lone surrogate cannot be sent": {"a": "\ud800"},
}


@pytest.mark.parametrize(("text", "items"), MISTAKES.items(), ids=MISTAKES)
def test_what_cannot_be_sent_is_refused_with_its_place(text, items):
    with pytest.raises(RefusalError) as caught:
        map_to(items, place="args")
    assert str(caught.value) == text
