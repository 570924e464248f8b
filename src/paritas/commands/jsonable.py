"""Numbers that JSON can say."""

from collections.abc import Mapping
from math import isfinite

__all__ = ["finite"]


def finite(value: object) -> object:
    """Replace NaN and infinity by None, at any depth; tuples become lists.

    Examples
    --------
    >>> finite({"a": (1.5, float("nan")), "b": "text"})
    {'a': [1.5, None], 'b': 'text'}
    """
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: finite(v) for k, v in value.items()}
    return [finite(v) for v in value] if isinstance(value, list | tuple) else value
