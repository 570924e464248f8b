"""Starts: when a sequence was started, as far as its sender's clock can be believed."""

from dataclasses import replace

from paritas.records import TokenTrace

__all__ = ["AHEAD_NS", "believed"]

# Below the least difference between time zones, an hour; a recording without times that is sent at once is
# laid out ahead at a hundred sequences a second, and keeps its order.
AHEAD_NS = 1800 * 1_000_000_000


def believed(trace: TokenTrace, log_ns: int) -> TokenTrace:
    """Return the trace, started when the log took it if it claims to start more than `AHEAD_NS` later.

    Nothing starts after it has arrived.  Start times move cohorts, windows and deadlines, so one sender
    with a wrong clock would hold the windows of all others open, and end their incidents' dwell times.

    Parameters
    ----------
    log_ns : int, Unix ns
        When the log took its record.

    Examples
    --------
    >>> import numpy as np
    >>> from paritas.records import KernelIdentity, Role
    >>> columns = np.zeros(1, np.float32), np.zeros(1, np.uint64), np.zeros(1, np.uint8)
    >>> one = TokenTrace("run", "s", KernelIdentity(Role.TRAIN), *columns, event_ns=2**61)
    >>> believed(one, 70).event_ns, believed(one, 2**61 - 1).event_ns == 2**61
    (70, True)
    """
    return trace if trace.event_ns - log_ns <= AHEAD_NS else replace(trace, event_ns=log_ns)
