"""Tensors that a program stores together, taken apart into those of the checkpoint.

Engines put `q`, `k` and `v`, and `gate` and `up`, into one tensor each and give every rank of
tensor parallelism its rows of each part, one part after the other.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritas.collectors.weights.sampling import Indices, Piece

__all__ = ["Block", "gate_up_pieces", "merged_pieces", "qkv_pieces"]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A stored tensor: its shape, how to read it, and which rank of how many holds it.

    Attributes
    ----------
    shape : tuple of int
    read : callable
        As of `Piece`.
    tp, tp_rank : int
        Ranks of tensor parallelism, and which this is.
    """

    shape: tuple[int, ...]
    read: Callable[[Indices], NDArray[np.uint16]]
    tp: int = 1
    tp_rank: int = 0


def qkv_pieces(name: str, block: Block, *, heads: int, kv_heads: int, head_dim: int) -> list[Piece]:
    """Take a ``…qkv_proj.weight`` or ``.bias`` apart; nothing where its shape is not as told.

    With more ranks than key-value heads, ranks hold copies of a head.

    Examples
    --------
    >>> block = Block((8, 4), lambda at: np.zeros(at[0].size, np.uint16), tp=2, tp_rank=1)
    >>> pieces = qkv_pieces("layers.0.self_attn.qkv_proj.weight", block, heads=4, kv_heads=2, head_dim=2)
    >>> [(piece.name.split(".")[3], piece.shape, piece.offset) for piece in pieces]
    [('q_proj', (8, 4), (4, 0)), ('k_proj', (4, 4), (2, 0)), ('v_proj', (4, 4), (2, 0))]
    """
    copies = max(1, block.tp // kv_heads)
    q, kv = heads * head_dim, kv_heads * head_dim
    q_part, kv_part = q // block.tp, kv * copies // block.tp
    kv_start = block.tp_rank // copies * kv_part
    parts = (
        ("q_proj", q, block.tp_rank * q_part, q_part),
        ("k_proj", kv, kv_start, kv_part),
        ("v_proj", kv, kv_start, kv_part),
    )
    return list(merged_pieces(name, "qkv_proj", block, parts))


def gate_up_pieces(name: str, block: Block, *, intermediate: int) -> list[Piece]:
    """Take a ``…gate_up_proj.weight`` apart; nothing where its shape is not as told."""
    part = intermediate // block.tp
    start = block.tp_rank * part
    parts = (("gate_proj", intermediate, start, part), ("up_proj", intermediate, start, part))
    return list(merged_pieces(name, "gate_up_proj", block, parts))


def merged_pieces(
    name: str, fused: str, block: Block, parts: tuple[tuple[str, int, int, int], ...]
) -> Iterator[Piece]:
    """Take rows apart: each part is (name, rows of the whole, first row held, rows held)."""
    if block.shape[0] != sum(held for *_, held in parts):
        return
    first = 0
    rest = block.shape[1:]
    for part, rows, start, held in parts:
        yield Piece(
            name.replace(fused, part),
            (rows, *rest),
            (start, *(0 for _ in rest)),
            (held, *rest),
            _Rows(block.read, first),
        )
        first += held


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Reads a part that begins at a row of the stored tensor."""

    read: Callable[[Indices], NDArray[np.uint16]]
    first: int

    def __call__(self, indices: Indices) -> NDArray[np.uint16]:
        return self.read((indices[0] + self.first, *indices[1:]))
