"""Readings with their sources become an identity; what is not told stays absent."""

import pytest

from paritas.collectors.identity import Read, kernel_of, look, merged
from paritas.records import Role


def test_look_keeps_types_and_the_source():
    assert look(lambda: 2, "a") == Read(2, "a")
    assert look(lambda: False, "a") == Read(False, "a")
    assert look(lambda: 1.5, "a") == Read("1.5", "a")


@pytest.mark.parametrize("read", [lambda: None, lambda: "", lambda: {}["x"], lambda: None.x], ids=range(4))
def test_what_is_not_told_is_absent(read):
    assert look(read, "somewhere") is None


def test_the_first_of_two_readings_counts():
    told = merged({"dtype": None, "tp": Read(2, "a")}, {"dtype": Read("bfloat16", "b"), "tp": Read(4, "b")})
    assert told == {"dtype": Read("bfloat16", "b"), "tp": Read(2, "a")}


def test_own_fields_and_the_rest():
    kernel = kernel_of(
        Role.TRAIN,
        {
            "dtype": Read("bfloat16", "a"),
            "tp": Read(2, "a"),
            "batch_invariant": Read(True, "a"),
            "deterministic": Read(False, "a"),
            "pp": Read("two", "a"),
            "role": Read("reference", "a"),
            "long": Read("x" * 1000, "a"),
        },
    )
    assert (kernel.role, kernel.dtype, kernel.tp, kernel.batch_invariant) == (Role.TRAIN, "bfloat16", 2, True)
    assert kernel.extra == {"deterministic": "false", "pp": "two", "role": "reference", "long": "x" * 256}


def test_a_flag_is_no_number():
    assert kernel_of(Role.TRAIN, {"tp": Read(True, "a")}).extra == {"tp": "true"}
