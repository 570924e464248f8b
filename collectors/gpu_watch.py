"""A thread that reads the GPUs of this machine now and then and hands the readings to an emitter.

::

    with GpuWatch(emitter, clock=SystemClock(), period_s=10.0, run_id="run"):
        ...

On a machine without NVML or without a GPU the thread ends at once and says why in `absent`.  A forked
child has no such thread.
"""

import threading
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, Self

from paritas.clock import Clock
from paritas.collectors.nvml import Gpus, NoGpu, Nvml
from paritas.collectors.settings import CollectorSettings
from paritas.records import GpuSample

__all__ = ["GpuWatch", "is_first_here", "watch_for"]

NO_LABELS: Mapping[str, str] = MappingProxyType({})
JOIN_S = 1.0


class Taker(Protocol):
    """Where readings go: `paritas.collectors.emitter.Emitter`."""

    def emit_many(self, traces: Iterable[GpuSample]) -> None:
        """Take readings; never blocks, never raises."""
        ...


class GpuWatch:
    """Samples all GPUs that NVML shows; a context manager.  Closing twice is fine.

    Parameters
    ----------
    taker : Emitter
        Not closed with it.
    clock : Clock
    period_s : float, seconds
        From one reading to the next.
    run_id : str
    attributes : mapping of str to str
    library : module or None
        As of `Nvml`.

    Attributes
    ----------
    rounds : int
        Times that all GPUs were read.
    absent : NoGpu or None
        Why there is nothing to read.
    faults : int
        1 when a fault of ours ended the thread.
    """

    def __init__(
        self,
        taker: Taker,
        *,
        clock: Clock,
        period_s: float,
        run_id: str,
        attributes: Mapping[str, str] = NO_LABELS,
        library: Any = None,
    ) -> None:
        self._taker, self._clock, self._period_s = taker, clock, period_s
        self._run_id, self._attributes, self._library = run_id, attributes, library
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.rounds, self.faults = 0, 0
        self.absent: NoGpu | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Begin to sample; the driver's library is loaded by the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="paritas-gpus", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread; a reading that is under way is waited for, for at most a second."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        try:
            with Nvml(self._library) as nvml:
                while not self._stop.is_set() and self._sample(nvml.read()):
                    self._clock.wait(self._stop, timeout_s=self._period_s)
        except Exception:  # noqa: BLE001 -- top of a thread inside somebody else's process
            self.faults += 1

    def _sample(self, gpus: Gpus) -> bool:
        """Emit one round; False where there will be nothing to read."""
        self.absent = gpus.absent
        if gpus.absent is not None:
            return False
        now_ns = self._clock.now_ns()
        self._taker.emit_many(
            GpuSample(self._run_id, now_ns, gpu, self._attributes) for gpu in gpus.readings.values()
        )
        self.rounds += 1
        return True


def is_first_here(environ: Mapping[str, str]) -> bool:
    """Whether this is the one process of a machine that samples: launchers number them by ``LOCAL_RANK``.

    Examples
    --------
    >>> is_first_here({}), is_first_here({"LOCAL_RANK": "0"}), is_first_here({"LOCAL_RANK": "3"})
    (True, True, False)
    """
    return environ.get("LOCAL_RANK", "0") == "0"


def watch_for(
    taker: Taker, settings: CollectorSettings, environ: Mapping[str, str], *, clock: Clock
) -> GpuWatch | None:
    """Return the watch that the settings ask for; None where they ask for none or another rank samples."""
    if not settings.is_enabled or not settings.gpu_period_s or not is_first_here(environ):
        return None
    return GpuWatch(
        taker,
        clock=clock,
        period_s=settings.gpu_period_s,
        run_id=settings.run_id,
        attributes=settings.attributes,
    )
