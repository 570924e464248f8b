"""From a spec to a kernel that is ready; what it needs is looked up only here."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from paritas.collectors.kernels.kernel import Sampler, Scorer
from paritas.collectors.kernels.local import LocalSampler, LocalScorer
from paritas.collectors.kernels.spec import KernelSpec
from paritas.collectors.kernels.twice import AskedTwice, Replayed, ScoredTwice, Twice
from paritas.collectors.kernels.vllm_http import VllmKernel
from paritas.errors import UsageError
from paritas.records import Role

__all__ = ["open_sampler", "open_scorer", "open_twice"]

NEEDS = {"hf": ("torch", "transformers"), "llamacpp": ("llama_cpp",)}
PACKAGES = {"llama_cpp": "llama-cpp-python", "compressed_tensors": "compressed-tensors"}
ONE_SIZE = "decodes one sequence at a time in this process and has no other batch size"
ONE_SIZE_HINT = (
    "record llama-server at two values of --parallel, and give the recordings with --one and --other"
)


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


def open_twice(spec: KernelSpec, *, top_k: int) -> Twice:
    """Open a kernel that is run at two batch sizes; raises as `open_scorer`, also where it has but one."""
    if spec.kind == "vllm":
        return AskedTwice(VllmKernel.connect(spec, top_k=top_k), spec.flag)
    if spec.kind == "llamacpp":
        raise UsageError(f"{spec.flag} {spec.kind}:{spec.target}: {ONE_SIZE}", hint=ONE_SIZE_HINT)
    if spec.role is Role.TRAIN:
        return ScoredTwice(_opened(spec), spec.law(), top_k=top_k)
    return Replayed(_opened(spec), top_k=top_k)


def _opened(spec: KernelSpec) -> Any:
    """Return the model of a spec; the modules by these names have one function `open_model`."""
    wanted = NEEDS[spec.kind] + (("compressed_tensors",) if "quantization" in spec.options else ())
    missing = [name for name in wanted if find_spec(name) is None]
    if missing:
        hint = "pip install " + " ".join(PACKAGES.get(name, name) for name in missing)
        raise UsageError(f"{spec.flag}: {spec.kind} needs {' and '.join(missing)}", hint=hint)
    return import_module(f"paritas.collectors.kernels.{spec.kind}").open_model(spec)
