"""The weights digest of a PyTorch model, whole or as this rank's part of it.

Call it after an optimiser step or while weights are sent to the engine: reading some thousand
elements from a GPU waits for the device, which the capture of a step never does.
"""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.torch.backend import Tensor, pytorch
from paritas.collectors.torch.identity import unwrapped
from paritas.collectors.weights.digest import Digest, Unknown, digest_of
from paritas.collectors.weights.fused import Block, gate_up_pieces, qkv_pieces
from paritas.collectors.weights.naming import canonical_name
from paritas.collectors.weights.sampling import Indices, Piece, SamplePlan, bf16_bits, sample

__all__ = ["block_of", "local_of", "model_pieces", "named_blocks", "text_config", "weights_digest"]

USUAL = SamplePlan()
Reader = Callable[[Tensor], Callable[[Indices], NDArray[np.uint16]]]


def weights_digest(model: Any, *, plan: SamplePlan = USUAL) -> Digest:
    """Digest the weights of a model; `Unknown` with its reason where this process cannot.

    Parameters
    ----------
    model : torch.nn.Module
        With a configuration in the manner of transformers: `num_hidden_layers` must be there.
    plan : SamplePlan
        The same as on the other side.
    """
    try:
        config = text_config(unwrapped(model).config)
        pieces = model_pieces(model)
        if isinstance(pieces, Unknown):
            return Digest(unknown=pieces)
        return digest_of(sample(plan, pieces), layers=int(config.num_hidden_layers))
    except Exception:  # noqa: BLE001 -- the edge to somebody else's model: unknown is an answer
        return Digest(unknown=Unknown.LAYOUT)


def text_config(config: Any) -> Any:
    """Return the part of a configuration that is of the decoder."""
    return getattr(config, "text_config", None) or config


def model_pieces(model: Any, *, reader: Reader | None = None) -> list[Piece] | Unknown:
    """Return what this process holds, in the checkpoint's names, or why that cannot be told.

    Parameters
    ----------
    model : torch.nn.Module
    reader : callable or None
        Makes, from a stored tensor, what reads its elements; None reads them at once.
    """
    config = text_config(unwrapped(model).config)
    pieces: list[Piece] = []
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            return Unknown.ADAPTERS
        if "_flat_param" in name:
            return Unknown.LAYOUT
        known = canonical_name(name)
        if known:
            parts = _pieces(known, parameter, config, reader or _Elements)
            if isinstance(parts, Unknown):
                return parts
            pieces += parts
    return pieces


def _pieces(name: str, parameter: Tensor, config: Any, reader: Reader) -> list[Piece] | Unknown:
    torch = pytorch()
    if parameter.dtype not in (torch.float32, torch.bfloat16):
        return Unknown.DTYPE
    if not parameter.numel():  # ZeRO 3 leaves an empty tensor where its own rank holds a shard
        return Unknown.PARTS
    whole, local = tuple(parameter.shape), parameter
    offset: tuple[int, ...] = (0,) * len(whole)
    if hasattr(parameter, "placements"):
        local = local_of(parameter)
        offset = _offset(parameter)
    read = reader(parameter)
    if ".qkv_proj." in name or ".gate_up_proj." in name:
        return _fused(name, Block(whole, read), config) if offset == (0,) * len(whole) else Unknown.LAYOUT
    return [Piece(name, whole, offset, tuple(local.shape), read)]


def local_of(parameter: Tensor) -> Tensor:
    """Return what this rank holds of a parameter."""
    return parameter.to_local() if hasattr(parameter, "placements") else parameter


def _offset(parameter: Tensor) -> tuple[int, ...]:
    """Return where this rank's block of a DTensor begins, uneven shards included."""
    layout = importlib.import_module("torch.distributed.tensor._utils")
    _, offset = layout.compute_local_shape_and_global_offset(
        parameter.shape, parameter.device_mesh, parameter.placements
    )
    return tuple(int(start) for start in offset)


def _fused(name: str, block: Block, config: Any) -> list[Piece] | Unknown:
    """Take apart what some models fuse themselves."""
    if ".qkv_proj." in name:
        heads = int(config.num_attention_heads)
        head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
        parts = qkv_pieces(name, block, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    else:
        parts = gate_up_pieces(name, block, intermediate=int(config.intermediate_size))
    return parts or Unknown.LAYOUT


def block_of(tensor: Tensor, *, tp: int = 1, tp_rank: int = 0) -> Block:
    """Return a stored tensor as a `Block` for `paritas.collectors.weights.engine_pieces`."""
    return Block(tuple(tensor.shape), _Elements(tensor), tp=tp, tp_rank=tp_rank)


@dataclass(frozen=True, slots=True, eq=False)
class _Elements:
    """Reads single elements of a tensor as bfloat16 patterns; only they leave the device."""

    tensor: Tensor

    def __call__(self, indices: Indices) -> NDArray[np.uint16]:
        torch = pytorch()
        with torch.no_grad():
            tensor = local_of(self.tensor.detach())
            at = tuple(torch.as_tensor(index, device=tensor.device) for index in indices)
            return bf16_bits(tensor[at].float().cpu().numpy())


def named_blocks(model: Any, *, tp: int = 1, tp_rank: int = 0) -> Iterator[tuple[str, Block]]:
    """Return an engine's parameters as `engine_pieces` takes them."""
    for name, parameter in model.named_parameters():
        yield name, block_of(parameter, tp=tp, tp_rank=tp_rank)
