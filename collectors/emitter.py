"""How a collector hands traces over: `Emitter.emit` never blocks, never raises, never grows.

::

    with Emitter(settings.agent, clock=SystemClock(), limits=settings.limits) as emitter:
        emitter.emit(trace)

A trace waits in a bounded queue; one daemon thread encodes and posts it to the agent.  The
agent may be absent, slow or broken: traces are then dropped and counted, the host notices
nothing.  The arrays of a trace belong to the emitter once it has it: do not write to them.

After a fork the child has an empty queue and an account of its own; its thread starts with
its first trace.  Nothing the parent had queued is sent by the child.
"""

import atexit
import os
import socket
import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from paritas.clock import Clock
from paritas.collectors.emitter_courier import Courier
from paritas.collectors.emitter_queue import EmitterDrop, EmitterReading, Offered, TraceQueue, size_of
from paritas.collectors.settings import EmitterLimits
from paritas.otlp_http import OtlpClient, Target

__all__ = ["Emitter", "EmitterDrop", "EmitterReading"]

NO_RESOURCE: Mapping[str, str] = MappingProxyType({})
NS_PER_S = 1_000_000_000
LOADING_S = 10.0  # longest wait before a fork for imports under way; the child would hang at its first
USUAL = EmitterLimits()


@dataclass(frozen=True, slots=True)
class _Works:
    """What one process has of an emitter; a forked child makes new ones."""

    queue: TraceQueue
    client: OtlpClient
    courier: Courier


class Emitter:
    """Hands traces to an agent; a context manager.  Closing twice is fine.

    Parameters
    ----------
    target : Target
        Where the agent listens.
    clock : Clock
    limits : EmitterLimits
    resource : mapping of str to str
        OpenTelemetry resource attributes (``service.name`` …); host, process and instance are added.
    is_enabled : bool
        False: everything is dropped and counted, no thread starts.
    """

    def __init__(
        self,
        target: Target,
        *,
        clock: Clock,
        limits: EmitterLimits = USUAL,
        resource: Mapping[str, str] = NO_RESOURCE,
        is_enabled: bool = True,
    ) -> None:
        self._target, self._clock, self._limits, self._resource = target, clock, limits, resource
        self._is_enabled, self._is_closed = is_enabled, False
        self._begin()
        self._at_exit = _AtExit(weakref.ref(self))
        told = weakref.ref(self)
        os.register_at_fork(before=_BeforeFork(told), after_in_child=_AfterFork(told))

    def _begin(self) -> None:
        """Start an account and an empty queue; the thread comes with the first trace."""
        epoch_ns, limits = self._clock.now_ns(), self._limits
        queue = TraceQueue(
            limit_traces=limits.queue_traces, limit_bytes=limits.queue_bytes, epoch_ns=epoch_ns
        )
        client = OtlpClient(self._target, clock=self._clock, timeout_s=limits.timeout_s)
        courier = Courier(queue, client, clock=self._clock, limits=limits, resource=self._described(epoch_ns))
        self._works = _Works(queue, client, courier)
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def _described(self, epoch_ns: int) -> dict[str, str]:
        host, pid = socket.gethostname(), str(os.getpid())
        own = {"host.name": host, "process.pid": pid, "service.instance.id": f"{host}:{pid}:{epoch_ns}"}
        return {"service.name": "paritas-collector", **own, **self._resource}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(timeout_s=self._limits.exit_s)

    def emit(self, trace: Offered) -> None:
        """Offer a trace, or a reading of a step or GPU: constant time, no I/O, no exception; what becomes of it is counted."""
        works = self._works
        if not self._is_enabled:
            works.queue.refuse(EmitterDrop.DISABLED)
            return
        try:
            waiting_bytes = works.queue.put(trace, size_of(trace))
            if self._thread is None and waiting_bytes:
                self._start()
        except Exception:  # noqa: BLE001 -- the edge to somebody else's process: nothing may come out
            works.queue.refuse(EmitterDrop.INVALID)
            return
        if waiting_bytes >= self._limits.batch_bytes:
            works.courier.hurry.set()

    def emit_many(self, traces: Iterable[Offered]) -> None:
        """Offer several traces; an iterable that fails ends the call and is counted once."""
        try:
            for trace in traces:
                self.emit(trace)
        except Exception:  # noqa: BLE001 -- the same edge
            self._works.queue.refuse(EmitterDrop.INVALID)

    def _start(self) -> None:
        """Start the thread unless another caller does; one that cannot start is tried again next time."""
        if not self._start_lock.acquire(blocking=False):
            return
        try:
            if self._thread is None and not self._is_closed:
                thread = threading.Thread(target=self._works.courier.run, name="paritas-emitter", daemon=True)
                thread.start()
                self._thread = thread
                atexit.register(self._at_exit)
        except RuntimeError:  # no thread to be had: what waits is tried with the next trace
            pass
        finally:
            self._start_lock.release()

    @property
    def exit_s(self) -> float:
        """Longest wait at the end of the process, seconds."""
        return self._limits.exit_s

    def read(self) -> EmitterReading:
        """What became of everything offered so far."""
        return self._works.queue.read()

    def flush(self, *, timeout_s: float) -> bool:
        """Wait until all that waits now is settled; return whether it is."""
        drained = self._works.queue.drained()
        self._works.courier.hurry.set()
        return self._clock.wait(drained, timeout_s=timeout_s)

    def close(self, *, timeout_s: float) -> None:
        """Flush for at most `timeout_s`, then drop and count the rest and end the thread."""
        works, self._is_closed = self._works, True
        works.queue.close()
        self.flush(timeout_s=timeout_s if self._thread is not None else 0.0)
        works.queue.abandon()
        works.courier.abort()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1.0)  # it was woken from whatever it waited in
        works.client.close()
        atexit.unregister(self._at_exit)

    def await_imports(self) -> None:
        """Wait, before a fork, while the thread imports: in the child those modules would be locked for ever."""
        if self._thread is not None:
            self._clock.wait(self._works.courier.loaded, timeout_s=LOADING_S)

    def begin_in_child(self) -> None:
        """Forget, in a forked child, what belongs to the parent."""
        inherited = self._works.client
        self._begin()
        inherited.disown()  # the child's copy of the descriptor; the parent's connection stays
        if self._is_closed:
            self._works.queue.close()


@dataclass(frozen=True)
class _AtExit:
    """Closes an emitter that its owner left open when the process ends."""

    emitter: "weakref.ref[Emitter]"

    def __call__(self) -> None:
        emitter = self.emitter()
        if emitter is not None:
            emitter.close(timeout_s=emitter.exit_s)


@dataclass(frozen=True)
class _BeforeFork:
    """Lets a fork come between no imports of ours; as `_AfterFork` it holds no reference."""

    emitter: "weakref.ref[Emitter]"

    def __call__(self) -> None:
        emitter = self.emitter()
        if emitter is not None:
            emitter.await_imports()


@dataclass(frozen=True)
class _AfterFork:
    """Gives a forked child an emitter of its own; hooks cannot be taken back, so it holds no reference."""

    emitter: "weakref.ref[Emitter]"

    def __call__(self) -> None:
        emitter = self.emitter()
        if emitter is not None:
            emitter.begin_in_child()
