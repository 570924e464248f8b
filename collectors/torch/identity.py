"""Which training kernel this is: everything PyTorch, the model and its wrappers tell, and where.

What is not told stays absent.  Names that `KernelIdentity` lacks become ``extra.*``.
"""

import importlib.metadata
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from paritas.collectors.identity import Read, kernel_of, look, merged
from paritas.collectors.torch.backend import pytorch
from paritas.records import KernelIdentity, Role

__all__ = ["read_training_kernel", "trainer_kernel", "training_kernel"]

# Libraries whose version changes what is computed.
LIBRARIES = ("transformers", "trl", "flash_attn", "triton", "peft", "accelerate", "deepspeed", "bitsandbytes")
# Variables that do the same; read by name only.
VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NVIDIA_TF32_OVERRIDE",
    "TORCHINDUCTOR_BATCH_INVARIANT",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)


def training_kernel(model: Any, environ: Mapping[str, str], *, parallel: Any = None) -> KernelIdentity:
    """Return the record of what `read_training_kernel` reads."""
    return kernel_of(Role.TRAIN, read_training_kernel(model, environ, parallel=parallel))


def trainer_kernel(trainer: Any, environ: Mapping[str, str]) -> KernelIdentity:
    """Return the kernel of a Trainer of transformers or TRL, whose precision is not all in its model."""
    model = getattr(trainer, "model_wrapped", None) or trainer.model
    own = {
        "mixed_precision": look(lambda: _mixed(trainer), "trainer.accelerator.mixed_precision"),
        "liger": look(lambda: trainer.args.use_liger_kernel or None, "trainer.args.use_liger_kernel"),
        "micro_batch": look(
            lambda: trainer.args.per_device_train_batch_size, "trainer.args.per_device_train_batch_size"
        ),
    }
    return kernel_of(Role.TRAIN, merged(own, read_training_kernel(model, environ)))


def _mixed(trainer: Any) -> str | None:
    told = str(trainer.accelerator.mixed_precision)
    return None if told == "no" else told


def read_training_kernel(model: Any, environ: Mapping[str, str], *, parallel: Any = None) -> dict[str, Read]:
    """Read everything that identifies the kernel; never raises, never touches the device.

    Parameters
    ----------
    model : torch.nn.Module
        As the trainer calls it, wrappers included.
    environ : mapping, such as ``os.environ``
    parallel : object or None
        What knows the sizes of parallelism, such as Megatron's configuration or a device mesh.
    """
    inner = unwrapped(model)
    return merged(
        _of_program(model),
        _of_model(inner),
        _of_wrappers(model),
        _of_numerics(),
        _of_device(model),
        _of_parallel(parallel),
        {f"env.{name}": look(_get(environ, name), f"environ[{name}]") for name in VARIABLES},
        {f"lib.{name}": look(_version(name), f"importlib.metadata {name}") for name in LIBRARIES},
    )


def unwrapped(model: Any) -> Any:
    """Return the module inside data parallelism and torch.compile, whose `config` is the model's."""
    for _ in range(8):  # wrappers are few; a ring of them is no model
        inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if inner is None:
            return model
        model = inner
    return model


def _get(environ: Mapping[str, str], name: str) -> Callable[[], str | None]:
    return partial(environ.get, name)


def _version(name: str) -> Callable[[], str]:
    return lambda: importlib.metadata.version(name)


def _of_program(model: Any) -> dict[str, Read | None]:
    torch = pytorch()
    engine = "fsdp" if _fsdp_of(model) else "torch"
    return {
        "engine": Read(engine, "type(model).__mro__"),
        "engine_version": look(lambda: str(torch.__version__), "torch.__version__"),
        "cuda": look(lambda: torch.version.cuda, "torch.version.cuda"),
        "cudnn": look(torch.backends.cudnn.version, "torch.backends.cudnn.version()"),
    }


def _of_model(inner: Any) -> dict[str, Read | None]:
    config = "model.config"
    return {
        "dtype": look(lambda: _dtype(inner), "next(model.parameters()).dtype"),
        "attention_backend": look(
            lambda: inner.config._attn_implementation,  # noqa: SLF001 -- the only place it is told
            f"{config}._attn_implementation",
        ),
        "quantization": look(
            lambda: _method(inner.config.quantization_config), f"{config}.quantization_config"
        ),
        "lm_head_dtype": look(lambda: _head_dtype(inner), "model.get_output_embeddings().weight.dtype"),
        "architecture": look(lambda: inner.config.architectures[0], f"{config}.architectures"),
        "tied_embeddings": look(lambda: inner.config.tie_word_embeddings, f"{config}.tie_word_embeddings"),
        "rope": look(lambda: _rope(inner.config), f"{config}.rope_parameters"),
        "training_mode": look(lambda: inner.training, "model.training"),
    }


def _dtype(module: Any) -> str:
    return name_of(next(module.parameters()).dtype)


def _head_dtype(module: Any) -> str:
    return name_of(module.get_output_embeddings().weight.dtype)


def name_of(dtype: Any) -> str:
    """Return a dtype's name as configurations write it, such as ``bfloat16``."""
    return str(dtype).removeprefix("torch.")


