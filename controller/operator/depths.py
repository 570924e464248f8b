"""What is nested too deeply is cut: one such object would else end every pass, for the contracts of everybody.  Pure.

An API server stores lists ten thousand deep where the schema leaves a field open; Python gives up after some hundreds.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["DEEPEST", "loaded_json", "shallow"]

DEEPEST = 64  # levels that are kept; the loader refuses more than 32, in its own words
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]|[^"\[\]{}]+')


def shallow(value: Any, levels: int = DEEPEST) -> Any:
    """Return plain values with null for what lies deeper than so many levels.

    Examples
    --------
    >>> shallow({"a": [1, [2]]}, 2)
    {'a': [1, None]}
    """
    if not isinstance(value, dict | list):
        return value
    if not levels:
        return None
    if isinstance(value, list):
        return [shallow(item, levels - 1) for item in value]
    return {key: shallow(item, levels - 1) for key, item in value.items()}


def loaded_json(text: str) -> Any:
    """Return the value of a JSON text; what lies too deep for Python is null.

    Raises
    ------
    ValueError
        It is no JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads("".join(_cut(text)))


def _cut(text: str) -> Iterator[str]:
    depth = 0
    for found in _TOKEN.finditer(text):
        piece = found[0]
        depth += piece in "[{"
        if depth <= DEEPEST:
            yield piece
        elif depth == DEEPEST + 1 and piece in "[{":
            yield "null"
        depth -= piece in "]}"
