"""Take out of an answer what its client did not ask for."""

import json
from collections.abc import Iterable
from typing import Any

from paritas.collectors.openai.native import without_probabilities
from paritas.collectors.openai.plans import Strip

__all__ = ["is_hollow", "strip", "stripped"]

BOTH = {"logprobs", "token_ids"}


def strip(answer: Any, rules: Strip) -> Any:
    """Return the answer (changed in place) as the engine would have written it without our additions.

    Examples
    --------
    >>> strip({"choices": [{"text": "a", "logprobs": {}}]}, Strip(null_in_choice=("logprobs",)))
    {'choices': [{'text': 'a', 'logprobs': None}]}
    """
    for one in answer if isinstance(answer, list) else (answer,):
        if isinstance(one, dict):
            _null(one, rules.null_at_top)
            _drop(one.get("meta_info"), rules.drop_in_meta)
            for choice in _choices(one):
                _null(choice, rules.null_in_choice)
                _drop(choice, rules.drop_in_choice)
    return answer


def is_hollow(event: Any, rules: Strip) -> bool:
    """Whether an event came for our additions alone.

    Tokens that a parser of tools or reasoning holds back vLLM tells in an empty delta where log-probabilities
    or ids are asked for, and else sends nothing (`chat_completion_stream_generator` of 0.32).

    Examples
    --------
    >>> event = {"choices": [{"delta": {}, "logprobs": {}, "finish_reason": None}]}
    >>> is_hollow(event, Strip(("logprobs", "token_ids"))), is_hollow(event, Strip(("token_ids",)))
    (True, False)
    """
    if not BOTH.issubset(rules.null_in_choice) or not isinstance(event, dict):
        return False
    choices = list(_choices(event))
    return bool(choices) and all(
        one.get("delta") == {} and one.get("finish_reason") is None for one in choices
    )


def stripped(document: bytes, told: Any, rules: Strip) -> bytes:
    """Return a document as the engine would have written it without our additions.

    Parameters
    ----------
    told : JSON value
        What the document holds; changed.
    """
    return without_probabilities(document) if rules.is_native else _written(strip(told, rules))


def _written(answer: Any) -> bytes:
    """Return JSON; what an engine wrote as bare NaN stays so."""
    try:
        return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a surrogate pair, as an escape
        return json.dumps(answer, separators=(",", ":")).encode()


def _choices(answer: dict[str, Any]) -> Iterable[dict[str, Any]]:
    choices = answer.get("choices")
    return (one for one in choices if isinstance(one, dict)) if isinstance(choices, list) else ()


def _null(target: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if name in target:
            target[name] = None


def _drop(target: Any, names: Iterable[str]) -> None:
    if isinstance(target, dict):
        for name in names:
            target.pop(name, None)
