"""The shipped definition is the one that the table gives, and refuses nothing that the loader takes."""

import json
from pathlib import Path

import jsonschema
import pytest
from contract_cases import BAD, GOOD, places
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.contracts.cluster.definition import definition
from paritas.contracts.cluster.objects import object_of
from paritas.contracts.cluster.yaml_text import yaml_text
from paritas.contracts.compose import compose
from paritas.contracts.nodes import plain
from paritas.contracts.problems import Problems
from paritas.contracts.reading import read
from paritas.contracts.table import DOCUMENT
from paritas.errors import ContractError

FILE = Path(__file__).parents[3] / "deploy" / "crd" / "kernelcontracts.yaml"
(VERSION,) = definition()["spec"]["versions"]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
# OpenAPI 3.0 of an API server writes open ends of a range as draft 4 of JSON Schema did.
VALIDATOR = jsonschema.Draft4Validator(json.loads(json.dumps(SCHEMA)))
OPEN = "x-kubernetes-preserve-unknown-fields"
REFUSED = {"$ref", "anyOf", "oneOf", "allOf", "not", "uniqueItems", "definitions", "patternProperties"}


def test_the_shipped_definition_is_up_to_date():
    """If not: paritas contract schema --crd > deploy/crd/kernelcontracts.yaml."""
    assert FILE.read_text() == yaml_text(definition())


def test_it_is_small_enough_for_kubectl_apply():
    assert len(FILE.read_bytes()) < 262_144  # bytes of the annotation in which kubectl apply keeps a copy


def nodes(schema, place="."):
    """Every schema below `schema` with its place."""
    yield place, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{place}{name}.")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{place}{key}.")


def test_it_is_structural():
    found = list(nodes(SCHEMA))
    assert len(found) > 300
    assert [place for place, node in found if ("type" in node) == (OPEN in node)] == []
    assert [place for place, node in found if REFUSED & set(node)] == []
    assert [place for place, node in found if node.get("additionalProperties") is False] == []


def test_only_fields_that_take_several_kinds_of_value_are_open():
    names = {place.split(".")[-2] for place, node in nodes(SCHEMA) if OPEN in node}
    assert names == {
        *("at_most", "at_least", "ceiling", "weights", "family", "clause", "slice", "state", "demote_on"),
    } - {"ceiling"}  # inside a limit, which is open as a whole


@pytest.mark.parametrize("path", GOOD, ids=lambda p: p.name.split(".")[0])
def test_it_takes_every_good_file(path):
    VALIDATOR.validate(object_of(path.read_bytes(), path.name))


def structural_problems(document):
    problems = Problems()
    read(DOCUMENT, compose(json.dumps(document), "a.json", problems), "", problems)
    return len(problems)


@pytest.mark.parametrize("path", BAD, ids=lambda p: p.name.split(".")[0])
def test_what_it_refuses_of_the_bad_files_the_loader_refuses(path):
    problems = Problems()
    try:
        document = plain(compose(path.read_bytes().decode(), path.name, problems))
    except ContractError:
        return  # not YAML
    if len(problems) == 0 and isinstance(document, dict) and isinstance(document.get("spec"), dict):
        assert VALIDATOR.is_valid({"spec": document["spec"]}) or structural_problems(document)


VALUES = [
    None,
    True,
    0,
    1,
    -1,
    1.5,
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
]
DOCUMENTS = [
    {"kind": "KernelContract", **object_of(path.read_bytes(), path.name)}
    for path in GOOD
    if b"spec" in path.read_bytes()
]


def changed(spec, rng):
    """One value of the spec replaced or removed."""
    spec = json.loads(json.dumps(spec))
    *path, last = rng.choice(list(places(spec)))
    parent = spec
    for key in path:
        parent = parent[key]
    if rng.randrange(2):
        parent[last] = rng.choice(VALUES)
    else:
        del parent[last]
    return spec


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(DOCUMENTS), st.randoms(use_true_random=False))
def test_it_refuses_nothing_that_the_loader_takes(document, rng):
    spec = changed(document["spec"], rng)
    head = {"apiVersion": document["apiVersion"], "kind": document["kind"]}
    whole = {**head, "metadata": {"name": "a", "version": "1.0.0"}, "spec": spec}
    assert VALIDATOR.is_valid({"spec": spec}) or structural_problems(whole)


def test_open_fields_still_check_what_can_be_said_of_each_kind():
    def is_taken(limit):
        clause = {"id": "a", "statistic": "tv", "at_most": limit}
        return VALIDATOR.is_valid({"spec": {"clauses": {"numerical": [clause]}}})

    floor = {"floor": "f", "times": 1.5, "ceiling": 0.04}
    assert [is_taken(v) for v in (0.02, "30s", floor, "3%", -0.1)] == [True, True, True, False, False]


def test_the_conditions_have_the_shape_that_kubectl_wait_reads():
    conditions = SCHEMA["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    wanted = {"type", "status", "reason", "message", "lastTransitionTime"}
    assert set(conditions["items"]["required"]) == wanted
    columns = [column["name"] for column in VERSION["additionalPrinterColumns"]]
    assert columns == ["Policy", "Accepted", "Enforced", "Violated", "Digest", "Age"]
