"""An event that a signal handler may set although its thread is just setting it."""

import threading

__all__ = ["ReentrantEvent"]


class ReentrantEvent(threading.Event):
    """A `threading.Event` behind a lock that its holder may take again.

    Python runs a signal handler in the main thread between two instructions, also between two of `set`: with
    the lock of `threading.Event` a handler that sets the same event would wait for itself.

    Examples
    --------
    >>> event = ReentrantEvent()
    >>> event.set(), event.wait(timeout=0)
    (None, True)
    """

    def __init__(self) -> None:
        super().__init__()
        self._cond = threading.Condition(threading.RLock())
