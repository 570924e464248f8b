"""A resolved contract written down means the same, and so does its digest."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from contract_cases import GOOD, contract
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.contracts.compose import compose
from paritas.contracts.dump import canonical_json, digest_of, resolved
from paritas.contracts.load import load_contract, load_preset, load_text, preset_names
from paritas.contracts.nodes import plain
from paritas.contracts.problems import Problems


@pytest.mark.parametrize("path", GOOD, ids=lambda p: p.name.split(".")[0])
def test_a_resolved_contract_loads_to_an_equal_one(path: Path) -> None:
    first = load_contract(path)
    again = load_text(json.dumps(resolved(first)), "resolved.json")
    assert again == first
    assert again.digest == first.digest
    assert resolved(again) == resolved(first)


@pytest.mark.parametrize("name", preset_names())
def test_a_resolved_contract_needs_no_preset(name: str) -> None:
    document = resolved(load_preset(name))
    assert "preset" not in document["spec"]
    assert load_text(json.dumps(document), "resolved.json").clauses == load_preset(name).clauses


def shuffled(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {key: shuffled(value[key], rng) for key in keys}
    return [shuffled(item, rng) for item in value] if isinstance(value, list) else value


# The order of families under `clauses` is fixed by the model, so every key may move.
@settings(deadline=None, max_examples=40)
@given(st.sampled_from(GOOD), st.randoms(use_true_random=False))
def test_the_digest_forgets_the_order_of_keys(path: Path, rng: random.Random) -> None:
    document = plain(compose(path.read_text(encoding="utf-8"), path.name, Problems()))
    assert load_text(json.dumps(shuffled(document, rng)), "other.json").digest == load_contract(path).digest


def test_the_digest_forgets_comments_and_spelling_and_remembers_meaning() -> None:
    spec = "  clauses:\n    numerical:\n      - {id: t, statistic: tv, at_most: 0.02}\n  compare: {pair_within: 10m}\n"
    digest = contract(spec).digest
    assert contract("  # why\n" + spec.replace("0.02", "2e-2").replace("10m", "600s")).digest == digest
    assert contract(spec.replace("0.02", "0.021")).digest != digest
    assert contract(spec, version="1.0.1").digest != digest
    assert contract(spec.replace("10m", "11m")).digest != digest


def test_the_digest_is_blake2b_of_the_canonical_json() -> None:
    loaded = contract("  preset: fp32\n")
    assert digest_of(loaded) == loaded.digest
    assert json.loads(canonical_json(loaded)) == resolved(loaded)


def test_the_digest_of_a_pinned_contract_is_stable() -> None:
    """A change here changes every deployed digest: it needs a line in the changelog."""
    pinned = "  clauses:\n    numerical:\n      - {id: token-tv, statistic: tv, at_most: 0.02}\n"
    assert contract(pinned).digest == "eff7e5fab2c21df0ee9b38964516d5d5"
