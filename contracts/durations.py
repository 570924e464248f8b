"""Durations as a contract writes them: a number and a unit, never a bare number."""

import re
from decimal import Decimal

__all__ = ["DURATION_PATTERN", "Seconds", "duration_text", "parse_duration"]

# At most 15 digits: more than a float holds, and a second is the unit of every limit.
DURATION_PATTERN = r"^[0-9]{1,15}(\.[0-9]{1,15})?(us|ms|s|m|h|d)$"

SECONDS_IN = {
    "us": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86_400),
}


class Seconds(float):
    """A float that was written as a duration; in seconds."""

    __slots__ = ()


def parse_duration(text: str) -> Seconds:
    """Return the duration `text` in seconds.

    Raises
    ------
    ValueError
        If `text` is not a number and one of the units us, ms, s, m, h, d.

    Examples
    --------
    >>> parse_duration("800ms"), parse_duration("7d")
    (0.8, 604800.0)
    """
    if not re.fullmatch(DURATION_PATTERN, text):
        raise ValueError(text)
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    return Seconds(Decimal(number) * SECONDS_IN[text[len(number) :]])


def duration_text(seconds: float) -> str:
    """Return `seconds` in the largest unit that gives a whole number, else in seconds.

    Examples
    --------
    >>> duration_text(604800.0), duration_text(0.8), duration_text(90.0)
    ('7d', '800ms', '90s')
    """
    exact = Decimal(repr(float(seconds)))
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count = exact / SECONDS_IN[unit]
        if count == count.to_integral_value() and (count or unit == "s"):
            return f"{count:f}".split(".")[0] + unit
    return f"{exact:f}s"
