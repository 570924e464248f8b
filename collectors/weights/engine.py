"""How serving engines lay a decoder out over the ranks of tensor parallelism, as pieces.

vLLM and SGLang agree: `qkv_proj` and `gate_up_proj` hold each rank's rows of each part, `o_proj`
and `down_proj` its columns, the vocabulary its rows, norms are copies.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from paritas.collectors.weights.digest import Unknown
from paritas.collectors.weights.fused import Block, gate_up_pieces, qkv_pieces
from paritas.collectors.weights.naming import canonical_name, is_vocabulary
from paritas.collectors.weights.sampling import Piece

__all__ = ["EngineLayout", "engine_pieces"]

BY_COLUMNS = ("o_proj.weight", "down_proj.weight")
BY_ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")


@dataclass(frozen=True, slots=True)
class EngineLayout:
    """Sizes of the model, from its configuration: ``num_attention_heads`` and so on."""

    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int


def engine_pieces(named: Iterable[tuple[str, Block]], layout: EngineLayout) -> list[Piece] | Unknown:
    """Return the pieces of an engine's parameters; `Unknown.LAYOUT` where one has no known shape.

    Parameters
    ----------
    named : iterable of (str, Block)
        As the engine names and stores them.
    layout : EngineLayout
    """
    pieces: list[Piece] = []
    for name, block in named:
        known = canonical_name(name)
        if known:
            parts = _pieces(known, block, layout)
            if not parts:
                return Unknown.LAYOUT
            pieces += parts
    return pieces


def _pieces(name: str, block: Block, layout: EngineLayout) -> list[Piece]:
    if ".qkv_proj." in name:
        sizes = {"heads": layout.heads, "kv_heads": layout.kv_heads, "head_dim": layout.head_dim}
        return qkv_pieces(name, block, **sizes)
    if ".gate_up_proj." in name:
        return gate_up_pieces(name, block, intermediate=layout.intermediate)
    if is_vocabulary(name):
        return [_split(name, block, dim=0)]
    if name.endswith(BY_COLUMNS):
        return [_split(name, block, dim=1)]
    if any(f".{part}." in name for part in BY_ROWS):
        return [_split(name, block, dim=0)]
    return [Piece(name, block.shape, (0,) * len(block.shape), block.shape, block.read)]


def _split(name: str, block: Block, *, dim: int) -> Piece:
    """Return the piece of a tensor that ranks hold equal slices of."""
    whole, offset = list(block.shape), [0] * len(block.shape)
    whole[dim] *= block.tp
    offset[dim] = block.tp_rank * block.shape[dim]
    return Piece(name, tuple(whole), tuple(offset), block.shape, block.read)