def _method(quantization: Any) -> str:
    told = quantization if isinstance(quantization, dict) else quantization.to_dict()
    method = str(told["quant_method"])
    return f"{method}-{told['bits']}bit" if told.get("bits") else method


def _rope(config: Any) -> str | None:
    """Return how positions are turned: a changed base or scale changes every later token."""
    told = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(told, dict):
        return None
    return ",".join(f"{name}={told[name]}" for name in sorted(told) if not isinstance(told[name], dict))


def _of_wrappers(model: Any) -> dict[str, Read | None]:
    torch = pytorch()
    return {
        "compile": look(lambda: True if hasattr(model, "_orig_mod") else None, "model._orig_mod"),
        "fsdp": look(partial(_fsdp_of, model), "type(model).__mro__"),
        "fsdp.param_dtype": look(lambda: name_of(_policy(model).param_dtype), "MixedPrecision policy"),
        "fsdp.reduce_dtype": look(lambda: name_of(_policy(model).reduce_dtype), "MixedPrecision policy"),
        "autocast": look(lambda: _autocast(torch), "torch.is_autocast_enabled"),
    }


def _fsdp_of(model: Any) -> str | None:
    names = {cls.__name__ for cls in type(model).__mro__}
    if "FullyShardedDataParallel" in names:
        return "1"
    return "2" if "FSDPModule" in names else None


def _policy(model: Any) -> Any:
    """Return the mixed-precision policy of FSDP 1, or of FSDP 2, which keeps it in private state."""
    if _fsdp_of(model) == "1":
        return model.mixed_precision
    return model._get_fsdp_state()._mp_policy  # noqa: SLF001 -- FSDP 2 tells it nowhere else


def _autocast(torch: Any) -> str | None:
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            return name_of(torch.get_autocast_dtype(device))
    return None


def _of_numerics() -> dict[str, Read | None]:
    torch = pytorch()
    matmul = torch.backends.cuda.matmul
    where = "torch.backends.cuda.matmul"
    deterministic = torch.are_deterministic_algorithms_enabled
    return {
        "deterministic": look(deterministic, "torch.are_deterministic_algorithms_enabled()"),
        "float32_matmul_precision": look(
            torch.get_float32_matmul_precision, "torch.get_float32_matmul_precision()"
        ),
        "tf32": look(lambda: matmul.fp32_precision, f"{where}.fp32_precision"),
        "bf16_reduced_reduction": look(
            lambda: bool(matmul.allow_bf16_reduced_precision_reduction),
            f"{where}.allow_bf16_reduced_precision_reduction",
        ),
        "fp16_reduced_reduction": look(
            lambda: bool(matmul.allow_fp16_reduced_precision_reduction),
            f"{where}.allow_fp16_reduced_precision_reduction",
        ),
        "cudnn.deterministic": look(
            lambda: torch.backends.cudnn.deterministic, "torch.backends.cudnn.deterministic"
        ),
        "cudnn.benchmark": look(lambda: torch.backends.cudnn.benchmark, "torch.backends.cudnn.benchmark"),
        "batch_invariant": look(_batch_invariant, "torch._inductor.config.batch_invariant"),
    }


def _batch_invariant() -> bool | None:
    """Return the switch of the compiler where it has been loaded; loading it here would take seconds."""
    config = sys.modules.get("torch._inductor.config")
    told = getattr(config, "batch_invariant", None)
    return told if isinstance(told, bool) else None


def _of_device(model: Any) -> dict[str, Read | None]:
    torch = pytorch()
    return {
        "device": look(lambda: next(model.parameters()).device.type, "next(model.parameters()).device"),
        "gpu": look(
            lambda: torch.cuda.get_device_name() if torch.cuda.is_initialized() else None,
            "torch.cuda.get_device_name()",
        ),
        "gpu_uuid": look(
            lambda: _uuid(torch) if torch.cuda.is_initialized() else None,
            "torch.cuda.get_device_properties().uuid",
        ),
        "compute_capability": look(
            lambda: _capability(torch) if torch.cuda.is_initialized() else None,
            "torch.cuda.get_device_capability()",
        ),
    }


def _uuid(torch: Any) -> str:
    """Return the UUID as NVML writes it."""
    return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"


def _capability(torch: Any) -> str:
    return ".".join(str(part) for part in torch.cuda.get_device_capability())


def _of_parallel(parallel: Any) -> dict[str, Read | None]:
    """Sizes of parallelism from Megatron's names, or from the dimensions of a device mesh."""
    megatron = {
        "tp": "tensor_model_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "ep": "expert_model_parallel_size",
    }
    told = {name: look(_attribute(parallel, field), f"parallel.{field}") for name, field in megatron.items()}
    mesh = {
        name: look(_mesh_size(parallel, name), f"device_mesh[{name!r}].size()") for name in ("tp", "pp", "ep")
    }
    return {name: told[name] or mesh[name] for name in megatron}


def _attribute(owner: Any, name: str) -> Callable[[], Any]:
    return lambda: getattr(owner, name)


def _mesh_size(mesh: Any, name: str) -> Callable[[], Any]:
    def size() -> Any:
        return mesh[name].size()

    return size
