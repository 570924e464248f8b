"""The YAML 1.2 core schema for plain scalars, so that ``1e-3`` is a number and ``on`` is text."""

import math
import re

__all__ = ["Scalar", "resolve_plain"]

Scalar = str | int | float | bool | None

NULL = re.compile(r"(null|Null|NULL|~|)")
TRUE = re.compile(r"(true|True|TRUE)")
FALSE = re.compile(r"(false|False|FALSE)")
INTEGER = re.compile(r"[-+]?[0-9]+")
OCTAL = re.compile(r"0o[0-7]+")
HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
INFINITE = re.compile(r"([-+]?)(\.inf|\.Inf|\.INF)")
NOT_A_NUMBER = re.compile(r"(\.nan|\.NaN|\.NAN)")

LONGEST_NUMBER = 64  # characters; a double needs 24, and int() of a long text takes quadratic time


def resolve_plain(text: str) -> Scalar:
    """Return the value of an unquoted scalar (YAML 1.2.2, section 10.3.2).

    Sexagesimals, dates, ``yes`` and ``on`` are text, unlike in YAML 1.1.

    Examples
    --------
    >>> [resolve_plain(t) for t in ("1e-3", "on", "0o17", "1:30", "~", "true")]
    [0.001, 'on', 15, '1:30', None, True]
    """
    if NULL.fullmatch(text):
        return None
    if TRUE.fullmatch(text) or FALSE.fullmatch(text):
        return text[0] in "tT"
    return _number(text) if len(text) <= LONGEST_NUMBER else text


def _number(text: str) -> str | int | float:
    if INTEGER.fullmatch(text):
        return int(text)
    if OCTAL.fullmatch(text) or HEXADECIMAL.fullmatch(text):
        return int(text, 0)
    if FLOAT.fullmatch(text):
        return float(text)
    if infinite := INFINITE.fullmatch(text):
        return -math.inf if infinite[1] == "-" else math.inf
    return math.nan if NOT_A_NUMBER.fullmatch(text) else text
