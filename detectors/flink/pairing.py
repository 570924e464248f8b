"""Pairing, one trace id at a time: everything a key's state holds, and no Flink."""

from collections.abc import Iterator

from paritas.contracts.model import Compare
from paritas.detectors.decode import Decoder
from paritas.detectors.flink.events import Arrival, Arrived, Ended, Event
from paritas.detectors.sequences import Matcher

__all__ = ["END_NS", "KeyedPairing"]

SEQUENCES = 16  # of one trace id; more than one is a sender's mistake, and bounded
ORIGINS = 1024  # records of one sequence remembered by (agent, epoch, number)
END_NS = 2**63 - 1  # the end of the input, later than any record


class KeyedPairing:
    """State of one key: which records came, and what of the sequence waits.

    Parameters
    ----------
    compare : Compare
        The contract's `compare` section.
    """

    def __init__(self, compare: Compare) -> None:
        self._matcher = Matcher(compare, remembered=SEQUENCES, waiting=SEQUENCES)
        self._origins: dict[tuple[str, ...], None] = {}

    def take(self, arrival: Arrival, decoder: Decoder) -> Iterator[Event]:
        """Take one record; a half whose time was over before it is given up first."""
        if self._is_repeat(arrival.origin):
            decoder.refused["repeated"] += 1
            return
        traces = list(decoder.process([arrival.value]))
        if not traces:
            return
        yield from self.expire(arrival.log_ns)
        takens = tuple(self._matcher.take(trace, arrival.log_ns) for trace in traces)
        yield Arrived(arrival.log_ns, arrival.partition, arrival.offset, takens)

    def expire(self, log_ns: int) -> Iterator[Event]:
        """The log's time reached `log_ns`: give up on what waited too long, as of its own deadline."""
        while (deadline_ns := self._matcher.deadline_ns) is not None and deadline_ns <= log_ns:
            yield Ended(deadline_ns, tuple(self._matcher.expire(deadline_ns)))

    def flush(self) -> Iterator[Event]:
        """End of input: give up on everything."""
        if self._matcher.waiting:
            yield Ended(END_NS, tuple(self._matcher.flush()))

    @property
    def deadline_ns(self) -> int | None:
        """When something that waits is given up; None if nothing waits."""
        return self._matcher.deadline_ns

    def _is_repeat(self, origin: tuple[str, ...]) -> bool:
        if not origin:
            return False
        if origin in self._origins:
            return True
        self._origins[origin] = None
        while len(self._origins) > ORIGINS:
            del self._origins[next(iter(self._origins))]
        return False
