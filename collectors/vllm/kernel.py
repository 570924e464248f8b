"""Which inference kernel this is: what `VllmConfig`, the environment and a worker tell, and where.

What is not told stays absent.  A field that a version of vLLM does not have is not told.
"""

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from paritas.collectors.identity import Read, kernel_of, look, merged
from paritas.collectors.openai.engines import LOGITS_MODES, VLLM_MODES, Engine, EngineFacts
from paritas.records import LogprobSemantics, Role

__all__ = ["engine_facts", "read_config", "read_worker"]

# Libraries whose version changes what is computed.
LIBRARIES = ("torch", "flashinfer-python", "flash-attn", "triton", "deep-gemm", "xformers")
# Variables that do the same; read by name only.
VARIABLES = (
    "VLLM_USE_V2_MODEL_RUNNER",
    "VLLM_USE_FLASHINFER_SAMPLER",
    "VLLM_FLASH_ATTN_VERSION",
    "VLLM_ALLREDUCE_USE_SYMM_MEM",
    "VLLM_USE_TRITON_FLASH_ATTN",
    "NCCL_ALGO",
    "NCCL_PROTO",
)
# Fields of VllmConfig by the name they get; the first path that is there counts (older names after newer).
PATHS: Mapping[str, tuple[str, ...]] = {
    "quantization": ("model_config.quantization",),
    "kv_cache_dtype": ("cache_config.cache_dtype",),
    "attention_backend": ("attention_config.backend",),
    "lm_head_dtype": ("model_config.head_dtype",),
    "tp": ("parallel_config.tensor_parallel_size",),
    "pp": ("parallel_config.pipeline_parallel_size",),
    "prefix_caching": ("cache_config.enable_prefix_caching",),
    "chunked_prefill": (
        "scheduler_config.enable_chunked_prefill",
        "scheduler_config.chunked_prefill_enabled",
    ),
    "speculative": ("speculative_config.method",),
    "dtype": ("model_config.dtype",),
    "model": ("model_config.model",),
    "revision": ("model_config.revision",),
    "logprobs_mode": ("model_config.logprobs_mode",),
    "cascade_off": ("model_config.disable_cascade_attn",),
    "fp64_gumbel": ("model_config.use_fp64_gumbel",),
    "dp": ("parallel_config.data_parallel_size",),
    "custom_all_reduce_off": ("parallel_config.disable_custom_all_reduce",),
    "max_num_seqs": ("scheduler_config.max_num_seqs",),
    "max_num_batched_tokens": ("scheduler_config.max_num_batched_tokens",),
    "async_scheduling": ("scheduler_config.async_scheduling",),
    "compilation": ("compilation_config.mode", "compilation_config.level"),
    "cudagraph_mode": ("compilation_config.cudagraph_mode",),
    "speculative_tokens": ("speculative_config.num_speculative_tokens",),
    "device": ("device_config.device_type",),
}


def engine_facts(
    config: Any, environ: Mapping[str, str], *, worker: Mapping[str, str] | None = None
) -> EngineFacts:
    """Return what is known of an engine, for the records and for what its numbers mean.

    Parameters
    ----------
    config : vllm.config.VllmConfig
    environ : mapping, such as ``os.environ``
    worker : mapping or None
        What `read_worker` told in a worker's process; it resolved what is ``auto`` here.
    """
    reads = merged(
        {name: Read(value, f"worker {name}") for name, value in (worker or {}).items() if value},
        read_config(config, environ),
    )
    kernel = kernel_of(Role.INFERENCE, reads)
    mode = kernel.extra.get("logprobs_mode", "")
    semantics = VLLM_MODES.get(mode, LogprobSemantics.UNKNOWN)
    return EngineFacts(Engine.VLLM, kernel, semantics, are_logits=mode in LOGITS_MODES)


def read_config(config: Any, environ: Mapping[str, str]) -> dict[str, Read]:
    """Read everything that identifies the kernel; never raises, never touches a device."""
    return merged(
        {"engine": Read("vllm", "this process")},
        {"engine_version": look(_version_of_vllm, "vllm.__version__")},
        {name: _first(config, paths) for name, paths in PATHS.items()},
        {
            "attention_backend": look(_get(environ, "VLLM_ATTENTION_BACKEND"), "environ"),
            "batch_invariant": look(lambda: environ.get("VLLM_BATCH_INVARIANT", "0") == "1", "environ"),
            "cuda_graphs": look(lambda: _graphs(config), "compilation_config.cudagraph_mode"),
            "ep": look(lambda: _experts(config), "parallel_config.enable_expert_parallel"),
        },
        {f"env.{name}": look(_get(environ, name), f"environ[{name}]") for name in VARIABLES},
        {f"lib.{name}": look(_library(name), f"importlib.metadata {name}") for name in LIBRARIES},
    )


def read_worker(worker: Any) -> dict[str, str]:
    """Read, in a worker's process, what only it has resolved."""
    layers = worker.vllm_config.compilation_config.static_forward_context
    told = merged(
        {
            "attention_backend": look(lambda: _backend(layers), "static_forward_context"),
            "gpu": look(_gpu, "torch.cuda.get_device_name"),
        }
    )
    return {name: str(read.value) for name, read in told.items()}


def _backend(layers: Mapping[str, Any]) -> str:
    """Names of the attention backends of all layers, usually one."""
    backends = [layer.get_attn_backend() for layer in layers.values() if hasattr(layer, "get_attn_backend")]
    backends += [layer.attn_backend for layer in layers.values() if hasattr(layer, "attn_backend")]
    return "+".join(sorted({str(backend.get_name()) for backend in backends}))


def _gpu() -> str:
    torch = importlib.import_module("torch")
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else ""


def _first(config: Any, paths: tuple[str, ...]) -> Read | None:
    for path in paths:
        if (read := look(partial(_at, config, path), f"VllmConfig.{path}")) is not None:
            return read
    return None


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = getattr(value, name)
    value = getattr(value, "name", value)  # an enumeration by its name
    if value is None or isinstance(value, bool | int):
        return value
    return str(value).removeprefix("torch.")


def _graphs(config: Any) -> bool:
    mode = getattr(config.compilation_config, "cudagraph_mode", None)
    if mode is None:
        return not config.model_config.enforce_eager
    return str(getattr(mode, "name", mode)) != "NONE"


def _experts(config: Any) -> int | None:
    parallel = config.parallel_config
    if not parallel.enable_expert_parallel:
        return None
    return int(parallel.tensor_parallel_size) * int(parallel.data_parallel_size)


def _version_of_vllm() -> str:
    return str(importlib.import_module("vllm").__version__)


def _get(environ: Mapping[str, str], name: str) -> Callable[[], str | None]:
    return partial(environ.get, name)


def _library(name: str) -> Callable[[], str]:
    return lambda: importlib.metadata.version(name)
