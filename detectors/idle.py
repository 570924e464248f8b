"""Idle ticks: when a silent log is looked at again; a pure function of the log's own times."""

from dataclasses import dataclass

__all__ = ["IDLE_S", "IdleTicks"]

IDLE_S = 1.0
SPREAD = 100  # after long silence a look every hundredth of it: a year takes two thousand looks


@dataclass(slots=True)
class IdleTicks:
    """Times of ticks after the last trace: every interval, then ever more rarely.

    Attributes
    ----------
    interval_ns : int
        Silence before the first tick.

    Examples
    --------
    >>> ticks = IdleTicks(interval_ns=10)
    >>> ticks.start(100)
    >>> [ticks.due(125), ticks.due(125), ticks.due(125)]
    [110, 120, None]
    """

    interval_ns: int
    last_ns: int = -1
    due_ns: int = -1

    def start(self, now_ns: int) -> None:
        """A trace came: silence begins anew."""
        self.last_ns = max(self.last_ns, now_ns)
        self.due_ns = self.last_ns + self.interval_ns

    def due(self, now_ns: int) -> int | None:
        """Return the next tick's time and move past it; None if it is later than `now_ns`."""
        if self.due_ns < 0 or self.due_ns > now_ns:
            return None
        due_ns = self.due_ns
        self.due_ns += max(self.interval_ns, (due_ns - self.last_ns) // SPREAD)
        return due_ns
