"""Variants of a loaded model: fewer bits in weights and activations, or in the key-value cache.

Weights and activations are quantised by compressed-tensors, the library in whose format
llm-compressor writes GPTQ, AWQ and float8 checkpoints and from which vLLM loads them.  Here it
rounds the numbers and computes in the model's dtype, which runs on every device.  A checkpoint
that is quantised already needs none of this: transformers loads it as it is.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from paritas.collectors.kernels.spec import KernelSpec
from paritas.collectors.torch.backend import pytorch
from paritas.errors import UsageError

__all__ = ["in_float8", "quantized"]

E4M3_MOST = 448.0  # the largest number of float8 e4m3
GROUP = 32  # weights that share a scale where weights have 4 bits; every hidden size is a multiple of it

# Names of the schemes of compressed-tensors: e4m3 weights by channel and activations by token;
# the same in int8; 4-bit weights in groups with a zero point.  Rounded to nearest, no calibration.
SCHEMES: Mapping[str, str] = {"fp8_e4m3": "FP8_DYNAMIC", "int8": "W8A8", "int4": "W4A16_ASYM"}


def quantized(model: Any, spec: KernelSpec) -> Any:
    """Quantise every linear layer but the head, as rollout engines do.

    Raises
    ------
    UsageError
        The checkpoint is quantised already, or a layer does not divide into groups.
    """
    if getattr(model.config, "quantization_config", None) is not None:
        hint = "leave quantization=… out: the checkpoint is loaded as it was quantised"
        raise UsageError(f"{spec.flag} {spec.target}: is quantised already", hint=hint)
    _check_widths(model, spec)
    library = import_module("compressed_tensors.quantization")
    helpers = import_module("compressed_tensors.quantization.utils")
    library.apply_quantization_config(model, _config(library, spec.options["quantization"]))
    for module in model.modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is not None:
            _round_weights(module, scheme.weights, helpers.calculate_qparams)
            module.quantization_status = (
                library.QuantizationStatus.COMPRESSED
            )  # rounded once, not in each pass
    return model


def _config(library: Any, name: str) -> Any:
    scheme = library.preset_name_to_scheme(SCHEMES[name], ["Linear"])
    if scheme.weights.group_size:
        scheme.weights.group_size = GROUP
    return library.QuantizationConfig(
        config_groups={"all": scheme}, ignore=["lm_head"], quantization_status="frozen"
    )


def _check_widths(model: Any, spec: KernelSpec) -> None:
    """Weights of 4 bits share scales in groups; the others by channel, of any width."""
    if spec.options["quantization"] != "int4":
        return
    linear = pytorch().nn.Linear
    widths = (m.in_features for n, m in model.named_modules() if isinstance(m, linear) and n != "lm_head")
    odd = next((width for width in widths if width % GROUP), None)
    if odd is not None:
        message = f"{spec.flag} {spec.target}: a layer of width {odd} does not divide into groups of {GROUP}"
        raise UsageError(message, hint="quantization=fp8_e4m3 and int8 take every width")


def _round_weights(module: Any, arguments: Any, calculate: Any) -> None:
    """Round the weights, each channel or group of a channel scaled by its smallest and largest."""
    weight = module.weight.data
    width = arguments.group_size or weight.shape[-1]
    rows = weight.unflatten(-1, (-1, width))
    scale, zero = calculate(rows.amin(-1), rows.amax(-1), arguments)
    quantization = import_module("compressed_tensors.quantization")
    module.weight.data = quantization.fake_quantize(weight, scale, zero, arguments)


def in_float8(cache: Any) -> Any:
    """Make a key-value cache hold float8 e4m3 at scale 1, as engines do without calibrated scales.

    transformers ships caches of 2 and 4 bits only, so this one rounds by hand: what is stored,
    and read back by attention, went through e4m3.
    """
    update = cache.update

    def rounding(keys: Any, values: Any, *rest: Any, **named: Any) -> Any:
        return update(_e4m3(keys), _e4m3(values), *rest, **named)

    cache.update = rounding
    return cache


def _e4m3(states: Any) -> Any:
    """Round; numbers beyond the largest become the largest, as in engines, not NaN."""
    return states.clamp(-E4M3_MOST, E4M3_MOST).to(pytorch().float8_e4m3fn).to(states.dtype)
