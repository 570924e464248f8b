"""From one line to checked fields: every wrong type, length or value is a named `LineError`.

Messages name fields, places and types, and at most one number; never text of the line,
which is user data.
"""

import json
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.dumps.problem import LineError, ProblemReason

__all__ = [
    "Row",
    "check_lengths",
    "clean_text",
    "flag",
    "floats",
    "integer",
    "label",
    "mask",
    "number",
    "parse_row",
    "sequence",
    "text",
    "token_ids",
]

Row = Mapping[str, object]

JSONL_HINT = "each line must be one JSON object (JSON Lines)"
MASK_HINT = "a mask holds only 0 and 1, or false and true"

# Vocabularies are indexed by 32-bit signed integers in every engine; labels such as -100
# and garbage from an uninitialised buffer fall outside.
LARGEST_TOKEN_ID = (1 << 31) - 1

JSON_NAMES = {
    dict: "an object",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    type(None): "null",
}


def parse_row(content: bytes) -> Row:
    """Decode one line: UTF-8, JSON with NaN and Infinity allowed, one object.

    Raises
    ------
    LineError
        NOT_TEXT, BAD_JSON, TOO_DEEP or NOT_OBJECT.

    Examples
    --------
    >>> parse_row(b'{"logprobs": [-0.5, NaN]}')
    {'logprobs': [-0.5, nan]}
    """
    row = parse_json(content)
    if not isinstance(row, dict):
        raise LineError(ProblemReason.NOT_OBJECT, f"{name_of(row)}, not an object", hint=JSONL_HINT)
    return row


def parse_json(content: bytes) -> object:
    """Decode UTF-8 and JSON, each failure by its name."""
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        reason, message = ProblemReason.NOT_TEXT, f"not UTF-8 text at byte {error.start + 1}"
        raise LineError(reason, message, hint=JSONL_HINT) from error
    except json.JSONDecodeError as error:
        raise LineError(ProblemReason.BAD_JSON, "not JSON", hint=JSONL_HINT, column=error.colno) from error
    except RecursionError as error:
        raise LineError(ProblemReason.TOO_DEEP, "nested too deeply", hint=JSONL_HINT) from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise LineError(ProblemReason.BAD_JSON, "not JSON: a number is too long", hint=JSONL_HINT) from error


def name_of(value: object) -> str:
    """Return what a person calls the JSON type of `value`."""
    return JSON_NAMES.get(type(value), type(value).__name__)


def required(row: Row, name: str) -> object:
    """Return a field that must be there.

    Raises
    ------
    LineError
        MISSING_KEY.
    """
    if name not in row:
        raise LineError(ProblemReason.MISSING_KEY, f"no field {name!r}", hint=f"found: {found(row)}")
    return row[name]


def found(row: Row) -> str:
    """Return the first field names of a row for a hint; names only, cut short."""
    names = [name[:32] if name.isprintable() else "?" for name in list(row)[:8]]
    return ", ".join(names) + (", …" if len(row) > len(names) else "") if names else "no fields"


def wrong_type(name: str, value: object, expected: str) -> LineError:
    """Return the error of a field of the wrong JSON type."""
    return LineError(ProblemReason.BAD_TYPE, f"{name!r} is {name_of(value)}, expected {expected}")


