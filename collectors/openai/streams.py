"""Server-sent events as bytes: cut where an event ends, read what one says."""

import json
import re
from itertools import pairwise
from typing import Any

__all__ = ["EventCutter", "data_of", "text_of", "with_data"]

DONE = b"[DONE]"
EMPTY_LINE = re.compile(rb"\r\n\r\n|\n\r?\n|\r\r")
# One event may hold the top-k of many tokens; beyond this it is no event but an attack.
EVENT_LIMIT_BYTES = 16 << 20


class EventCutter:
    r"""Cuts a byte stream into events; each comes out as soon as its empty line is there.

    The events joined are the stream, byte for byte.

    Examples
    --------
    >>> cutter = EventCutter()
    >>> cutter.feed(b"data: 1\n\nda"), cutter.feed(b"ta: 2\r\n\r\n"), cutter.rest()
    ([b'data: 1\n\n'], [b'data: 2\r\n\r\n'], b'')
    """

    def __init__(self) -> None:
        self._kept = bytearray()
        self._scanned = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the events that are whole now."""
        self._kept += piece
        ends = [found.end() for found in EMPTY_LINE.finditer(self._kept, self._scanned)]
        events = [bytes(self._kept[start:end]) for start, end in pairwise([0, *ends])]
        if ends:
            del self._kept[: ends[-1]]
        # The end of an empty line may come with the next piece.
        self._scanned = max(0, len(self._kept) - 3)
        if len(self._kept) > EVENT_LIMIT_BYTES:
            events.append(self.rest())
        return events

    def rest(self) -> bytes:
        """Return what is left at the end of the stream."""
        left = bytes(self._kept)
        self._kept.clear()
        self._scanned = 0
        return left


def data_of(event: bytes) -> Any | None:
    r"""Return the JSON an event holds; None for comments, ``[DONE]`` and anything else.

    Examples
    --------
    >>> data_of(b'data: {"a": 1}\n\n'), data_of(b": keep-alive\n\n"), data_of(b"data: [DONE]\n\n")
    ({'a': 1}, None, None)
    """
    text = text_of(event)
    if text in (b"", DONE):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def text_of(event: bytes) -> bytes:
    r"""Return the data of an event, its lines joined; empty where it has none.

    Examples
    --------
    >>> text_of(b'id: 7\ndata: {"a":\ndata: 1}\n\n')
    b'{"a":\n1}'
    """
    return b"\n".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))


def with_data(event: bytes, data: bytes) -> bytes:
    r"""Return the event with other data; its other lines (``event:``, ``id:``, comments) stay.

    Examples
    --------
    >>> with_data(b"id: 7\ndata: old\n\n", b"new")
    b'id: 7\ndata: new\n\n'
    """
    kept = [line for line in event.splitlines() if line and not line.startswith(b"data:")]
    return b"\n".join([*kept, b"data: " + data]) + b"\n\n"
