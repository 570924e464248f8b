"""The JSON Schema and the reader are made from one table; here they are compared on real mistakes."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from contract_cases import BAD, GOOD, places
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.contracts.compose import compose
from paritas.contracts.load import load_contract
from paritas.contracts.nodes import plain
from paritas.contracts.problems import Problems
from paritas.contracts.reading import read
from paritas.contracts.schema import json_schema
from paritas.contracts.table import DOCUMENT
from paritas.errors import ContractError

VALIDATOR = jsonschema.Draft202012Validator(json_schema())
VALUES = [
    None,
    True,
    0,
    1,
    -1,
    1.5,
    64.0,
    2,
    "",
    "x",
    "10m",
    "all",
    "tv",
    [],
    ["all"],
    ["all", "all"],
    {},
    {"x": 1},
    {"notify": {}},
]


def node_values(path: Path) -> Any:
    return plain(compose(path.read_text(encoding="utf-8"), path.name, Problems()))


def structural_problems(document: object) -> list[str]:
    problems = Problems()
    read(DOCUMENT, compose(json.dumps(document), "a.json", problems), "", problems)
    return [str(p) for p in problems.in_order()]


def test_the_schema_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert json.loads(json.dumps(json_schema())) == json_schema()


@pytest.mark.parametrize("path", GOOD, ids=lambda p: p.name.split(".")[0])
def test_every_good_file_validates(path: Path) -> None:
    VALIDATOR.validate(node_values(path))
    load_contract(path)


@pytest.mark.parametrize("path", BAD, ids=lambda p: p.name.split(".")[0])
def test_a_bad_file_fails_exactly_where_its_structure_is_wrong(path: Path) -> None:
    problems = Problems()
    try:
        node = compose(path.read_bytes().decode(), path.name, problems)
    except ContractError:
        return  # not YAML: no schema sees it
    if len(problems):
        return  # doubled keys and the like: gone once it is plain values
    read(DOCUMENT, node, "", problems)
    assert VALIDATOR.is_valid(plain(node)) == (len(problems) == 0)


def changed(document: Any, rng: random.Random) -> Any:
    """Return the document with one value replaced, removed, renamed or added."""
    document = copy.deepcopy(document)
    *path, last = rng.choice(list(places(document)))
    parent = document
    for key in path:
        parent = parent[key]
    match rng.randrange(4):
        case 0:
            parent[last] = rng.choice(VALUES)
        case 1:
            del parent[last]
        case 2 if isinstance(parent, dict):
            parent[str(last) + "x"] = parent.pop(last)
        case _:
            parent[last] = [parent[last]]
    return document


DOCUMENTS = [node_values(path) for path in GOOD]


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(DOCUMENTS), st.randoms(use_true_random=False), st.integers(1, 3))
def test_loader_and_schema_agree_on_mutated_contracts(document: Any, rng: random.Random, count: int) -> None:
    for _ in range(count):
        document = changed(document, rng)
    problems = structural_problems(document)
    assert VALIDATOR.is_valid(document) == (not problems), problems
