"""What time a live log has while nothing comes: the wall clock's, unless that has jumped ahead."""

from paritas.clock import Clock

__all__ = ["LogTime"]


class LogTime:
    """The smaller of the wall clock and of the monotonic clock set by it, and by the log, when it was right.

    Time that passes here expires halves and ends dwell times, so a wall clock that jumps a day
    ahead must not make a day pass.  One that is put back holds time back until it is there again;
    a record of a later time sets what was set wrong at first.

    Examples
    --------
    >>> from paritas.clock import ManualClock
    >>> clock = ManualClock(start_ns=100)
    >>> time = LogTime(clock)
    >>> clock.advance(seconds=1e-8)
    >>> time.now_ns()
    110
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ns = clock.now_ns() - clock.monotonic_ns()

    def see(self, appended_ns: int) -> None:
        """Learn that the log has a record of this time."""
        self._ahead_ns = max(self._ahead_ns, appended_ns - self._clock.monotonic_ns())

    def now_ns(self) -> int:
        """Unix time in ns up to which silence may be taken for granted."""
        return min(self._clock.now_ns(), self._clock.monotonic_ns() + self._ahead_ns)
