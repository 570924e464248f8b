"""How long a step took: CUDA events where CUDA is there, the clock elsewhere; nobody waits."""

from collections import deque
from typing import Any

from paritas.clock import Clock
from paritas.collectors.torch.backend import pytorch

__all__ = ["StepTimes"]

NS_PER_S = 1_000_000_000
MOST_UNDER_WAY = 64  # steps whose end event has not come; the oldest are forgotten


class StepTimes:
    """Durations of steps in the order of their ends.

    Parameters
    ----------
    clock : Clock
        Times a step on a CPU.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ended: deque[tuple[Any, Any]] = deque(maxlen=MOST_UNDER_WAY)

    def mark(self) -> Any:
        """Mark this moment: an event on the current stream, or the clock's nanoseconds."""
        cuda = pytorch().cuda
        if not cuda.is_initialized() or cuda.is_current_stream_capturing():
            return self._clock.monotonic_ns()
        event = cuda.Event(enable_timing=True)
        event.record()
        return event

    def end(self, began: Any) -> None:
        """Mark the end of the step that began then."""
        self._ended.append((began, self.mark()))

    def take(self) -> list[float]:
        """Return the seconds of the steps that are now known, oldest first."""
        known = []
        while self._ended and _is_known(*self._ended[0]):
            known.append(_seconds(*self._ended.popleft()))
        return known


def _is_known(began: Any, ended: Any) -> bool:
    return isinstance(began, int) or isinstance(ended, int) or bool(ended.query())


def _seconds(began: Any, ended: Any) -> float:
    """Seconds between two marks; NaN for the one step in which CUDA woke up."""
    if isinstance(began, int) and isinstance(ended, int):
        return (ended - began) / NS_PER_S
    if isinstance(began, int) or isinstance(ended, int):
        return float("nan")
    return float(began.elapsed_time(ended)) / 1000.0
