"""llama.cpp's own answers without what we asked for, byte for byte as it would have written them.

An answer of ``/completion`` repeats the settings of its request, so the number of log-probabilities that we
asked for stands there as well as they do.  Both are cut out of the bytes; all others stay as they are: no
number is written again.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["without_probabilities"]

SPACE = re.compile(r"[ \t\r\n]*")
VALUE = json.JSONDecoder()
PROBABILITIES, SETTINGS, NUMBER, UNASKED = "completion_probabilities", "generation_settings", "n_probs", "0"


@dataclass(frozen=True, slots=True)
class _Member:
    """One member of an object: where its name begins, and where its value begins and ends."""

    name: str
    start: int
    value: int
    end: int


@dataclass(frozen=True, slots=True)
class _Cut:
    """A stretch of the text, and what is to stand there."""

    start: int
    end: int
    text: str = ""


def without_probabilities(document: bytes) -> bytes:
    """Return an answer, an event's data or a list of answers as it is where nobody asks for `n_probs`.

    Raises
    ------
    ValueError
        This is no JSON.

    Examples
    --------
    >>> without_probabilities(b'{"stop":true,"generation_settings":{"n_probs":1},"completion_probabilities":[]}')
    b'{"stop":true,"generation_settings":{"n_probs":0}}'
    """
    text = document.decode()
    out, at = [], 0
    for cut in _cuts(text):
        out += [text[at : cut.start], cut.text]
        at = cut.end
    return "".join([*out, text[at:]]).encode()


def _cuts(text: str) -> Iterator[_Cut]:
    for start in _objects(text):
        members = list(_members(text, start))
        for number, member in enumerate(members):
            if member.name == PROBABILITIES:
                yield _of_member(members, number)
            elif member.name == SETTINGS and text[member.value] == "{":
                told = (one for one in _members(text, member.value) if one.name == NUMBER)
                yield from (_Cut(one.value, one.end, UNASKED) for one in told)


def _of_member(members: list[_Member], number: int) -> _Cut:
    """Cut a member with the comma that it needed: the one before it, or of the first the one behind it."""
    member = members[number]
    if number:
        return _Cut(members[number - 1].end, member.end)
    return _Cut(member.start, members[1].start if len(members) > 1 else member.end)


def _objects(text: str) -> Iterator[int]:
    """Yield where each answer begins: there are several in a list where several prompts were asked."""
    at = _past(text, 0)
    if text[at : at + 1] != "[":
        yield from (at,) if text[at : at + 1] == "{" else ()
        return
    at = _past(text, at + 1)
    while text[at : at + 1] == "{":
        yield at
        at = _next(text, VALUE.raw_decode(text, at)[1])


def _members(text: str, at: int) -> Iterator[_Member]:
    """Yield the members of the object that begins here."""
    at = _past(text, at + 1)
    while text[at : at + 1] == '"':
        name, end = VALUE.raw_decode(text, at)
        value = _past(text, _past(text, end) + 1)  # behind the colon
        _, end = VALUE.raw_decode(text, value)
        yield _Member(name, at, value, end)
        at = _next(text, end)


def _next(text: str, end: int) -> int:
    """Return where the next one begins behind a comma; the end of the list or object where there is none."""
    at = _past(text, end)
    return _past(text, at + 1) if text[at : at + 1] == "," else at


def _past(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return at if found is None else found.end()
