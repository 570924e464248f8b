"""The device itself."""

import importlib.util

import pytest
from gpu.cuda_device import why_not_here

from paritas.collectors.nvml import Nvml


def test_the_device_is_named_by_nvml_and_pytorch_alike():
    if reason := why_not_here():
        pytest.skip(reason)
    if importlib.util.find_spec("pynvml") is None:
        pytest.skip("nvidia-ml-py is not installed")
    import torch

    from paritas.collectors.torch.identity import read_training_kernel

    torch.zeros(1, device="cuda")
    told = read_training_kernel(torch.nn.Linear(2, 2).cuda(), {})
    with Nvml() as nvml:
        gpu = nvml.read().readings[told["gpu_uuid"].value]
    assert gpu.name == told["gpu"].value
    assert gpu.compute_capability == told["compute_capability"].value
    assert gpu.memory_total_bytes > 0
