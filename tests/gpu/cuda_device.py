"""Whether there is a CUDA device to test on."""

import importlib.util


def why_not_here():
    """Why nothing of this folder can run; None if it can."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed: the capture on CUDA is not tested here"
    import torch

    if not torch.cuda.is_available():
        return "PyTorch sees no CUDA device: the capture on CUDA is not tested here"
    return None
