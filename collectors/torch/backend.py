"""PyTorch, looked up when first needed: the packages beside this file import nothing heavy."""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Tensor", "has_triton", "pytorch", "quietly"]

T = TypeVar("T")

# A tensor of PyTorch; the type cannot be named where the package need not be installed.
Tensor = Any


def pytorch() -> Any:
    """Return the module `torch`; the caller holds tensors, so it is loaded already."""
    return importlib.import_module("torch")


def has_triton() -> bool:
    """Whether the Triton compiler is installed; nothing is loaded to find out."""
    return importlib.util.find_spec("triton") is not None


def quietly(call: Callable[[], T]) -> T | None:
    """Return what a call returns; None if it raises: at the edge to somebody else's step nothing comes out."""
    try:
        return call()
    except Exception:  # noqa: BLE001 -- the edge; what a collector loses by it, it counts itself
        return None
