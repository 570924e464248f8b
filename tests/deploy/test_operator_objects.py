"""The definition on a real API server: every contract of the repository is an object of it, and bad ones are none."""

import json
import shutil
from pathlib import Path

import pytest
from contract_cases import GOOD
from deploy.operator_parts import ROOT, Contracts, define, document
from system.kubernetes_api import KubernetesApi, RefusedError, kubectl
from system.parts import why_not

from paritas.contracts.cluster.objects import contract_document, load_object, object_of
from paritas.contracts.cluster.yaml_text import yaml_text
from paritas.contracts.load import load_text, preset_names, preset_text

# Asked here: what has to be built takes longer than a test may.
MISSING = why_not("kubernetes")
FILES = [
    *GOOD,
    *sorted((ROOT / "contracts" / "presets").glob("*.yaml")),
    *sorted((ROOT / "examples" / "contracts").glob("*.yaml")),
    ROOT / "examples" / "shadow" / "contract.yaml",
]


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """One API server with the definition."""
    if MISSING:
        pytest.skip(MISSING)
    with KubernetesApi(tmp_path_factory.mktemp("kubernetes")) as opened:
        define(opened)
        opened.namespace("objects")
        yield opened


@pytest.fixture
def contracts(api):
    return Contracts(api, "objects")


@pytest.mark.parametrize("path", FILES, ids=lambda p: "/".join(p.parts[-2:]))
def test_every_contract_is_stored_and_read_back_with_its_digest(contracts, path):
    thing = object_of(path.read_bytes(), path.name)
    thing["metadata"]["namespace"] = contracts.namespace
    stored = contracts.api.call("PUT" if _is_there(contracts, thing) else "POST", *_place(contracts, thing))
    text = yaml_text(contract_document(stored))
    assert load_object(text, "a").digest == load_text(path.read_bytes(), path.name).digest


def _is_there(contracts, thing):
    names = [o["metadata"]["name"] for o in contracts.api.call("GET", contracts.path)["items"]]
    return thing["metadata"]["name"] in names


