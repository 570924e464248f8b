"""An answer on its way to the client: read for the observation, stripped for the client.

Synchronous and without sockets.  Whatever fails here is counted, and the bytes pass as they came.
"""

import json
from collections.abc import Callable
from typing import Any, Protocol

from paritas.collectors.openai.observation import Observation
from paritas.collectors.openai.plans import Strip
from paritas.collectors.openai.streams import EventCutter, data_of, text_of, with_data
from paritas.collectors.openai.strip import is_hollow, stripped
from paritas.collectors.openai.tally import ProxyFault, Tally

__all__ = ["EventWatcher", "Passing", "WholeWatcher"]


class Passing(Protocol):
    """Takes pieces as they come, gives what may go out now."""

    @property
    def is_changing(self) -> bool:
        """Whether what goes out may differ from what comes in."""
        ...

    def feed(self, piece: bytes) -> bytes:
        """Return what may go out after this piece."""
        ...

    def rest(self) -> bytes:
        """Return what is left when the answer ends."""
        ...


class _Reader:
    """Hands JSON to an observation; the first fault ends the observation."""

    def __init__(self, observation: Observation, tally: Tally, now_ns: Callable[[], int]) -> None:
        self._observation, self._tally, self._now_ns = observation, tally, now_ns
        self._is_on = True

    def read(self, answer: Any) -> None:
        if not self._is_on:
            return
        try:
            self._observation.read(answer, now_ns=self._now_ns())
        except Exception:  # noqa: BLE001 -- the client's answer does not depend on what we make of it
            self._is_on = False
            self._tally.faults[ProxyFault.OBSERVING] += 1


class EventWatcher:
    """A stream of events.  Without rules each piece goes out as it came, at once."""

    def __init__(
        self, observation: Observation, rules: Strip, tally: Tally, *, now_ns: Callable[[], int]
    ) -> None:
        self._reader = _Reader(observation, tally, now_ns)
        self._rules, self._tally, self._cutter = rules, tally, EventCutter()

    @property
    def is_changing(self) -> bool:
        """Whether anything is stripped."""
        return bool(self._rules)

    def feed(self, piece: bytes) -> bytes:
        """Return the events that are whole now, stripped; or the piece itself."""
        events = self._cutter.feed(piece)
        out = [self._event(event) for event in events]
        return b"".join(out) if self._rules else piece

    def _event(self, event: bytes) -> bytes:
        told = data_of(event)
        if told is None:
            return event
        self._reader.read(told)
        if not self._rules:
            return event
        if is_hollow(told, self._rules):
            return b""
        try:
            return with_data(event, stripped(text_of(event), told, self._rules))
        except (ValueError, TypeError, RecursionError):
            self._tally.faults[ProxyFault.STRIPPING] += 1
            return event

    def rest(self) -> bytes:
        """Return what came after the last whole event; an engine may leave out the last empty line."""
        left = self._cutter.rest()
        if not left:
            return b""
        out = self._event(left)
        return out if self._rules else b""


class WholeWatcher:
    """One JSON document.  With rules it is held until it is whole; beyond the limit it passes as it came."""

    def __init__(
        self,
        observation: Observation,
        rules: Strip,
        tally: Tally,
        *,
        now_ns: Callable[[], int],
        limit_bytes: int,
    ) -> None:
        self._reader = _Reader(observation, tally, now_ns)
        self._rules, self._tally, self._limit_bytes = rules, tally, limit_bytes
        self._kept = bytearray()
        self._is_kept = True

    @property
    def is_changing(self) -> bool:
        """Whether anything is stripped."""
        return bool(self._rules)

    def feed(self, piece: bytes) -> bytes:
        """Keep the piece; return it too where nothing is to be stripped."""
        if not self._is_kept:
            return piece
        self._kept += piece
        if len(self._kept) <= self._limit_bytes:
            return b"" if self._rules else piece
        self._is_kept = False
        self._tally.faults[ProxyFault.ANSWER_TOO_LARGE] += 1
        held, self._kept = bytes(self._kept), bytearray()
        return held if self._rules else piece

    def rest(self) -> bytes:
        """Read the document; return it stripped."""
        if not self._is_kept:
            return b""
        body = bytes(self._kept)
        try:
            told = json.loads(body)
            self._reader.read(told)
            return stripped(body, told, self._rules) if self._rules else b""
        except (ValueError, TypeError, RecursionError):
            self._tally.faults[ProxyFault.STRIPPING] += 1
            return body if self._rules else b""
