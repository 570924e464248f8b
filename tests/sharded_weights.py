"""A small decoder's weights as numpy arrays, and the ways programs lay them out."""

import itertools

import numpy as np

from paritas.collectors.weights import Block, Piece
from paritas.collectors.weights.naming import canonical_name
from paritas.collectors.weights.sampling import bf16_bits

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, VOCABULARY = 3, 16, 4, 2, 4, 24, 16500


def checkpoint(seed=0):
    """Tensors under the names of a checkpoint, float32 that bfloat16 holds exactly or not, as they come."""
    r = np.random.default_rng(seed)

    def weight(*shape):
        return (r.standard_normal(shape) * 0.02).astype(np.float32)

    out = {
        "model.embed_tokens.weight": weight(VOCABULARY, HIDDEN),
        "model.norm.weight": weight(HIDDEN),
        "lm_head.weight": weight(VOCABULARY, HIDDEN),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for part, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            out[f"{at}.self_attn.{part}_proj.weight"] = weight(heads * HEAD_DIM, HIDDEN)
            out[f"{at}.self_attn.{part}_proj.bias"] = weight(heads * HEAD_DIM)
        out[f"{at}.self_attn.o_proj.weight"] = weight(HIDDEN, HEADS * HEAD_DIM)
        out[f"{at}.mlp.gate_proj.weight"] = weight(INTERMEDIATE, HIDDEN)
        out[f"{at}.mlp.up_proj.weight"] = weight(INTERMEDIATE, HIDDEN)
        out[f"{at}.mlp.down_proj.weight"] = weight(HIDDEN, INTERMEDIATE)
        out[f"{at}.input_layernorm.weight"] = weight(HIDDEN)
    return out


def reader(array):
    return lambda at: bf16_bits(array[at])


def piece(name, whole, offset, held):
    return Piece(canonical_name(name), whole, offset, held.shape, reader(held))


def whole_pieces(weights):
    """One process holds everything."""
    return [piece(name, array.shape, (0,) * array.ndim, array) for name, array in weights.items()]


def cut_pieces(weights, cuts):
    """Ranks that hold slices: `cuts` gives (dimension, places) by name, whatever they are."""
    ranks = [[] for _ in range(max(len(places) + 1 for _, places in cuts.values()))]
    for name, array in weights.items():
        dim, places = cuts[name]
        bounds = [0, *sorted(places), array.shape[dim]]
        for rank, (first, end) in enumerate(itertools.pairwise(bounds)):
            offset = [0] * array.ndim
            offset[dim] = first
            held = np.take(array, np.arange(first, end), axis=dim)
            ranks[rank].append(piece(name, array.shape, tuple(offset), held))
    return ranks


def engine_blocks(weights, tp, *, padding=0):
    """The parameters of each rank as an engine stores them: fused, by rows and columns, padded."""
    return [list(_rank_blocks(weights, tp, rank, padding)) for rank in range(tp)]


def _rank_blocks(weights, tp, rank, padding):
    copies = max(1, tp // KV_HEADS)

    def rows(array, rank=rank, tp=tp):
        return np.split(array, tp, axis=0)[rank]

    def block(array):
        array = np.ascontiguousarray(array)
        return Block(array.shape, reader(array), tp=tp, tp_rank=rank)

    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        yield name, block(rows(np.pad(weights[name], ((0, padding), (0, 0)))))
    yield "model.norm.weight", block(weights["model.norm.weight"])
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for kind in ("weight", "bias"):
            q = rows(weights[f"{at}.self_attn.q_proj.{kind}"])
            k, v = (
                rows(weights[f"{at}.self_attn.{part}_proj.{kind}"], rank // copies, tp // copies)
                for part in "kv"
            )
            yield f"{at}.self_attn.qkv_proj.{kind}", block(np.concatenate([q, k, v]))
        both = [rows(weights[f"{at}.mlp.{part}_proj.weight"]) for part in ("gate", "up")]
        yield f"{at}.mlp.gate_up_proj.weight", block(np.concatenate(both))
        for name in (f"{at}.self_attn.o_proj.weight", f"{at}.mlp.down_proj.weight"):
            yield name, block(np.split(weights[name], tp, axis=1)[rank])
        yield f"{at}.input_layernorm.weight", block(weights[f"{at}.input_layernorm.weight"])
