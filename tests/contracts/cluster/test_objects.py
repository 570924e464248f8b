"""A contract and its object say the same: equal digests, whichever way round."""

from pathlib import Path

import pytest
from contract_cases import GOOD

from paritas.contracts.cluster.objects import contract_document, load_object, object_of, objects_in
from paritas.contracts.cluster.yaml_text import yaml_text
from paritas.contracts.load import load_contract, load_preset, preset_names, preset_text
from paritas.errors import ContractError, UsageError

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "contracts").glob("*.yaml"))
ADDED = {"uid": "4f", "generation": 3, "resourceVersion": "17", "managedFields": [{"manager": "kubectl"}]}


def come_back(thing):
    """What an API server stores of an object, as a contract again."""
    stored = {**thing, "metadata": {**thing["metadata"], **ADDED}, "status": {"observedGeneration": 3}}
    (found,) = objects_in(yaml_text({"kind": "List", "items": [stored]}).encode(), "a.yaml")
    return load_object(yaml_text(contract_document(found)), "a")


@pytest.mark.parametrize("path", [*GOOD, *EXAMPLES], ids=lambda p: p.name)
def test_a_file_comes_back_from_its_object_with_its_digest(path):
    assert come_back(object_of(path.read_bytes(), path.name)).digest == load_contract(path).digest


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_comes_back_from_its_object_with_its_digest(name):
    assert come_back(object_of(preset_text(name).encode(), name)).digest == load_preset(name).digest


HEAD = b"apiVersion: paritas.dev/v1\nkind: KernelContract\nmetadata: {name: NAME, version: 1.0.0}\nspec: {preset: lora}\n"


def test_version_owner_and_preset_are_annotations():
    text = HEAD.replace(b"1.0.0", b"1.0.0, owner: 'a, b', applied_preset: lora").replace(b"NAME", b"mine")
    assert object_of(text, "a.yaml")["metadata"] == {
        "name": "mine",
        "annotations": {
            "paritas.dev/version": "1.0.0",
            "paritas.dev/owner": "a, b",
            "paritas.dev/applied-preset": "lora",
        },
    }


@pytest.mark.parametrize("name", ["a_b", "a.-b", "a..b", "a-.b"])
def test_a_name_that_no_object_can_have_is_refused(name):
    with pytest.raises(UsageError) as caught:
        object_of(HEAD.replace(b"NAME", name.encode()), "a.yaml")
    assert caught.value.render() == (
        f"[usage] a.yaml: no object of a cluster can be named {name!r}\n"
        "  hint: use lower case letters, digits, '-' and single dots"
    )


def test_whole_numbers_are_written_as_such():
    text = HEAD.replace(b"NAME", b"a").replace(
        b"{preset: lora}", b"{preset: lora, budget: {sequence_tv: 0.1, max_tokens: 64.0}}"
    )
    budget = object_of(text, "a.yaml")["spec"]["budget"]
    assert (budget, type(budget["max_tokens"])) == ({"sequence_tv": 0.1, "max_tokens": 64}, int)


def problems_of(thing):
    with pytest.raises(ContractError) as caught:
        load_object(yaml_text(contract_document(thing)), "mine")
    return caught.value.problems


def test_problems_are_named_by_the_objects_own_fields():
    metadata = {"name": "mine", "annotations": {"paritas.dev/version": "1.2", "paritas.dev/owner": "a\tb"}}
    limit = {"id": "token-tv", "statistic": "tv", "at_most": "3%"}
    spec = {"preset": "dense-bf61", "clauses": {"numerical": [limit]}}
    assert problems_of({"metadata": metadata, "spec": spec}) == (
        (
            "metadata.annotations[paritas.dev/version]: '1.2' is not allowed here",
            "three numbers, such as 1.2.0",
        ),
        (
            "metadata.annotations[paritas.dev/owner]: 'a\\tb' is not allowed here",
            "write plain text on one line",
        ),
        (
            "spec.preset: unknown preset 'dense-bf61'",
            "did you mean 'dense-bf16'? paritas contract presets lists them",
        ),
        (
            "spec.clauses.numerical[0].at_most: expected a number, a duration, or {floor: NAME, times: 1.5, ceiling: 0.04}, got text '3%'",
            "a share: write 0.03 for 3 %",
        ),
    )


def test_a_missing_version_is_a_missing_annotation():
    found = problems_of({"metadata": {"name": "mine"}, "spec": {"preset": "lora"}})
    assert found == (("metadata.annotations[paritas.dev/version]: is missing", "version: semantic version"),)


def test_a_file_without_a_contract_is_said_to_be_one():
    with pytest.raises(UsageError) as caught:
        objects_in(b"apiVersion: v1\nkind: ConfigMap\n", "a.yaml")
    assert caught.value.render() == (
        "[usage] a.yaml: holds no KernelContract\n  hint: kubectl get kernelcontracts NAME -o yaml writes one"
    )


def test_an_object_that_is_malformed_is_one_clear_error():
    with pytest.raises(UsageError, match=r"^a.yaml: holds no KernelContract$"):
        objects_in(b"kind: List\nitems: 5\n", "a.yaml")
    broken = b"apiVersion: paritas.dev/v1\nkind: KernelContract\nmetadata: hello\nspec: {preset: lora}\n"
    (found,) = objects_in(broken, "a.yaml")
    with pytest.raises(ContractError, match=r"metadata.annotations\[paritas.dev/version\]: is missing"):
        load_object(yaml_text(contract_document(found)), "a")
