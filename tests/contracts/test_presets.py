import math

import pytest

from paritas.contracts.lint import lint
from paritas.contracts.load import load_preset, preset_names, preset_text
from paritas.records import State

NAMES = (
    "bitwise",
    "dense-bf16",
    "fp16",
    "fp32",
    "fp8-rollout",
    "int4",
    "lora",
    "moe-bf16",
    "moe-bf16-replay",
    "rl-on-policy",
)

# Worst kind of prompt in the recordings the presets cite: mean TV of its sequences.
WORST_MEASURED_TV = {
    "dense-bf16": 0.02619,
    "fp16": 0.003205,
    "fp32": 3.6e-6,
    "int4": 0.038936,
    "fp8-rollout": 0.105942,
}


def test_the_presets_are_these() -> None:
    assert preset_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_sound_and_says_where_each_limit_comes_from(name: str) -> None:
    preset = load_preset(name)
    assert preset.name == name
    assert lint(preset) == ()
    assert all(len(clause.source) > 20 for clause in preset.clauses)
    assert preset_text(name).startswith("# ")
    assert [s.name for s in preset.slices] == ["all", "prompt", "replica"]
    assert {"token-tv", "ratio-tail", "mean-ratio", "law", "paired", "finite", "missing"} <= {
        c.id for c in preset.clauses
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_answers_violations_and_silence(name: str) -> None:
    rules = load_preset(name).escalation
    kinds = {
        (rule.when.family, rule.when.clause): [a.kind for level in rule.levels for a in level.actions]
        for rule in rules
    }
    assert kinds[("numerical", "statistical"), ()] == ["notify", "reroute"]
    assert kinds[(), ("finite",)] == ["drain", "page"]
    assert kinds[("observability",), ()] == ["notify", "block_promotion"]
    assert any(State.NO_DATA in rule.when.state for rule in rules)


@pytest.mark.parametrize(("name", "worst"), WORST_MEASURED_TV.items())
def test_a_limit_leaves_half_again_above_the_worst_healthy_measurement(name: str, worst: float) -> None:
    limit = load_preset(name).clause("token-tv").at_most
    assert limit is not None
    assert limit >= 1.5 * worst


def test_coarser_formats_have_wider_limits() -> None:
    order = ["bitwise", "fp32", "fp16", "dense-bf16", "lora", "int4", "moe-bf16", "fp8-rollout"]
    limits = [load_preset(name).clause("token-tv").at_most or math.nan for name in order]
    assert limits == sorted(limits)


def test_an_unknown_preset_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        preset_text("../presets/fp16")
