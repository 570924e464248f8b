"""Decode: event-log records in, traces out; what cannot be read is counted by reason."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from paritas.errors import RecordError
from paritas.records import TokenTrace
from paritas.wire import Decoded, decode

__all__ = ["Decoder"]

NOTHING = Decoded((), 0, {})


@dataclass(slots=True)
class Decoder:
    """The first stage; its counters say where every record and span went.

    Attributes
    ----------
    received : int
        Records taken.
    foreign_spans : int
        Spans of other programs, passed over.
    refused : Counter
        Records or spans of ours that gave no trace, by reason.
    """

    received: int = 0
    foreign_spans: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def take(self, value: bytes) -> Decoded:
        """Return what a record's value holds: nothing, and a count, if it cannot be read."""
        self.received += 1
        try:
            decoded = decode(value)
        except RecordError as error:
            self.refused[error.reason] += 1
            return NOTHING
        self.foreign_spans += decoded.foreign_spans
        self.refused.update({reason.value: n for reason, n in decoded.problems.items()})
        return decoded

    def process(self, values: Iterable[bytes]) -> Iterator[TokenTrace]:
        """Yield the traces of each record's value."""
        for value in values:
            yield from self.take(value).traces
