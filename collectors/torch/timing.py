"""How long a step took: by the host's clock, and by CUDA events where CUDA is there; nobody waits."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paritas.clock import Clock
from paritas.collectors.torch.backend import pytorch
from paritas.records import StepTime

__all__ = ["Mark", "StepTimes", "Timed"]

NS_PER_S = 1_000_000_000
MOST_UNDER_WAY = 64  # steps whose end event has not come; the oldest are given up


@dataclass(frozen=True, slots=True)
class Mark:
    """One moment: Unix and monotonic ns of the host, and an event on the current stream where there is CUDA."""

    event_ns: int
    host_ns: int
    event: Any = None


@dataclass(frozen=True, slots=True)
class Timed:
    """Whose time it is; the fields are those of `StepTime`."""

    run_id: str
    weights_version: str
    attributes: Mapping[str, str]


class StepTimes:
    """Durations of steps in the order of their ends.

    Parameters
    ----------
    clock : Clock

    Attributes
    ----------
    lost : int
        Steps that were given up because too many were under way.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ended: deque[tuple[Timed, Mark, Mark]] = deque()
        self.lost = 0

    def mark(self) -> Mark:
        """Mark this moment."""
        cuda = pytorch().cuda
        event = None
        if cuda.is_initialized() and not cuda.is_current_stream_capturing():
            event = cuda.Event(enable_timing=True)
            event.record()
        return Mark(self._clock.now_ns(), self._clock.monotonic_ns(), event)

    def end(self, began: Mark, timed: Timed) -> None:
        """Mark the end of the step that began then."""
        if len(self._ended) >= MOST_UNDER_WAY:
            self._ended.popleft()
            self.lost += 1
        self._ended.append((timed, began, self.mark()))

    def take(self) -> list[StepTime]:
        """Return the steps whose times are now known, oldest first."""
        known = []
        while self._ended and _is_known(*self._ended[0][1:]):
            known.append(_step(*self._ended.popleft()))
        return known


def _is_known(began: Mark, ended: Mark) -> bool:
    return began.event is None or ended.event is None or bool(ended.event.query())


def _step(timed: Timed, began: Mark, ended: Mark) -> StepTime:
    """The device's time is not known for the one step in which CUDA woke up."""
    is_timed = began.event is not None and ended.event is not None
    return StepTime(
        run_id=timed.run_id,
        event_ns=began.event_ns,
        host_s=(ended.host_ns - began.host_ns) / NS_PER_S,
        device_s=float(began.event.elapsed_time(ended.event)) / 1000.0 if is_timed else None,
        weights_version=timed.weights_version,
        attributes=timed.attributes,
    )
