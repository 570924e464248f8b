"""Plain scalars of YAML, read by the core schema of YAML 1.2."""

import math

import pytest

from paritas.contracts.core_schema import resolve_plain

# From the tables of YAML 1.2.2, section 10.3.2, and what YAML 1.1 made of the same text.
CASES = [
    ("null", None),
    ("~", None),
    ("", None),
    ("True", True),
    ("FALSE", False),
    ("tRUE", "tRUE"),
    ("yes", "yes"),
    ("off", "off"),
    ("0", 0),
    ("-19", -19),
    ("+12", 12),
    ("010", 10),
    ("0o17", 15),
    ("0x3A", 58),
    ("0b1", "0b1"),
    ("1_000", "1_000"),
    ("1e-3", 0.001),
    ("1.", 1.0),
    (".5", 0.5),
    ("+12e03", 12000.0),
    ("-2E+05", -200000.0),
    (".inf", math.inf),
    ("-.INF", -math.inf),
    ("1:30", "1:30"),
    ("190:20:30.15", "190:20:30.15"),
    ("2001-12-14", "2001-12-14"),
    ("=", "="),
    ("nan", "nan"),
    ("9" * 65, "9" * 65),
]


@pytest.mark.parametrize(("text", "value"), CASES)
def test_plain_scalars_follow_the_core_schema(text: str, value: object) -> None:
    resolved = resolve_plain(text)
    assert resolved == value
    assert type(resolved) is type(value)


def test_nan_is_recognised() -> None:
    resolved = resolve_plain(".NaN")
    assert isinstance(resolved, float)
    assert math.isnan(resolved)
