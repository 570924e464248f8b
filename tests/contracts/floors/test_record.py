"""A floor's payload: it comes back, and nothing that no measurement gives is taken."""

import json

import pytest
from floor_cases import floor
from hypothesis import given
from hypothesis import strategies as st

from paritas.contracts.floors import FloorValue, MeasuredFloor
from paritas.errors import PermanentError

NUMBERS = st.floats(1e-9, 1.0)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(1, 10**9)), max_size=4), st.text(max_size=20))
def test_it_comes_back(numbers, model):
    values = tuple(FloorValue("tv", {"above": e}, e, u, n, n) for e, u, n in numbers)
    one = floor(values=values, model=model)
    assert MeasuredFloor.from_payload(one.payload()) == one


def test_a_statistic_is_found_by_its_options():
    assert floor().value("ratio_tail", {"above": 2.0}).upper == 0.02
    assert floor().value("ratio_tail", {"above": 3.0}) is None
    assert floor().value("kl_k3", {}) is None


def changed(**more):
    return json.dumps({**json.loads(floor().payload()), **more}).encode()


def value(**more):
    return {**json.loads(floor().payload())["values"][0], **more}


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"", "holds no floor"),
        (b"[]", "holds no floor"),
        (b"\xff", "holds no floor"),
        (b'{"version": 1}', "holds no floor"),
        (changed(more=1), "holds no floor"),
        (changed(version=2), "holds a floor of version 2, this program reads 1"),
        (changed(role="judge"), "holds a floor with a value that cannot be"),
        (changed(values=[value(upper=-0.1)]), "holds a floor with a value that cannot be"),
        (changed(values=[value(upper="0.1")]), "holds a floor with a value that cannot be"),
        (changed(values=[value(upper=float("nan"))]), "holds a floor with a value that cannot be"),
        (changed(values=[value(units=0)]), "holds a floor with a value that cannot be"),
        (changed(values=[value(statistic="beauty")]), "holds a floor with a value that cannot be"),
        (changed(recordings=["a"]), "holds no floor"),
        (changed(varied={"x": "y"}), "holds no floor"),
    ],
)
def test_anything_else_is_refused_by_name(payload, text):
    with pytest.raises(PermanentError) as caught:
        MeasuredFloor.from_payload(payload)
    assert str(caught.value) == text
