"""NVML: what a card tells by UUID; what it does not, and machines without one.

No GPU can run here, so the library is a small real object with the functions of nvidia-ml-py that
are asked; the test on a real card is in tests/gpu.
"""

import sys

import pytest
from nvml_cards import library

from paritas.collectors.nvml import NoGpu, Nvml


def test_a_card_by_its_uuid():
    with Nvml(library()) as nvml:
        told = nvml.read()
    assert told.absent is None
    gpu = told.readings["GPU-1"]
    assert (gpu.name, gpu.driver, gpu.compute_capability) == ("NVIDIA H100", "570.1", "9.0")
    assert (gpu.mig, gpu.ecc, gpu.sm_clock_mhz, gpu.memory_clock_mhz) == (False, True, 1980, 2619)
    assert (gpu.power_w, gpu.utilization, gpu.temperature_c) == (123.456, 0.5, 41)
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (5, 80)
    assert (gpu.throttled, gpu.ecc_uncorrected) == (4, 0)


def test_what_a_card_does_not_tell_is_absent():
    with Nvml(library()) as nvml:
        gpu = nvml.read().readings["GPU-2"]
    assert (gpu.name, gpu.mig, gpu.power_w, gpu.memory_used_bytes, gpu.sm_clock_mhz) == (
        "",
        None,
        None,
        None,
        None,
    )


@pytest.mark.parametrize(("cards", "reason"), [(None, NoGpu.NO_DRIVER), (0, NoGpu.NO_DEVICE)])
def test_no_driver_and_no_card_are_no_errors(cards, reason):
    with Nvml(library(cards)) as nvml:
        assert nvml.read().absent is reason
        assert nvml.read().readings == {}


def test_no_bindings(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with Nvml() as nvml:
        assert nvml.read().absent is NoGpu.NO_BINDINGS


def test_closing_twice_ends_the_session_once():
    bindings = library()
    nvml = Nvml(bindings)
    nvml.close()
    nvml.close()
    assert bindings.ended == 1
    assert nvml.read().absent is NoGpu.CLOSED
