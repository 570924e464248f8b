"""What a tensor is called in a checkpoint, whatever a program wrapped around the model."""

import re

__all__ = ["canonical_name", "is_vocabulary", "layer_of"]

# Put in front of or inside a name by data parallelism, FSDP, torch.compile, checkpointing and PEFT.
WRAPPERS = (
    "_fsdp_wrapped_module.",
    "_checkpoint_wrapped_module.",
    "_orig_mod.",
    "base_model.model.",
    "base_layer.",
)
OUTER = re.compile(r"^(?:module\.)+")
LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
ENDS = ("embed_tokens.weight", "norm.weight", "lm_head.weight")
# Only what programs agree upon: a name that one of them makes up would make equal weights differ.
WITHIN = re.compile(
    r"layers\.\d+\."
    r"(?:self_attn\.(?:(?:q|k|v|o|qkv)_proj\.(?:weight|bias)|[qk]_norm\.weight)"
    r"|mlp\.(?:gate|up|down|gate_up)_proj\.(?:weight|bias)"
    r"|(?:input|post_attention|pre_feedforward|post_feedforward)_layernorm\.weight)"
)
OTHER_TOWERS = re.compile(r"vision|visual|audio|image")


def canonical_name(name: str) -> str:
    """Return the part of a name that all programs share; empty for a tensor that is not looked at.

    Examples
    --------
    >>> canonical_name("module._fsdp_wrapped_module.model.layers.3._orig_mod.mlp.up_proj.weight")
    'layers.3.mlp.up_proj.weight'
    >>> canonical_name("base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight")
    'layers.0.self_attn.q_proj.weight'
    >>> canonical_name("model.embed_tokens.weight"), canonical_name("model.vision.layers.0.a.weight")
    ('embed_tokens.weight', '')
    """
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    name = OUTER.sub("", name)
    if OTHER_TOWERS.search(name):
        return ""
    layer = LAYER.search(name)
    if layer is None:
        return next((end for end in ENDS if name == end or name.endswith("." + end)), "")
    inside = name[layer.start() :].lstrip(".")
    return inside if WITHIN.fullmatch(inside) else ""


def layer_of(name: str) -> int | None:
    """Return the layer of a canonical name; None outside of the layers.

    Examples
    --------
    >>> layer_of("layers.3.mlp.up_proj.weight"), layer_of("norm.weight")
    (3, None)
    """
    layer = LAYER.search(name)
    return int(layer[1]) if layer else None


def is_vocabulary(name: str) -> bool:
    """Whether a canonical name is of a tensor with one row a token; engines pad these at the end."""
    return name in ("embed_tokens.weight", "lm_head.weight")
