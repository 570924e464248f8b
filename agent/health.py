"""Whether the agent does its work: judged from one reading of its counters.  Pure."""

from dataclasses import dataclass
from enum import StrEnum

from paritas.agent.counters import SpoolCounters
from paritas.agent.reasons import NotReady
from paritas.agent.shipper import ShipperState

__all__ = ["Health", "Reading", "judge"]

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything health and metrics are made of.

    Attributes
    ----------
    spool : SpoolCounters
    shipper : ShipperState
    beat_ns : int
        Monotonic ns at which the shipping thread last turned round.
    now_ns : int
        Monotonic ns of the reading.
    is_started, is_draining : bool
    """

    spool: SpoolCounters
    shipper: ShipperState
    beat_ns: int
    now_ns: int
    is_started: bool = True
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """The judgement, of the agent or of another process.

    Attributes
    ----------
    is_alive : bool
        Whether the process should go on living: a restart would not help otherwise.
    reasons : tuple of StrEnum
        Why it is not ready; none if it is.
    notes : tuple of StrEnum
        What is wrong and does not make it unready.
    """

    is_alive: bool
    reasons: tuple[StrEnum, ...]
    notes: tuple[StrEnum, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether what comes in goes out."""
        return not self.reasons

    def text(self) -> str:
        """Return one line for a person.

        Examples
        --------
        >>> Health(True, (NotReady.NOT_SHIPPING,)).text()
        'not ready: not_shipping'
        """
        if self.reasons:
            return f"not ready: {', '.join(self.reasons)}"
        return f"ready, but: {', '.join(self.notes)}" if self.notes else "ready"


def judge(reading: Reading, *, stall_s: float, dead_s: float = 120.0) -> Health:
    """Return the health.

    Parameters
    ----------
    stall_s : float
        Records that wait so long without one acknowledged: not shipping.
    dead_s : float
        A shipping thread that did not turn round for so long is dead.
    """
    queued = reading.spool.records.queued + reading.spool.own.queued
    stalled_s = (reading.now_ns - reading.shipper.progress_ns) / NS
    is_alive = (reading.now_ns - reading.beat_ns) / NS < dead_s
    found = {
        NotReady.STARTING: not reading.is_started,
        NotReady.DRAINING: reading.is_draining,
        NotReady.THREAD_DIED: not is_alive,
        NotReady.TARGET_REFUSES: reading.shipper.is_refused,
        NotReady.NOT_SHIPPING: queued > 0 and stalled_s > stall_s,
        NotReady.MEMORY_ONLY: reading.spool.is_memory_only,
        NotReady.SYNC_FAILING: reading.spool.sync.is_failing,
    }
    return Health(is_alive, tuple(reason for reason, holds in found.items() if holds))
