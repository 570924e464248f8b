"""The shipped presets: each is sound and says where its limits come from."""

import math
import re

import pytest

from paritas.contracts.bounds import (
    tail_from_k3,
    tail_from_log_difference,
    tail_from_multiplicative_error,
    tv_from_kl,
    tv_from_log_difference,
    tv_from_multiplicative_error,
)
from paritas.contracts.catalogue import CATALOGUE
from paritas.contracts.lint import lint
from paritas.contracts.load import load_preset, preset_names, preset_summary, preset_text
from paritas.contracts.model import Stage
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
    "nemo-rl-bf16",
    "nemo-rl-deepscaler",
    "nemo-rl-fp8-kv-cache",
    "nemo-rl-fp8-rollout",
    "nemo-rl-guide",
    "nemo-rl-lora",
    "nemo-rl-moe",
    "nemo-rl-moe-replay",
    "nemo-rl-nemotron",
    "nemo-rl-nvfp4-w4a16",
    "nemo-rl-nvfp4-w4a4",
    "prime-rl-merge-bar",
    "rl-on-policy",
    "skyrl-ci",
    "slime-ci",
    "verl-docs",
)

# What a peer publishes: E exp|ell|, k3, E|ell|. A clause may never be tighter than what these imply,
# or it would accuse a run that keeps the peer's own limit.
PUBLISHED = {
    "nemo-rl-bf16": (1.1, None, None),
    "nemo-rl-deepscaler": (1.05, 5e-4, None),
    "nemo-rl-fp8-kv-cache": (2.0, None, None),
    "nemo-rl-fp8-rollout": (1.1, 4e-3, None),
    "nemo-rl-guide": (1.05, 1e-3, None),
    "nemo-rl-lora": (None, 2e-3, None),
    "nemo-rl-moe": (None, 2e-3, None),
    "nemo-rl-moe-replay": (1.02, None, None),
    "nemo-rl-nemotron": (1.1, 2e-2, None),
    "nemo-rl-nvfp4-w4a16": (1.05, 3e-2, None),
    "nemo-rl-nvfp4-w4a4": (1.15, 1e-1, None),
    "prime-rl-merge-bar": (None, 1.5e-2, None),
    "skyrl-ci": (None, None, 0.05),
    "slime-ci": (None, None, 0.1),
    "verl-docs": (None, 0.1, None),
}

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


def _implied(published: tuple[float | None, float | None, float | None], above: float) -> tuple[float, float]:
    """The largest total variation and tail share that keep a peer's limits."""
    error, k3, difference = published
    tv, tail = [1.0], [1.0]
    if error is not None:
        tv.append(float(tv_from_multiplicative_error(error)))
        tail.append(float(tail_from_multiplicative_error(error, above)))
    if k3 is not None:
        tv.append(float(tv_from_kl(k3)))
        tail.append(float(tail_from_k3(k3, above)))
    if difference is not None:
        tv.append(float(tv_from_log_difference(difference)))
        tail.append(float(tail_from_log_difference(difference, above)))
    return min(tv), min(tail)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_peer_preset_is_as_wide_as_the_peer_and_no_wider(name: str) -> None:
    preset = load_preset(name)
    tail = preset.clause("ratio-tail")
    for clause, implied in zip(
        (preset.clause("token-tv"), tail), _implied(PUBLISHED[name], tail.above or 2.0), strict=True
    ):
        assert implied * (1 - 1e-9) <= (clause.at_most or math.nan) <= 1.01 * implied


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_peer_preset_says_of_every_own_limit_which_version_of_what_it_was_read_from(name: str) -> None:
    preset, base = load_preset(name), load_preset(load_preset(name).preset)
    own = [c for c in preset.clauses if c not in base.clauses]
    assert len(own) >= 3
    for clause in own:
        assert re.search(r"https://github\.com/[\w-]+/[\w-]+/tree/[0-9a-f]{8}", clause.source)
        assert re.search(r"\d\d? August 2026", clause.source)


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_nothing_can_certify_stands_in_no_gate(name: str) -> None:
    for clause in load_preset(name).clauses:
        assert CATALOGUE[clause.statistic].certifiable or clause.stages == (Stage.FULL,)


def test_a_summary_is_the_first_sentence() -> None:
    assert preset_summary("prime-rl-merge-bar") == (
        "The bar a new model must clear to be merged into prime-rl."
    )
    assert all(preset_summary(name).endswith(".") for name in NAMES)
