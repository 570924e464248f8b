"""From the device to the host without waiting: copies on a stream of their own into pinned memory.

On a CPU a copy is a copy.  On CUDA the copies follow what the current stream has queued, run beside
what it queues next, and end with an event that is asked, never waited for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.torch.backend import Tensor, pytorch

__all__ = ["Copies", "HostCopies"]


@dataclass(frozen=True, slots=True, eq=False)
class HostCopies:
    """Arrays that arrive; they may be read once `has_arrived`."""

    tensors: Mapping[str, Tensor]
    arrived: Any  # a CUDA event, or None when nothing is under way

    @property
    def nbytes(self) -> int:
        """Bytes held on the host."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())

    def has_arrived(self) -> bool:
        """Whether all of it is here; asks the device, does not wait."""
        return self.arrived is None or bool(self.arrived.query())

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays by name, without a further copy."""
        return {name: tensor.numpy() for name, tensor in self.tensors.items()}


class Copies:
    """Starts copies; keeps one side stream a device, made when the first tensor on it comes."""

    def __init__(self) -> None:
        self._streams: dict[Any, Any] = {}

    def start(self, tensors: Mapping[str, Tensor]) -> HostCopies:
        """Begin to copy; the trainer may write to its tensors as soon as this returns."""
        devices = {tensor.device for tensor in tensors.values() if tensor.is_cuda}
        if not devices:
            return HostCopies({name: _plain(tensor) for name, tensor in tensors.items()}, None)
        (device,) = devices  # a batch lies on one device
        return self._start_on(device, tensors)

    def _start_on(self, device: Any, tensors: Mapping[str, Tensor]) -> HostCopies:
        cuda = pytorch().cuda
        side = self._streams.get(device) or self._streams.setdefault(device, cuda.Stream(device))
        # The trainer's next kernel may write to its tensors, so the current stream first puts them aside:
        # a few bytes a token on the device.
        aside = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        side.wait_stream(cuda.current_stream(device))
        with cuda.stream(side):
            copied = {name: _pinned(tensor, side) for name, tensor in aside.items()}
            arrived = cuda.Event()
            arrived.record(side)
        return HostCopies(copied, arrived)


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def _pinned(tensor: Tensor, side: Any) -> Tensor:
    """Copy into pinned memory, which the host allocator of PyTorch keeps and gives out again."""
    if not tensor.is_cuda:
        return tensor
    host = pytorch().empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    tensor.record_stream(side)  # its memory is not given out again before the side stream is past it
    return host
