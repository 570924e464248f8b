"""What happens to a request once a receiver has read it: split, spooled, answered."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from paritas.agent.otlp import split
from paritas.agent.reasons import DropReason
from paritas.errors import PermanentError, TransientError, UsageError
from paritas.wire import WireRecord

__all__ = ["Answer", "Intake", "Reply", "Sink"]

RETRY_AFTER_S = 1


class Answer(StrEnum):
    """What a client is told; the label of the requests counter."""

    TAKEN = "taken"  # it is in the spool
    PARTLY = "partly"  # some spans can never be taken; the rest was
    BAD = "bad"  # no OTLP trace request
    TOO_LARGE = "too_large"  # larger than max_body_bytes
    FULL = "full"  # no room now: come back later
    BUSY = "busy"  # too much being worked on: come back later


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one request, for any protocol.

    Attributes
    ----------
    rejected_spans : int
        Spans that will never be taken.
    text : str
        Why, for a person.
    """

    answer: Answer
    rejected_spans: int = 0
    text: str = ""


class Sink(Protocol):
    """What an intake appends to: a spool."""

    def append(self, records: Sequence[WireRecord]) -> None:
        """Accept all records or, with a TransientError, none."""
        ...

    def drop_unspooled(self, count: int, reason: DropReason) -> None:
        """Count records that were accepted and cannot be kept."""
        ...


class Intake:
    """Takes request bodies from any number of threads; never waits for the destination.

    Parameters
    ----------
    sink : Sink
        Where records go.
    max_pending_bytes : int
        Bytes worked on at once.

    Attributes
    ----------
    answers : Counter
        Requests, by `Answer`.
    """

    def __init__(self, sink: Sink, *, max_pending_bytes: int) -> None:
        self._sink, self._room_bytes, self._lock = sink, max_pending_bytes, threading.Lock()
        self.answers: Counter[Answer] = Counter()

    def admit(self, size_bytes: int) -> bool:
        """Reserve room for a body that is about to be read; release it afterwards."""
        with self._lock:
            if size_bytes > self._room_bytes:
                return False
            self._room_bytes -= size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Give the room of a body back."""
        with self._lock:
            self._room_bytes += size_bytes

    def take(self, body: bytes) -> Reply:
        """Return when the records of a request are in the spool, or why they are not."""
        return self.count(_take(self._sink, body))

    def take_admitted(self, read: Callable[[], bytes], size_bytes: int) -> Reply:
        """Take a body that is read only if there is room for it.

        Raises
        ------
        Whatever `read` raises.
        """
        if not self.admit(size_bytes):
            return self.count(Reply(Answer.BUSY, text="too many requests at once: come back later"))
        try:
            return self.take(read())
        finally:
            self.release(size_bytes)

    def count(self, reply: Reply) -> Reply:
        """Count an answer and return it."""
        with self._lock:
            self.answers[reply.answer] += 1
        return reply


def _take(sink: Sink, body: bytes) -> Reply:
    try:
        found = split(body)
        sink.append(found.records)
    except PermanentError as error:
        return Reply(Answer.BAD, text=str(error))
    except (TransientError, UsageError) as error:  # full, or closed while the agent ends
        return Reply(Answer.FULL, text=str(error))
    if found.too_large:
        sink.drop_unspooled(found.too_large, DropReason.TOO_LARGE)
    if found.bad_ids:
        sink.drop_unspooled(found.bad_ids, DropReason.ENCODE_ERROR)
    rejected = found.too_large + found.bad_ids
    if not rejected:
        return Reply(Answer.TAKEN)
    text = f"{found.too_large} spans exceed the record limit, {found.bad_ids} have no 16-byte trace id"
    return Reply(Answer.PARTLY, rejected, text)
