"""From a spec to a kernel that is ready; what it needs is looked up only here."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from paritas.collectors.kernels.kernel import Sampler, Scorer
from paritas.collectors.kernels.local import LocalSampler, LocalScorer
from paritas.collectors.kernels.spec import KernelSpec
from paritas.collectors.kernels.vllm_http import VllmKernel
from paritas.errors import UsageError

__all__ = ["open_sampler", "open_scorer"]

NEEDS = {"hf": ("torch", "transformers"), "llamacpp": ("llama_cpp",)}
PACKAGES = {"llama_cpp": "llama-cpp-python", "compressed_tensors": "compressed-tensors"}


def open_scorer(spec: KernelSpec, *, top_k: int) -> Scorer:
    """Open the training kernel.

    Raises
    ------
    UsageError
        A part is not installed, nothing is at the target, or an option does not fit it.
    """
    return LocalScorer(_opened(spec), top_k=top_k)


def open_sampler(spec: KernelSpec, *, top_k: int) -> Sampler:
    """Open the inference kernel; raises as `open_scorer` does, also where no server answers."""
    if spec.kind == "vllm":
        return VllmKernel.connect(spec, top_k=top_k)
    return LocalSampler(_opened(spec), top_k=top_k)


def _opened(spec: KernelSpec) -> Any:
    """Return the model of a spec; the modules by these names have one function `open_model`."""
    wanted = NEEDS[spec.kind] + (("compressed_tensors",) if "quantization" in spec.options else ())
    missing = [name for name in wanted if find_spec(name) is None]
    if missing:
        hint = "pip install " + " ".join(PACKAGES.get(name, name) for name in missing)
        raise UsageError(f"{spec.flag}: {spec.kind} needs {' and '.join(missing)}", hint=hint)
    return import_module(f"paritas.collectors.kernels.{spec.kind}").open_model(spec)
