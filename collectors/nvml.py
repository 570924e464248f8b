"""What NVML says of the GPUs a process uses, keyed by UUID; without a GPU an empty answer with a reason.

`nvidia-ml-py` and the driver's library are looked for when asked, and neither is an error to lack.
NVML counts in the order of the bus, CUDA in its own, and both renumber inside containers: only the
UUID means the same to both, to DCGM and to Kubernetes.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from paritas.closing import Closing
from paritas.records import GpuReading

__all__ = ["GpuReading", "Gpus", "NoGpu", "Nvml"]

T = TypeVar("T")


class NoGpu(StrEnum):
    """Why there is no reading."""

    NO_BINDINGS = "no_bindings"  # nvidia-ml-py is not installed
    NO_DRIVER = "no_driver"  # libnvidia-ml is not there, or the driver does not answer
    NO_DEVICE = "no_device"  # it answers and has no GPU
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Gpus:
    """All GPUs of this machine by UUID, or why there are none."""

    readings: dict[str, GpuReading]
    absent: NoGpu | None = None


class Nvml(Closing):
    """One session with the driver's library; a context manager.  Closing twice is fine.

    Parameters
    ----------
    library : module or None
        The bindings; None looks `pynvml` up.

    Examples
    --------
    >>> with Nvml() as nvml:
    ...     gpus = nvml.read()
    >>> bool(gpus.readings) != bool(gpus.absent)
    True
    """

    def __init__(self, library: Any = None) -> None:
        self._library, self._absent = library, None
        if library is None:
            self._library, self._absent = _bindings()
        if self._library is not None and _told(self._library.nvmlInit, lambda _: True) is None:
            # nvmlInit returns nothing: what counts is whether it raised.
            self._library, self._absent = None, NoGpu.NO_DRIVER

    def close(self) -> None:
        """End the session."""
        if self._library is not None:
            _told(self._library.nvmlShutdown, bool)
            self._library, self._absent = None, NoGpu.CLOSED

    def read(self) -> Gpus:
        """Read every GPU once; some tens of microseconds for each value a card tells."""
        if self._library is None:
            return Gpus({}, self._absent)
        count = _told(self._library.nvmlDeviceGetCount, int) or 0
        found = [gpu for number in range(count) if (gpu := _gpu(self._library, number)) is not None]
        return Gpus({gpu.uuid: gpu for gpu in found}, None if found else NoGpu.NO_DEVICE)


def _bindings() -> tuple[Any, NoGpu | None]:
    try:
        return importlib.import_module("pynvml"), None
    except ImportError:
        return None, NoGpu.NO_BINDINGS


def _told(ask: Callable[[], Any], read: Callable[[Any], T]) -> T | None:
    """Return what NVML tells; None for whatever this card or driver does not know."""
    try:
        return read(ask())
    except Exception:  # noqa: BLE001 -- NVML raises a class of its own for each code; absent is an answer
        return None


def _gpu(nvml: Any, number: int) -> GpuReading | None:
    device = _told(lambda: nvml.nvmlDeviceGetHandleByIndex(number), lambda handle: handle)
    uuid = _told(lambda: nvml.nvmlDeviceGetUUID(device), _text)
    if device is None or uuid is None:
        return None
    memory: Any = _told(lambda: nvml.nvmlDeviceGetMemoryInfo(device), lambda told: told)
    return GpuReading(
        uuid=uuid,
        name=_told(lambda: nvml.nvmlDeviceGetName(device), _text) or "",
        driver=_told(nvml.nvmlSystemGetDriverVersion, _text) or "",
        compute_capability=_told(lambda: nvml.nvmlDeviceGetCudaComputeCapability(device), _dotted) or "",
        mig=_told(lambda: nvml.nvmlDeviceGetMigMode(device), _first_flag),
        ecc=_told(lambda: nvml.nvmlDeviceGetEccMode(device), _first_flag),
        sm_clock_mhz=_told(lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM), int),
        memory_clock_mhz=_told(lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM), int),
        temperature_c=_told(lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU), int),
        power_w=_told(lambda: nvml.nvmlDeviceGetPowerUsage(device), lambda milliwatt: milliwatt / 1000),
        memory_used_bytes=_told(lambda: memory.used, int),
        memory_total_bytes=_told(lambda: memory.total, int),
        utilization=_told(lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu, lambda part: part / 100),
        throttled=_told(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(device), int),
        ecc_uncorrected=_told(lambda: _uncorrected(nvml, device), int),
    )


def _uncorrected(nvml: Any, device: Any) -> Any:
    return nvml.nvmlDeviceGetTotalEccErrors(
        device, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    )


def _text(told: Any) -> str:
    return told.decode() if isinstance(told, bytes) else str(told)


def _dotted(told: Any) -> str:
    return ".".join(str(part) for part in told)


def _first_flag(told: Any) -> bool:
    """Return the mode of now; the second is the one after a reboot."""
    return bool(told[0])
