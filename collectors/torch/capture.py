"""The owner of the capture: a trainer shows batches, traces go to the emitter, nothing comes back.

One collector a process, so one a rank: ranks share nothing, and no collective is added.  Call it
outside of a compiled region; it is plain Python around a handful of kernels.
"""

import os
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from paritas.clock import Clock, SystemClock
from paritas.closing import Closing
from paritas.collectors.emitter import Emitter
from paritas.collectors.gpu_watch import GpuWatch, watch_for
from paritas.collectors.settings import hasher_of, settings_from
from paritas.collectors.torch.account import CaptureAccount, CaptureDrop, CaptureReading
from paritas.collectors.torch.backend import pytorch, quietly
from paritas.collectors.torch.copies import Copies, HostCopies
from paritas.collectors.torch.shown import Shown
from paritas.collectors.torch.step import Step
from paritas.collectors.torch.timing import StepTimes
from paritas.collectors.torch.traces import HostBatch, Names, Stamp, traces_of
from paritas.collectors.torch.weighing import Weigher
from paritas.records import KernelIdentity, LogprobSemantics, Role, Sampling, StepTime, TokenTrace
from paritas.tokens import TokenHasher

__all__ = ["CaptureDrop", "CaptureLimits", "CaptureReading", "Step", "TorchCollector"]

# What a copied token takes: log-probability, rank, id, two flags.
BYTES_A_TOKEN = 4 + 4 + 8 + 2
POLL_S = 0.005  # between two looks at copies that are under way, when closing
TRAIN = KernelIdentity(Role.TRAIN)
RAW = Sampling(semantics=LogprobSemantics.RAW)


@dataclass(frozen=True, slots=True)
class CaptureLimits:
    """What a capture may hold.

    Attributes
    ----------
    pending_bytes : int
        Most bytes of copies under way; a batch beyond is dropped and counted.
    close_s : float, seconds
        Longest wait for them at the end.
    weighs : bool
        Whether `step` and the integrations digest a sample of the weights, once a version.
    """

    pending_bytes: int = 256 << 20
    close_s: float = 2.0
    weighs: bool = True


USUAL = CaptureLimits()


@dataclass(frozen=True, slots=True, eq=False)
class _UnderWay:
    """A batch whose copies have not all arrived."""

    copies: HostCopies
    names: Names
    stamp: Stamp
    event_ns: int

    @property
    def rows(self) -> int:
        return int(self.copies.tensors["token"].shape[0])


