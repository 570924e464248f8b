"""What a Kubernetes API server says when it says no.  Pure."""

import json

__all__ = ["refusal_words"]

TOLD_CHARS = 300


def refusal_words(text: str, *, most_chars: int = TOLD_CHARS) -> str:
    r"""Return the API's own sentence where the answer has one, else what it said.

    Examples
    --------
    >>> refusal_words('{"kind": "Status", "message": "pods is\\n forbidden"}')
    'pods is forbidden'
    >>> refusal_words("upstream  connect error"), refusal_words("")
    ('upstream connect error', 'no reason given')
    """
    try:
        said = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        said = text
    return " ".join(str(said).split())[:most_chars] or "no reason given"