def clean_text(name: str, value: str) -> str:
    """Return `value` if it can be written as UTF-8, which half a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        message = f"{name!a} holds half a surrogate pair"
        raise LineError(
            ProblemReason.BAD_VALUE, message, hint="the text was cut inside a character"
        ) from error
    return value


def text(row: Row, name: str) -> str:
    """Return an optional text field; empty when absent or null."""
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise wrong_type(name, value, "text")
    return clean_text(name, value)


def label(row: Row, name: str) -> str:
    """Return an optional name that may be written as text or integer; empty when absent or null."""
    value = row.get(name)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise wrong_type(name, value, "text or an integer")
    return clean_text(name, str(value))


def number(row: Row, name: str) -> float | None:
    """Return an optional finite number; None when absent or null."""
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, value, "a number")
    return finite(name, value)


def finite(name: str, value: float) -> float:
    """Return `value` as a float unless it is NaN, infinite or beyond float64."""
    result = nearest_float(value)
    if not np.isfinite(result):
        raise LineError(ProblemReason.BAD_VALUE, f"{name!r} is not finite")
    return result


def integer(row: Row, name: str) -> int | None:
    """Return an optional integer of 64 bits; None when absent or null."""
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(name, value, "an integer")
    if not -(1 << 63) <= value < 1 << 63:
        raise LineError(ProblemReason.BAD_VALUE, f"{name!r} does not fit 64 bits")
    return value


def flag(row: Row, name: str) -> bool | None:
    """Return an optional true or false; None when absent or null."""
    value = row.get(name)
    if value is not None and not isinstance(value, bool):
        raise wrong_type(name, value, "true or false")
    return value


def sequence(name: str, value: object) -> list[object]:
    """Return `value` if it is a list."""
    if not isinstance(value, list):
        raise wrong_type(name, value, "a list")
    return value


def token_ids(name: str, value: object) -> NDArray[np.int64]:
    """Check a list of token ids.

    Returns
    -------
    shape (n,), int64

    Raises
    ------
    LineError
        BAD_TYPE, or BAD_TOKEN_ID for an id below 0 or above `LARGEST_TOKEN_ID`.
    """
    entries = entries_of(name, value, {int})
    try:
        ids = np.array(entries, np.int64)
    except OverflowError:
        ids = np.array([max(-1, min(entry, LARGEST_TOKEN_ID + 1)) for entry in entries], np.int64)
    wrong = np.flatnonzero((ids < 0) | (ids > LARGEST_TOKEN_ID))
    if wrong.size:
        side = "negative" if ids[wrong[0]] < 0 else "too large"
        message = f"'{name}[{wrong[0]}]' is no token id: {side}"
        raise LineError(ProblemReason.BAD_TOKEN_ID, message, hint="cut padding and labels such as -100")
    return ids


def floats(name: str, value: object) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Check a list of numbers and nulls.

    Returns
    -------
    numbers : shape (n,), float64
        NaN where null; infinite where the literal is beyond float64.
    null : shape (n,), bool
        Where null was written.

    Raises
    ------
    LineError
        BAD_TYPE.
    """
    entries = entries_of(name, value, {float, int, type(None)})
    null = np.zeros(len(entries), np.bool_)
    if None in entries:
        null = np.array([entry is None for entry in entries], np.bool_)
        entries = [float("nan") if entry is None else entry for entry in entries]
    return as_float64(entries), null


def as_float64(entries: list[float]) -> NDArray[np.float64]:
    """Convert numbers; an integer beyond float64 becomes infinite, as the literal 1e999 does."""
    try:
        return np.array(entries, np.float64)
    except OverflowError:
        return np.array([nearest_float(entry) for entry in entries], np.float64)


def nearest_float(value: float) -> float:
    """Return `value` as a float, infinite where it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def mask(name: str, value: object) -> NDArray[np.bool_]:
    """Check a list of 0 and 1, written as integers, floats or booleans.

    Returns
    -------
    shape (n,), bool

    Raises
    ------
    LineError
        BAD_TYPE or BAD_VALUE.
    """
    entries = entries_of(name, value, {bool, int, float})
    if not set(entries) <= {0, 1}:
        raise LineError(ProblemReason.BAD_VALUE, f"{name!r} is no mask", hint=MASK_HINT)
    return np.array(entries, np.bool_)


def entries_of(name: str, value: object, allowed: set[type]) -> list:  # type: ignore[type-arg]  # JSON entries
    """Return a list whose entries all have an allowed type; the check runs in C."""
    entries = sequence(name, value)
    if not set(map(type, entries)) <= allowed:
        index = next(i for i, entry in enumerate(entries) if type(entry) not in allowed)
        expected = " or ".join(sorted(JSON_NAMES[kind] for kind in allowed))
        raise wrong_type(f"{name}[{index}]", entries[index], expected)
    return entries


def check_lengths(lengths: Mapping[str, int]) -> None:
    """Raise LENGTH_MISMATCH unless all columns are equally long."""
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise LineError(
            ProblemReason.LENGTH_MISMATCH,
            f"columns differ in length: {told}",
            hint="one entry a token is needed in each",
        )