class TorchCollector(Closing):
    """Shows training batches to an emitter; a context manager.  Closing twice is fine.

    Parameters
    ----------
    emitter : Emitter
        Belongs to the collector: closed with it.
    clock : Clock
    hasher : TokenHasher or None
        None: everything is dropped and counted.
    stamp : Stamp
        What all traces of this process share; `step` adds the weights.  Where `sampling` says
        ``temperature_only``, logits are divided by its temperature; logits are else taken as they are.
    limits : CaptureLimits
    gpus : GpuWatch or None
        Started here and closed with the collector.
    """

    def __init__(
        self,
        emitter: Emitter,
        *,
        clock: Clock,
        hasher: TokenHasher | None,
        stamp: Stamp,
        limits: CaptureLimits = USUAL,
        gpus: GpuWatch | None = None,
    ) -> None:
        self._emitter, self._clock, self._hasher = emitter, clock, hasher
        self._stamp, self._limits = stamp, limits
        self._under_way: deque[_UnderWay] = deque()
        self._copies, self._times, self._account = Copies(), StepTimes(clock), CaptureAccount()
        self._weigher = Weigher(self._copies) if limits.weighs and hasher is not None else None
        self._gpus = gpus
        if gpus is not None:
            gpus.start()
        self._is_closed = False
        self._unnamed = 0

    @classmethod
    def from_environ(
        cls, environ: Mapping[str, str], *, kernel: KernelIdentity = TRAIN, sampling: Sampling = RAW
    ) -> Self:
        """Make a collector as the `PARITAS_*` variables say; without any it does nothing.

        Parameters
        ----------
        environ : mapping, such as ``os.environ``
        kernel : KernelIdentity
            See `paritas.collectors.torch.identity.training_kernel`.
        sampling : Sampling
            The law of the log-probabilities that will be shown.

        Raises
        ------
        UsageError
            A variable cannot be read, or there is no token key.
        """
        told, clock = settings_from(environ), SystemClock()
        hasher = hasher_of(told) if told.is_enabled else None
        emitter = Emitter(told.agent, clock=clock, limits=told.limits, is_enabled=told.is_enabled)
        stamp = Stamp(
            told.run_id,
            kernel,
            weights_version=told.weights_version,
            sampling=sampling,
            attributes=told.attributes,
        )
        limits, gpus = (
            CaptureLimits(weighs=told.weights_digest),
            watch_for(emitter, told, environ, clock=clock),
        )
        return cls(emitter, clock=clock, hasher=hasher, stamp=stamp, limits=limits, gpus=gpus)

    @property
    def stamp(self) -> Stamp:
        """What all traces share so far."""
        return self._stamp

    def restamp(self, stamp: Stamp) -> None:
        """Let later batches be of another kernel, law or version."""
        self._stamp = stamp

    def step(self, *, weights_version: str = "", weights_digest: str = "", model: Any = None) -> "Step":
        """Begin a step: ``with collector.step(weights_version="12", model=model) as step: step.observe(…)``.

        Parameters
        ----------
        weights_version, weights_digest : str
        model : torch.nn.Module or None
            Whose weights these are: where no digest is given, one is taken for each new version.
        """
        stamp = replace(
            self._stamp,
            weights_version=weights_version or self._stamp.weights_version,
            weights_digest=weights_digest or self._stamp.weights_digest,
        )
        return Step(self, self.weighed(stamp, model), self._times)

    def weighed(self, stamp: Stamp, model: Any) -> Stamp:
        """Return the stamp with the digest of what the model holds now, taken once for each version.

        Nothing raises and the device is not waited for.  Weights without a version have no digest:
        nobody could say when to take the next.
        """
        if self._weigher is None or model is None or stamp.weights_digest or not stamp.weights_version:
            return stamp
        return replace(stamp, weighed=self._weigher.weigh(model, stamp.weights_version))

    def show(self, shown: Shown, names: Names | None = None, *, stamp: Stamp | None = None) -> None:
        """Take a batch: no wait, no exception; what becomes of it is counted.

        Parameters
        ----------
        shown : Shown
        names : Names or None
            None: rows are numbered, which no inference trace will match.
        stamp : Stamp or None
            None: the collector's.
        """
        try:
            rows = shown.rows
            self._account.show(rows)
        except Exception:  # noqa: BLE001 -- the edge to somebody else's step: nothing may come out
            self._account.refuse(CaptureDrop.FAULT)
            return
        try:
            self.drain()
            reason = self._refusal(shown) or self._take(shown, names, stamp or self._stamp)
        except Exception:  # noqa: BLE001 -- the same edge
            reason = CaptureDrop.FAULT
        if reason is not None:
            self._account.drop(reason, rows)

    def _refusal(self, shown: Shown) -> CaptureDrop | None:
        if self._hasher is None:
            return CaptureDrop.DISABLED
        if self._is_closed:
            return CaptureDrop.CLOSED
        if not shown.fits():
            return CaptureDrop.SHAPE
        if shown.is_cuda and pytorch().cuda.is_current_stream_capturing():
            return CaptureDrop.GRAPH_CAPTURE
        return None

    def _take(self, shown: Shown, names: Names | None, stamp: Stamp) -> CaptureDrop | None:
        """Score, start the copies, emit what has arrived; return why not, if not."""
        held = sum(batch.copies.nbytes for batch in self._under_way)
        if held + shown.tokens.numel() * BYTES_A_TOKEN > self._limits.pending_bytes:
            return CaptureDrop.PENDING_BYTES
        names = names or self._numbered(shown.rows, stamp)
        copies = self._copies.start(shown.columns(stamp.sampling))
        self._under_way.append(_UnderWay(copies, names, stamp, self._clock.now_ns()))
        self.drain()
        return None

    def _numbered(self, rows: int, stamp: Stamp) -> Names:
        first, self._unnamed = self._unnamed, self._unnamed + rows
        prefix = f"{stamp.weights_version}/{os.getpid()}"
        return Names([f"{prefix}/{number}" for number in range(first, first + rows)])

    def drain(self) -> None:
        """Emit the batches that have arrived; asks the device and does not wait for it."""
        try:
            while self._under_way and self._under_way[0].copies.has_arrived():
                self._emit(self._under_way.popleft())
        except Exception:  # noqa: BLE001 -- the same edge: a broken device breaks the step by itself
            lost, self._under_way = self._under_way, deque()
            self._account.drop(CaptureDrop.FAULT, sum(batch.rows for batch in lost))
        self._emit_steps(quietly(self._times.take) or [])

    def _emit_steps(self, steps: list[StepTime]) -> None:
        for step in steps:
            self._account.time(step)
        self._account.lose_steps(self._times.lost)
        if steps and self._hasher is not None:
            self._emitter.emit_many(steps)

    def _emit(self, batch: _UnderWay) -> None:
        try:
            traces = self._traces(batch)
        except ValueError:
            self._account.drop(CaptureDrop.NAMES, batch.rows)
        except Exception:  # noqa: BLE001 -- the same edge: this batch alone is lost
            self._account.drop(CaptureDrop.FAULT, batch.rows)
        else:
            self._emitter.emit_many(traces)
            self._account.emit(len(traces))
            self._account.drop(CaptureDrop.EMPTY, batch.rows - len(traces))

    def _traces(self, batch: _UnderWay) -> list[TokenTrace]:
        if self._hasher is None:  # without one nothing is taken, see `_refusal`
            return []
        host = HostBatch(**batch.copies.arrays())  # type: ignore[arg-type] # `Shown.columns` made the types
        stamp = batch.stamp.settled()
        return traces_of(host, batch.names, stamp, hasher=self._hasher, event_ns=batch.event_ns)

    def read(self) -> CaptureReading:
        """What became of everything shown so far; `Emitter.read` says what came after."""
        return self._account.read()

    def refuse(self) -> None:
        """Count something that was to be shown and is no batch."""
        self._account.refuse(CaptureDrop.SHAPE)

    def flush(self) -> bool:
        """Wait for at most `CaptureLimits.close_s` for copies and agent; return whether all is there."""
        self._wait()
        return not self._under_way and self._emitter.flush(timeout_s=self._limits.close_s)

    def _wait(self) -> None:
        deadline_ns = self._clock.monotonic_ns() + round(self._limits.close_s * 1e9)
        self.drain()
        while self._under_way and self._clock.monotonic_ns() < deadline_ns:
            self._clock.wait(threading.Event(), timeout_s=POLL_S)
            self.drain()

    def close(self) -> None:
        """Wait for at most `CaptureLimits.close_s`, drop and count the rest, close the emitter."""
        if self._is_closed:
            return
        self._is_closed = True
        self._wait()
        lost, self._under_way = self._under_way, deque()
        self._account.drop(CaptureDrop.CLOSED, sum(batch.rows for batch in lost))
        if self._gpus is not None:
            self._gpus.close()
        self._emitter.close(timeout_s=self._emitter.exit_s)
