"""Names of one tensor in different programs, and what is not looked at."""

import pytest

from paritas.collectors.weights.naming import canonical_name, is_vocabulary, layer_of

SAME = {
    "layers.3.mlp.up_proj.weight": [
        "model.layers.3.mlp.up_proj.weight",
        "module.module.model.layers.3.mlp.up_proj.weight",
        "_fsdp_wrapped_module.model.layers.3._fsdp_wrapped_module.mlp.up_proj.weight",
        "_orig_mod.model.layers.3._checkpoint_wrapped_module.mlp.up_proj.weight",
        "base_model.model.model.layers.3.mlp.up_proj.base_layer.weight",
        "model.language_model.layers.3.mlp.up_proj.weight",
        "language_model.model.layers.3.mlp.up_proj.weight",
    ],
    "lm_head.weight": ["lm_head.weight", "base_model.model.lm_head.weight", "language_model.lm_head.weight"],
    "norm.weight": ["model.norm.weight", "model.language_model.norm.weight"],
    "": [
        "model.layers.0.mlp.experts.0.up_proj.weight",
        "model.layers.0.self_attn.q_proj.lora_A.default.weight",
        "model.layers.0.self_attn.q_proj.weight_scale",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.visual.layers.0.mlp.up_proj.weight",
        "model.layers.0.self_attn.kv_a_proj_with_mqa.weight",
        "score.weight",
    ],
}


@pytest.mark.parametrize(
    ("known", "name"), [(known, name) for known, names in SAME.items() for name in names]
)
def test_canonical_name(known, name):
    assert canonical_name(name) == known


def test_layers_and_vocabulary():
    assert layer_of("layers.11.mlp.up_proj.weight") == 11
    assert layer_of("norm.weight") is None
    assert is_vocabulary("lm_head.weight")
    assert not is_vocabulary("norm.weight")
