"""The bounded queue of an emitter, and its account: every trace and reading is in exactly one place."""

import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from paritas.collectors.reentrant_event import ReentrantEvent
from paritas.records import GpuSample, StepTime, TokenTrace

__all__ = ["Batch", "EmitterDrop", "EmitterReading", "Offered", "TraceQueue", "size_of"]

# What an emitter takes; the readings of steps and GPUs are few, and count as traces do.
Offered = TokenTrace | StepTime | GpuSample
READINGS = (StepTime, GpuSample)

# What a trace costs beside its columns: the record, its texts, and its place in the queue.
TRACE_BYTES = 512


class EmitterDrop(StrEnum):
    """Why a trace or reading never reached the agent; the label of a counter."""

    DISABLED = "disabled"  # PARITAS_ENABLED is off
    CLOSED = "closed"  # offered after the end, or still here when the time to close ran out
    QUEUE_TRACES = "queue_traces"  # so many wait already
    QUEUE_BYTES = "queue_bytes"  # they hold so many bytes already
    INVALID = "invalid"  # what was offered is no trace and no reading
    ENCODE = "encode"  # the wire format cannot hold it
    REFUSED = "refused"  # the agent will never take it
    GAVE_UP = "gave_up"  # no success for as long as is tried
    INTERNAL = "internal"  # a fault of ours


@dataclass(frozen=True, slots=True)
class EmitterReading:
    """One consistent look: ``accepted == delivered + sum(dropped.values()) + queued``.

    Attributes
    ----------
    accepted : int
        Traces and readings that were offered.
    delivered : int
        Those that the agent has.
    dropped : mapping of EmitterDrop to int
    queued : int
        Those that wait or are under way.
    queued_bytes : int
    retries : int
        Requests that were sent again.
    epoch_ns : int
        Unix ns at which this account began: at the start, and in a forked child.
    """

    accepted: int
    delivered: int
    dropped: Mapping[EmitterDrop, int]
    queued: int
    queued_bytes: int
    retries: int
    epoch_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Traces under way; they count as queued until they are settled."""

    traces: tuple[Offered, ...]
    size_bytes: int


def size_of(trace: Offered) -> int:
    """Return the bytes a waiting trace or reading holds.

    Examples
    --------
    >>> import numpy as np
    >>> from paritas.records import KernelIdentity, Role
    >>> size_of(TokenTrace("r", "s", KernelIdentity(Role.TRAIN), np.zeros(8, np.float32),
    ...                    np.zeros(8, np.uint64), np.zeros(8, np.uint8)))
    616
    """
    if isinstance(trace, READINGS):
        return TRACE_BYTES
    size = TRACE_BYTES + trace.logprob.nbytes + trace.token.nbytes + trace.status.nbytes
    if trace.itl_s is not None:
        size += trace.itl_s.nbytes
    if trace.rank is not None:
        size += trace.rank.nbytes
    if trace.top is not None:
        size += trace.top.token.nbytes + trace.top.logprob.nbytes
    return size


class TraceQueue:
    """First in, first out; full means that the newest is dropped.  Any number of threads.

    The lock is held for a few assignments only, and may be taken again by the thread that
    holds it: a signal handler may emit.

    Parameters
    ----------
    limit_traces, limit_bytes : int
    epoch_ns : int
        Unix ns at which this account begins.

    Attributes
    ----------
    filled : threading.Event
        Set while something waits.
    """

    def __init__(self, *, limit_traces: int, limit_bytes: int, epoch_ns: int) -> None:
        self._limit_traces, self._limit_bytes, self._epoch_ns = limit_traces, limit_bytes, epoch_ns
        self._lock = threading.RLock()
        self._waiting: deque[tuple[Offered, int]] = deque()
        self._under_way: list[Batch] = []
        self._queued = self._queued_bytes = 0
        self._accepted = self._delivered = self._retries = 0
        self._dropped: Counter[EmitterDrop] = Counter()
        self._left = 0  # traces that entered the queue and are settled
        self._waiters: list[tuple[int, threading.Event]] = []
        self._is_open = True
        self.filled = ReentrantEvent()

    def put(self, trace: Offered, size_bytes: int) -> int:
        """Accept a trace; return the bytes that now wait, or 0 if it was dropped."""
        with self._lock:
            self._accepted += 1
            if not self._is_open:
                return self._drop(EmitterDrop.CLOSED)
            if self._queued >= self._limit_traces:
                return self._drop(EmitterDrop.QUEUE_TRACES)
            if self._queued_bytes + size_bytes > self._limit_bytes:
                return self._drop(EmitterDrop.QUEUE_BYTES)
            self._waiting.append((trace, size_bytes))
            self._queued += 1
            self._queued_bytes += size_bytes
            if not self.filled.is_set():  # asked itself: a handler may have put one more in between
                self.filled.set()
            return self._queued_bytes

    def refuse(self, reason: EmitterDrop) -> None:
        """Count something that was offered and cannot be taken."""
        with self._lock:
            self._accepted += 1
            self._drop(reason)

    def _drop(self, reason: EmitterDrop) -> int:
        self._dropped[reason] += 1
        return 0

    def take(self, limit_bytes: int) -> Batch:
        """Return the oldest traces, at least one if any waits, of about `limit_bytes` at most."""
        taken: list[Offered] = []
        size = 0
        with self._lock:
            while self._waiting and (not taken or size + self._waiting[0][1] <= limit_bytes):
                trace, size_bytes = self._waiting.popleft()
                taken.append(trace)
                size += size_bytes
            if not self._waiting:
                self.filled.clear()
            batch = Batch(tuple(taken), size)
            if taken:
                self._under_way.append(batch)
        return batch

    def settle(self, batch: Batch, dropped: Mapping[EmitterDrop, int], *, retries: int = 0) -> None:
        """Say how a batch ended; what is not dropped is delivered.  Ignored once it was abandoned."""
        with self._lock:
            self._retries += retries
            if batch not in self._under_way:
                return
            self._under_way.remove(batch)
            self._dropped.update(dropped)
            self._delivered += len(batch.traces) - sum(dropped.values())
            self._leave(len(batch.traces), batch.size_bytes)

    def close(self) -> None:
        """Take nothing more."""
        with self._lock:
            self._is_open = False

    def abandon(self) -> None:
        """Drop what waits and what is under way: the time to close is over."""
        with self._lock:
            self._dropped[EmitterDrop.CLOSED] += self._queued
            self._waiting.clear()
            self._under_way.clear()
            self.filled.clear()
            self._leave(self._queued, self._queued_bytes)

    def _leave(self, traces: int, size_bytes: int) -> None:
        self._left += traces
        self._queued -= traces
        self._queued_bytes -= size_bytes
        for waiter in [one for one in self._waiters if one[0] <= self._left]:
            self._waiters.remove(waiter)
            waiter[1].set()

    def drained(self) -> threading.Event:
        """Return an event that is set once everything that waits now is settled."""
        event = ReentrantEvent()
        with self._lock:
            target = self._left + self._queued
            if self._queued:
                self._waiters.append((target, event))
            else:
                event.set()
        return event

    def read(self) -> EmitterReading:
        """One consistent look."""
        with self._lock:
            return EmitterReading(
                accepted=self._accepted,
                delivered=self._delivered,
                dropped={reason: count for reason, count in self._dropped.items() if count},
                queued=self._queued,
                queued_bytes=self._queued_bytes,
                retries=self._retries,
                epoch_ns=self._epoch_ns,
            )
