"""The one clock: everything that needs time takes it as an argument.

`SystemClock` reads the machine, `ManualClock` is moved by hand and ships with
the package so that users can test with it too.  The linter bans ``time.*``
everywhere else.
"""

import threading
import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]

NS_PER_S = 1_000_000_000


class Clock(Protocol):
    """Two readings and one wait."""

    def now_ns(self) -> int:
        """Unix time in ns, for stamps that leave the process."""
        ...

    def monotonic_ns(self) -> int:
        """Monotonic time in ns, for durations and deadlines."""
        ...

    def wait(self, event: threading.Event, *, timeout_s: float) -> bool:
        """Wait for `event` at most `timeout_s` seconds; return whether it is set."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ns(self) -> int:
        """Unix time in ns."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Monotonic time in ns."""
        return time.monotonic_ns()

    def wait(self, event: threading.Event, *, timeout_s: float) -> bool:
        """Wait for `event` at most `timeout_s` seconds; return whether it is set."""
        return event.wait(timeout_s)


class ManualClock:
    """A clock that only moves when told to.

    Examples
    --------
    >>> clock = ManualClock(start_ns=0)
    >>> clock.advance(seconds=1.5)
    >>> clock.now_ns()
    1500000000
    """

    def __init__(self, start_ns: int = 1_700_000_000 * NS_PER_S) -> None:
        self._now_ns = start_ns

    def advance(self, *, seconds: float) -> None:
        """Move both readings forward by `seconds`."""
        self._now_ns += round(seconds * NS_PER_S)

    def now_ns(self) -> int:
        """Unix time in ns."""
        return self._now_ns

    def monotonic_ns(self) -> int:
        """Monotonic time in ns; the same reading as `now_ns`."""
        return self._now_ns

    def wait(self, event: threading.Event, *, timeout_s: float) -> bool:
        """Advance by `timeout_s` unless `event` is already set; never blocks."""
        if not event.is_set():
            self.advance(seconds=timeout_s)
        return event.is_set()
