"""Pairing, one trace id at a time: everything a key's state holds, and no Flink."""

from paritas.contracts.model import Compare
from paritas.detectors.decode import Decoder
from paritas.detectors.flink.events import Arrival, Arrived
from paritas.detectors.sequences import Matcher
from paritas.detectors.starts import believed

__all__ = ["KeyedPairing"]

SEQUENCES = 16  # of one trace id; more than one is a sender's mistake, and bounded
ORIGINS = 1024  # records of one sequence remembered by (agent, epoch, number)


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

    def take(self, arrival: Arrival, decoder: Decoder) -> Arrived | None:
        """Take one record; None if it holds nothing for the evaluation.

        A half whose time was over before it is forgotten first: the evaluation has given it up
        at its deadline, knowing as well as this when it came.
        """
        if self._is_repeat(arrival.origin):
            decoder.refused["repeated"] += 1
            return None
        held = decoder.take(arrival.value)
        for _ in self._matcher.expire(arrival.log_ns):
            continue
        log_ns = arrival.log_ns
        takens = tuple(self._matcher.take(believed(trace, log_ns), log_ns) for trace in held.traces)
        agent = arrival.origin[0] if arrival.origin else ""
        if not takens and not held.gaps and not agent and not held.rosters:
            return None
        place = arrival.log_ns, arrival.partition, arrival.offset
        return Arrived(*place, takens, held.gaps, agent, held.rosters)

    def _is_repeat(self, origin: tuple[str, ...]) -> bool:
        if not origin:
            return False
        if origin in self._origins:
            return True
        self._origins[origin] = None
        while len(self._origins) > ORIGINS:
            del self._origins[next(iter(self._origins))]
        return False
