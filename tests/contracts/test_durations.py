"""Durations of the language: read as seconds, written as they were meant."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.contracts.durations import duration_text, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("800ms", 0.8),
        ("30s", 30.0),
        ("10m", 600.0),
        ("2h", 7200.0),
        ("7d", 604_800.0),
        ("1.5h", 5400.0),
        ("5us", 5e-6),
        ("0s", 0.0),
    ],
)
def test_durations_are_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "1 s", "1S", "1h30m", "1e3s", ".5s", "1s\n", "٣s"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_duration(text)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 10**9), st.sampled_from(["us", "ms", "s", "m", "h", "d"]))
def test_a_duration_survives_being_written_and_read(count: int, unit: str) -> None:
    seconds = parse_duration(f"{count}{unit}")
    assert parse_duration(duration_text(seconds)) == seconds
