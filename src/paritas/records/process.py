"""What a process tells of itself beside its traces: how long a training step took, how its GPUs are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["GpuReading", "GpuSample", "StepTime"]


@dataclass(frozen=True, slots=True)
class StepTime:
    """One training step of one process.

    Attributes
    ----------
    run_id, weights_version : str
        Run, and the weights the step computed with; empty when not reported.
    event_ns : int
        Unix ns at which it began.
    host_s : float, seconds
        Between its begin and its end by the host's clock: what the program waited.
    device_s : float, seconds, or None
        Between two events on the device's stream: what the device worked or idled; None without CUDA.
    attributes : mapping
        Slice dimensions, as of `TokenTrace`.
    """

    run_id: str
    event_ns: int
    host_s: float
    device_s: float | None = None
    weights_version: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment; None and empty is what this card or driver does not tell.

    Attributes
    ----------
    uuid, name, driver : str
    compute_capability : str
        Such as ``9.0``.
    mig, ecc : bool or None
        Whether the card is partitioned; whether its memory corrects errors.
    sm_clock_mhz, memory_clock_mhz, temperature_c : int or None
    power_w : float or None
    memory_used_bytes, memory_total_bytes : int or None
    utilization : float or None
        Share of the last sample period in which a kernel ran, 0 to 1.
    throttled : int or None
        Bit mask of reasons why clocks are held back.
    ecc_uncorrected : int or None
        Errors since the driver was loaded.
    """

    uuid: str
    name: str
    driver: str
    compute_capability: str
    mig: bool | None
    ecc: bool | None
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    utilization: float | None
    throttled: int | None
    ecc_uncorrected: int | None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """A reading as a process of a run took it, at `event_ns` (Unix ns)."""

    run_id: str
    event_ns: int
    gpu: GpuReading
    attributes: Mapping[str, str] = field(default_factory=dict)