def _place(contracts, thing):
    if not _is_there(contracts, thing):
        return f"{contracts.path}?fieldValidation=Strict", thing
    old = contracts.get(thing["metadata"]["name"])
    thing["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
    return f"{contracts.path}/{thing['metadata']['name']}?fieldValidation=Strict", thing


def test_presets_are_among_them():
    assert {path.stem for path in FILES} >= set(preset_names())
    assert all(preset_text(name) for name in preset_names())


def wrong(**spec):
    clauses = {"numerical": [{"id": "token-tv", "statistic": "tv", "at_most": 0.02}]}
    return {
        "apiVersion": "paritas.dev/v1",
        "kind": "KernelContract",
        "metadata": {"name": "wrong", "annotations": {"paritas.dev/version": "1.0.0"}},
        "spec": {"clauses": clauses, **spec},
    }


def one(**clause):
    return {"numerical": [{"id": "token-tv", "statistic": "tv", **clause}]}


TOLD = '422: KernelContract.paritas.dev "wrong" is invalid: '
REST = ", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]"
CASES = {
    "a share above 1": (
        wrong(budget={"sequence_tv": 1.5}),
        "spec.budget.sequence_tv: Invalid value: 1.5: spec.budget.sequence_tv in body should be less than or equal to 1",
    ),
    "a duration without its unit": (
        wrong(compare={"pair_within": 10}),
        'spec.compare.pair_within: Invalid value: "integer": spec.compare.pair_within in body must be of type string: "integer"',
    ),
    "a percent where a limit belongs": (
        wrong(clauses=one(at_most="3%")),
        (
            'spec.clauses.numerical[0].at_most: Invalid value: "3%": spec.clauses.numerical[0].at_most in body should '
            r"match '^[0-9]{1,15}(\.[0-9]{1,15})?(us|ms|s|m|h|d)$'"
        ),
    ),
    "an unknown statistic": (
        wrong(clauses={"observability": [{"id": "a", "statistic": "coverag", "at_least": 0.9}]}),
        (
            'spec.clauses.observability[0].statistic: Unsupported value: "coverag": supported values: "pairing_rate", '
            '"nonfinite_rate", "missing_rate", "logprob_semantics_known", "silence", "agent_silence"'
        ),
    ),
    "a clause without an id": (
        wrong(clauses={"numerical": [{"statistic": "tv", "at_most": 0.02}]}),
        "spec.clauses.numerical[0].id: Required value",
    ),
    "a slice twice": (
        wrong(clauses=one(at_most=0.02, slices=["all", "all"])),
        'spec.clauses.numerical[0].slices[1]: Duplicate value: "all"',
    ),
    "two actions in one": (
        wrong(
            escalation=[
                {"when": {}, "levels": [{"severity": "info", "actions": [{"page": {}, "notify": {}}]}]},
            ]
        ),
        "spec.escalation[0].levels[0].actions[0]: Too many: 2: must have at most 1 item",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_schema_refuses(contracts, case):
    thing, said = CASES[case]
    with pytest.raises(RefusedError) as caught:
        contracts.api.call("POST", contracts.path, thing)
    assert str(caught.value) in (f"{TOLD}{said}", f"{TOLD}[{said}{REST}")


def test_a_name_that_no_contract_can_have_is_refused(contracts):
    thing = wrong()
    thing["metadata"]["name"] = "a" * 64
    with pytest.raises(RefusedError) as caught:
        contracts.api.call("POST", contracts.path, thing)
    said = "the name of a contract has lower case letters, digits, '-', '_' and '.', at most 63"
    assert caught.value.status == 422
    assert said in str(caught.value)


def test_unknown_fields_are_refused_by_strict_clients_and_by_server_side_apply(contracts):
    thing = wrong(clauses=one(at_most=0.02, sourc="me"))
    thing["metadata"]["namespace"] = contracts.namespace
    with pytest.raises(RefusedError) as strict:
        contracts.api.call("POST", f"{contracts.path}?fieldValidation=Strict", thing)
    with pytest.raises(RefusedError) as applied:
        contracts.api.apply(thing)
    assert (
        str(strict.value)
        == '400: KernelContract in version "v1" cannot be handled as a KernelContract: strict decoding error: '
        'unknown field "spec.clauses.numerical[0].sourc"'
    )
    assert "field not declared in schema" in str(applied.value)


def test_an_unknown_field_inside_a_limit_is_kept_for_the_operator(contracts):
    limit = {"floor": "f", "times": 1.5, "ceilin": 0.04}
    thing = wrong(clauses=one(at_most=limit))
    thing["metadata"]["name"] = "kept"
    stored = contracts.api.call("POST", contracts.path, thing)
    assert stored["spec"]["clauses"]["numerical"][0]["at_most"] == limit


def test_people_read_it_by_its_short_name_and_category(contracts):
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl")
    contracts.put(document("shown"))
    for asked in (["kc", "shown"], ["kernelcontract", "shown"]):
        head, row = kubectl(contracts.api, "-n", "objects", "get", *asked).splitlines()
        assert head.split() == ["NAME", "POLICY", "ACCEPTED", "ENFORCED", "VIOLATED", "AGE"]
        assert row.split()[:2] == ["shown", "qwen3-8b"]
    assert "kernelcontract.paritas.dev/shown" in kubectl(
        contracts.api, "-n", "objects", "get", "paritas", "-o", "name"
    )


def test_kubectl_explains_a_field(contracts):
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl")
    said = kubectl(contracts.api, "explain", "kernelcontract.spec.refit.alpha")
    assert "probability that any healthy version is ever rejected; 0.01 if left out" in " ".join(said.split())


def test_a_file_applied_by_kubectl_is_the_same_contract(contracts, tmp_path):
    """kubectl reads YAML 1.1: numbers with exponents, durations and texts like flags come through as they were."""
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl")
    text = document("typed", limit="1e-3").replace(
        "  policy: qwen3-8b\n",
        '  policy: "1e3"\n  compare: {pair_within: 10m}\n  slices: [{name: "on", match: {labels: [{field: env, op: In, '
        'values: ["y", "1e-3", "0o17"]}]}}]\n',
    )
    file = tmp_path / "typed.yaml"
    file.write_text(yaml_text(object_of(text.encode(), "typed.yaml")))
    kubectl(contracts.api, "-n", "objects", "apply", "-f", str(file))
    stored = contracts.get("typed")
    assert load_object(yaml_text(contract_document(stored)), "a").digest == load_text(text, "a").digest
    assert stored["spec"]["slices"][0]["match"]["labels"][0]["values"] == ["y", "1e-3", "0o17"]
    assert json.dumps(stored["spec"]["clauses"]["numerical"][0]["at_most"]) == "0.001"


def test_the_repository_holds_these_files():
    assert len(FILES) > 30
    assert all(isinstance(path, Path) and path.is_file() for path in FILES)
