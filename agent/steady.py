"""A wall clock that does not jump: set once, and then as even as the monotonic one."""

import threading

from paritas.clock import Clock

__all__ = ["SteadyClock"]


class SteadyClock:
    """The wall time at its making plus the monotonic time since; waits like the clock it is made from.

    Stamps made with it give ages: whoever sets the machine's clock while the agent runs makes no
    record older.  Only a clock that is wrong when the agent starts can.

    Examples
    --------
    >>> from paritas.clock import ManualClock
    >>> clock = ManualClock(start_ns=5)
    >>> steady = SteadyClock(clock)
    >>> clock.advance(seconds=1)
    >>> steady.now_ns()
    1000000005
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ns = clock.now_ns() - clock.monotonic_ns()

    def now_ns(self) -> int:
        """Steady Unix time in ns."""
        return self._clock.monotonic_ns() + self._offset_ns

    def monotonic_ns(self) -> int:
        """Monotonic time in ns."""
        return self._clock.monotonic_ns()

    def wait(self, event: threading.Event, *, timeout_s: float) -> bool:
        """Wait for `event` at most `timeout_s` seconds; return whether it is set."""
        return self._clock.wait(event, timeout_s=timeout_s)
