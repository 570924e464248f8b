"""Advantage and reward of a sequence out of what a trainer dumped; labels that objectives read (docs/objectives.md)."""

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.dumps.fields import check_lengths, floats, nearest_float
from paritas.collectors.dumps.traces import labels_of

__all__ = ["advantage_of", "one_number", "reward_of"]


def advantage_of(told: object, counted: NDArray[np.bool_], *, name: str = "advantages") -> dict[str, str]:
    """Return the label ``advantage`` of a sequence.

    A column of tokens gives its mean over the tokens in the loss, if all of them have one sign: clip and
    bias depend on the sign alone, and a sequence whose tokens are pushed both ways has none.

    Parameters
    ----------
    told : object
        A number for the sequence, a column with an entry a token, or None where there is none.
    counted : shape (n,), bool
        Tokens in the loss.

    Raises
    ------
    LineError
        A column of another length, or with an entry that is neither a number nor null.

    Examples
    --------
    >>> advantage_of([0.0, 0.5, 0.5], np.array([False, True, True]))
    {'advantage': '0.5'}
    >>> advantage_of([0.5, -0.5], np.array([True, True])), advantage_of(None, np.array([True]))
    ({}, {})
    """
    if not isinstance(told, list):
        return _labelled("advantage", one_number(told))
    values, _ = floats(name, told)
    check_lengths({"token_ids": counted.size, name: values.size})
    known = values[counted & np.isfinite(values)]
    if not known.size or len(set(np.sign(known).tolist())) > 1:
        return {}
    return _labelled("advantage", float(known.mean()))


def reward_of(told: object) -> dict[str, str]:
    """Return the label ``reward`` of a sequence, where what was told is one finite number.

    Examples
    --------
    >>> reward_of(1), reward_of([0.25]), reward_of([0.0, 1.0]), reward_of(float("nan")), reward_of(True)
    ({'reward': '1'}, {'reward': '0.25'}, {}, {}, {})
    """
    return _labelled("reward", one_number(told))


def one_number(told: object) -> int | float | None:
    """Return a finite number, alone or in a list of one element; None where it is none."""
    value = told[0] if isinstance(told, list) and len(told) == 1 else told
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if np.isfinite(nearest_float(value)) else None


def _labelled(name: str, value: float | None) -> dict[str, str]:
    return {} if value is None else labels_of({name: value}, frozenset())
