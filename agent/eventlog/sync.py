"""Group commit: one thread that makes many appends durable at once."""

import threading
from collections.abc import Callable
from typing import Self

from paritas.clock import Clock
from paritas.errors import TransientError

__all__ = ["GroupSync"]


class GroupSync:
    """Calls `flush` on its own thread, every `interval_s` and whenever it is woken.

    A sync takes milliseconds and may stall for hundreds; here it stalls nobody.

    Parameters
    ----------
    flush : callable
        Makes everything appended so far durable; may raise TransientError or OSError.
    interval_s : float
        Longest time between two calls, seconds.
    clock : Clock
        Waits; must really wait (`SystemClock`), as the thread does nothing else.

    Attributes
    ----------
    failures : int
        Calls that raised: each may have cost durability, none stops the thread.
    """

    def __init__(self, flush: Callable[[], None], *, interval_s: float, clock: Clock) -> None:
        self._flush, self._interval_s, self._clock = flush, interval_s, clock
        self._wake, self._closing = threading.Event(), threading.Event()
        # A daemon: it must never keep the process it lives in from ending.
        self._thread = threading.Thread(target=self._run, name="paritas-sync", daemon=True)
        self.failures = 0

    def _run(self) -> None:
        while not self._closing.is_set():
            self._clock.wait(self._wake, timeout_s=self._interval_s)
            self._wake.clear()
            try:
                self._flush()
            except (TransientError, OSError):  # OSError: a process without free descriptors
                self.failures += 1

    def wake(self) -> None:
        """Sync soon."""
        self._wake.set()

    def close(self) -> None:
        """Sync once more and end the thread; twice is fine."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
