"""What nvidia-ml-py tells of two cards: a small real object with the functions that are asked, as no GPU is here."""

from types import SimpleNamespace


class NvmlError(Exception):
    """As the bindings raise for each code."""


FULL = {
    "Name": "NVIDIA H100",
    "UUID": b"GPU-1",
    "CudaComputeCapability": (9, 0),
    "MigMode": (0, 1),
    "EccMode": (1, 1),
    "Temperature": 41,
    "PowerUsage": 123_456,
    "MemoryInfo": SimpleNamespace(used=5, total=80),
    "UtilizationRates": SimpleNamespace(gpu=50),
    "CurrentClocksEventReasons": 4,
    "TotalEccErrors": 0,
}


def library(cards=2):
    """Two cards, of which the second tells little; None: the driver is not loaded."""
    told = SimpleNamespace(
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        NVML_MEMORY_ERROR_TYPE_UNCORRECTED=1,
        NVML_VOLATILE_ECC=0,
        nvmlInit=lambda: fail("Driver Not Loaded") if cards is None else None,
        nvmlDeviceGetCount=lambda: cards,
        nvmlSystemGetDriverVersion=lambda: "570.1",
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetClockInfo=lambda device, clock: tell("Clock", device, {1: 1980, 2: 2619}[clock]),
        ended=0,
    )
    told.nvmlShutdown = lambda: setattr(told, "ended", told.ended + 1)
    for name, value in FULL.items():
        setattr(told, f"nvmlDeviceGet{name}", lambda device, *_, n=name, v=value: tell(n, device, v))
    return told


def tell(name, device, value):
    if device and name != "UUID":
        fail("Not Supported")
    return b"GPU-2" if device else value


def fail(text):
    raise NvmlError(text)
