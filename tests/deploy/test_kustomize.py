"""The Kustomize folders: they build, they say what the chart says, and an existing pod keeps what it has."""

import shutil
import subprocess

import pytest
import yaml
from deploy.parts import why_not
from deploy.sidecar_files import FOLDER, texts
from deploy.sidecar_parts import documents

from paritas.commands.agent_config import read_agent_config

pytestmark = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="needs kubectl, which brings Kustomize"
)

COMPONENTS = FOLDER / "components"


def build(folder):
    """What a folder makes, by kind."""
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        raise ValueError(done.stderr)
    return {thing["kind"]: thing for thing in documents(done.stdout)}


def built(folder, workload, component="sidecar"):
    """What a component makes of a workload, in a kustomization below the project's so that both may be read."""
    with_its = folder / "deploy"
    shutil.copytree(FOLDER, with_its / "kustomize")
    (folder / "mine").mkdir()
    (folder / "mine" / "workload.yaml").write_text(yaml.safe_dump(workload))
    told = {"resources": ["workload.yaml"], "components": [f"../deploy/kustomize/components/{component}"]}
    (folder / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(told))
    return build(folder / "mine")[workload["kind"]]


def test_the_files_say_what_the_chart_says():
    """`python tests/deploy/sidecar_files.py` writes them anew."""
    if reason := why_not("helm"):
        pytest.skip(reason)
    for path, text in texts().items():
        assert path.read_text() == text, path


def test_the_base_is_the_configuration_of_an_agent_under_a_name_without_a_suffix():
    made = build(FOLDER / "base")["ConfigMap"]
    assert made["metadata"]["name"] == "paritas-agent"
    assert (
        read_agent_config(made["data"]["agent.yaml"].encode(), "agent.yaml").health.listen == "0.0.0.0:4319"
    )


@pytest.mark.parametrize(("overlay", "has_readiness"), [("guaranteed", False), ("failclosed", True)])
def test_the_overlays_build(overlay, has_readiness):
    made = build(FOLDER / "overlays" / overlay)
    assert {thing["metadata"]["namespace"] for thing in made.values()} == {"serving"}
    spec = made["Deployment"]["spec"]["template"]["spec"]
    (agent,) = spec["initContainers"]
    assert ("readinessProbe" in agent) == has_readiness
    for container in (agent, *spec["containers"]):
        assert container["resources"]["requests"] == container["resources"]["limits"]


TEMPLATE = {
    "spec": {
        "initContainers": [{"name": "fetch", "image": "x"}],
        "containers": [
            {"name": "router", "image": "x"},
            {"name": "engine", "image": "x", "env": [{"name": "A", "value": "1"}]},
        ],
        "volumes": [{"name": "shm", "emptyDir": {}}],
    }
}
VERSIONS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "Job": "batch/v1"}


def workload(kind, *, label="true"):
    place = {"name": "mine", "labels": {"paritas.dev/sidecar": label}}
    return {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": place, "spec": {"template": TEMPLATE}}


@pytest.mark.parametrize("kind", VERSIONS)
def test_the_component_adds_and_takes_nothing_away(tmp_path, kind):
    template = built(tmp_path, workload(kind))["spec"]["template"]
    assert template["metadata"]["labels"] == {"paritas.dev/inject": "true"}
    spec = template["spec"]
    assert [c["name"] for c in spec["initContainers"]] == ["paritas-agent", "fetch"]
    assert {c["name"]: "/run/paritas" in str(c.get("volumeMounts")) for c in spec["containers"]} == {
        "router": False,
        "engine": True,
    }
    (engine,) = (c for c in spec["containers"] if c["name"] == "engine")
    assert {"name": "A", "value": "1"} in engine["env"]
    assert "shm" in [v["name"] for v in spec["volumes"]]


def test_a_workload_without_the_label_is_left_alone(tmp_path):
    asked = workload("Deployment", label="false")
    assert built(tmp_path, asked) == asked


CUSTOM = {
    "sidecar-ray": (
        {"apiVersion": "ray.io/v1", "kind": "RayJob"},
        lambda spec: {
            "rayClusterSpec": {"headGroupSpec": {"template": spec}, "workerGroupSpecs": [{"template": spec}]}
        },
        lambda made: [
            made["rayClusterSpec"]["headGroupSpec"]["template"],
            made["rayClusterSpec"]["workerGroupSpecs"][0]["template"],
        ],
    ),
    "sidecar-lws": (
        {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"},
        lambda spec: {"leaderWorkerTemplate": {"leaderTemplate": spec, "workerTemplate": spec}},
        lambda made: [made["leaderWorkerTemplate"][f"{role}Template"] for role in ("leader", "worker")],
    ),
}
ENGINE = {"name": "engine", "image": "x", "env": [], "volumeMounts": []}
FILLED = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"initContainers": [], "containers": [ENGINE], "volumes": []},
}


@pytest.mark.parametrize("component", CUSTOM)
def test_kinds_that_kustomize_does_not_know_are_reached_by_place(tmp_path, component):
    kind, around, inside = CUSTOM[component]
    place = {"metadata": {"name": "mine", "labels": {"paritas.dev/sidecar": "true"}}}
    made = built(tmp_path, {**kind, **place, "spec": around(FILLED)}, component)
    for template in inside(made["spec"]):
        (agent,), (engine,) = template["spec"]["initContainers"], template["spec"]["containers"]
        assert agent["name"] == "paritas-agent"
        assert template["metadata"]["labels"] == {"a": "b", "paritas.dev/inject": "true"}
        assert [m["mountPath"] for m in engine["volumeMounts"]] == ["/run/paritas"]
        assert template["spec"]["volumes"][0]["name"] == "paritas-agent-config"


@pytest.mark.parametrize("component", CUSTOM)
@pytest.mark.parametrize("missing", ["initContainers", "volumes"])
def test_a_list_that_is_not_there_is_an_error_and_never_half_a_sidecar(tmp_path, component, missing):
    kind, around, _ = CUSTOM[component]
    place = {"metadata": {"name": "mine", "labels": {"paritas.dev/sidecar": "true"}}}
    spec = {field: value for field, value in FILLED["spec"].items() if field != missing}
    lacking = {**FILLED, "spec": spec}
    with pytest.raises(ValueError, match="doc is missing path"):
        built(tmp_path, {**kind, **place, "spec": around(lacking)}, component)
