"""Checked fields: what the golden files do not reach."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.collectors.dumps.fields import floats, found, mask, parse_row, token_ids
from paritas.collectors.dumps.problem import LineError, ProblemReason


def reason_of(call, *arguments) -> ProblemReason:
    with pytest.raises(LineError) as caught:
        call(*arguments)
    return caught.value.reason


def test_deep_nesting_is_a_named_problem() -> None:
    for depth in (3000, 200_000):
        nested = b'{"a":' * depth + b"1" + b"}" * depth
        assert reason_of(parse_row, nested) is ProblemReason.TOO_DEEP
        assert reason_of(parse_row, b"[" * depth) is ProblemReason.TOO_DEEP


def test_an_integer_of_too_many_digits() -> None:
    with pytest.raises(LineError) as caught:
        parse_row(b'{"a": ' + b"9" * 5000 + b"}")
    assert caught.value.reason is ProblemReason.BAD_JSON
    assert str(caught.value) == "not JSON: a number is too long"


def test_a_byte_order_mark_is_passed_over() -> None:
    assert parse_row(b'\xef\xbb\xbf{"a": 1}\r') == {"a": 1}


@given(st.lists(st.none() | st.floats() | st.integers(), max_size=15))
@settings(deadline=None, max_examples=60)
def test_floats_keep_every_entry(entries) -> None:
    numbers, null = floats("x", entries)
    assert null.tolist() == [entry is None for entry in entries]
    for number, entry in zip(numbers.tolist(), entries, strict=True):
        assert (
            number == float(entry) if entry is not None and math.isfinite(entry) else not np.isfinite(number)
        )


def test_integers_beyond_float64_are_infinite() -> None:
    numbers, _ = floats("x", [10**400, -(10**400), None, -0.5])
    assert numbers.tolist()[:2] == [np.inf, -np.inf]
    assert np.isnan(numbers[2])
    assert numbers[3] == -0.5


@given(st.lists(st.integers(-5, 2**31 + 5) | st.integers(), min_size=1, max_size=8))
@settings(deadline=None, max_examples=80)
def test_token_ids_are_within_32_bits(entries) -> None:
    if all(0 <= entry < 2**31 for entry in entries):
        assert token_ids("x", entries).tolist() == entries
    else:
        assert reason_of(token_ids, "x", entries) is ProblemReason.BAD_TOKEN_ID


@pytest.mark.parametrize("entries", [[0, 1, 1], [0.0, 1.0], [False, True], []])
def test_mask_spellings(entries) -> None:
    assert mask("x", entries).tolist() == [bool(entry) for entry in entries]


@pytest.mark.parametrize("entries", [[2], [-1], [0.5], [float("nan")]])
def test_no_mask(entries) -> None:
    assert reason_of(mask, "x", entries) is ProblemReason.BAD_VALUE


def test_a_hint_shows_few_short_printable_names() -> None:
    row = json.loads(json.dumps({"a\n": 1, "b" * 99: 2, **{f"k{i}": i for i in range(20)}}))
    assert found(row) == "?, " + "b" * 32 + ", k0, k1, k2, k3, k4, k5, …"
