"""The examples of the sidecar: a real API server takes them, their pods are born whole, and the schemas know every field."""

import json
import shutil
import subprocess
import zlib

import pytest
import yaml
from deploy.parts import why_not
from deploy.sidecar_parts import BROKERS, EXAMPLES, documents, explicit, injection, names
from deploy.tools_setup import tool
from system import parts
from system.kubernetes_api import KubernetesApi
from system.otel_parts import wait_until

from paritas.commands.agent_config import read_agent_config
from paritas.contracts.load import load_contract

# Asked here: what has to be built takes longer than a test may.
MISSING = parts.why_not("kubernetes") or why_not("helm")
FILES = {
    "vllm": EXAMPLES / "vllm" / "deployment.yaml",
    "torchrun": EXAMPLES / "torchrun" / "job.yaml",
    "ray": EXAMPLES / "ray" / "rayjob.yaml",
}
AGENT_S = 8  # `grace` and one attempt to connect


def plain(name):
    """What one applies where pods are injected."""
    return documents(FILES[name].read_text())


def written_out(name):
    """What one applies where they are not."""
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl, which brings Kustomize")
    done = subprocess.run(
        ["kubectl", "kustomize", EXAMPLES / name], capture_output=True, text=True, check=True, timeout=60
    )
    return documents(done.stdout)


VARIANTS = [(make, name) for make in (plain, written_out) for name in FILES]
MARKS = pytest.mark.parametrize(("make", "name"), VARIANTS)


def templates(objects):
    """The pod templates that are to be watched."""
    for thing in objects:
        match thing["kind"]:
            case "Deployment" | "Job":
                yield thing["spec"]["template"]
            case "RayJob":
                cluster = thing["spec"]["rayClusterSpec"]
                yield cluster["headGroupSpec"]["template"]
                yield from (group["template"] for group in cluster["workerGroupSpecs"])


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """An API server that injects, and takes RayJobs: their definition here says nothing of their fields."""
    if MISSING:
        pytest.skip(MISSING)
    with KubernetesApi(tmp_path_factory.mktemp("kubernetes")) as opened:
        opened.apply(*injection(), RAY_JOBS)
        namespace = opened.namespace("probe")
        wait_until(
            lambda: [
                c["name"] for c in born(opened, namespace, plain("vllm"))[0]["spec"].get("initContainers", [])
            ],
            "the policy is followed",
        )
        wait_until(lambda: knows_ray(opened), "the definition is followed")
        yield opened


RAY_JOBS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "rayjobs.ray.io"},
    "spec": {
        "group": "ray.io",
        "names": {"kind": "RayJob", "plural": "rayjobs", "singular": "rayjob", "listKind": "RayJobList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


def knows_ray(api):
    groups = api.call("GET", "/apis")["groups"]
    return any(group["name"] == "ray.io" for group in groups)


def born(api, namespace, objects):
    """The pods that a controller would create of the templates; none runs here."""
    return [
        api.call(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods?dryRun=All",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"generateName": "engine-", **template["metadata"]},
                "spec": with_restarts(template["spec"]),
            },
        )
        for template in templates(objects)
    ]


def with_restarts(spec):
    return {"restartPolicy": "Always", **spec}


@MARKS
def test_the_api_server_takes_them_and_their_pods_have_one_agent_each(api, make, name):
    namespace = api.namespace(f"t-{zlib.crc32(f'{make.__name__}{name}'.encode()):08x}")
    objects = make(name)
    for thing in objects:
        thing["metadata"]["namespace"] = namespace
    api.apply(*objects)
    pods = born(api, namespace, objects)
    assert pods
    for pod in pods:
        assert names(pod) == ["paritas-agent"]
        (engine,) = pod["spec"]["containers"]
        told = [item["name"] for item in engine["env"]]
        assert {"PARITAS_ENABLED", "PARITAS_AGENT", "PARITAS_RUN_ID"} <= set(told)
        assert len(told) == len(set(told))
        assert "/run/paritas" in [m["mountPath"] for m in engine["volumeMounts"]]
        assert engine["name"] == pod["metadata"].get("annotations", {}).get(
            "paritas.dev/containers", engine["name"]
        )


@MARKS
def test_the_agent_fits_into_the_grace_of_its_pod(make, name):
    """Beside what the file says that its engine takes; 30 s, the default, is too little for a model server."""
    for template in templates(make(name)):
        assert template["spec"]["terminationGracePeriodSeconds"] >= 30 + AGENT_S


@MARKS
def test_every_field_is_known_to_the_schemas_of_kubernetes(make, name):
    """Ray's own kind has none there: its pod templates are looked at as pods."""
    if reason := why_not("tools"):
        pytest.skip(reason)
    objects = [thing for thing in make(name) if thing["kind"] != "RayJob"]
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", **t["metadata"]}, "spec": t["spec"]}
        for t in templates(make(name))
    ]
    done = subprocess.run(
        [tool("kubernetes-validate"), "--strict", "-k", "1.33", "/dev/stdin"],
        input=yaml.safe_dump_all([*objects, *pods]),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARN" not in done.stdout + done.stderr


def test_every_pod_asks_on_its_template_and_not_on_its_workload():
    for name in FILES:
        workload = plain(name)[0]
        assert "paritas.dev/inject" not in workload["metadata"]["labels"]
        for template in templates([workload]):
            assert template["metadata"]["labels"]["paritas.dev/inject"] == "true"


def test_the_service_takes_only_pods_in_rotation():
    deployment, service = plain("vllm")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == {"app": "vllm", "paritas.dev/eligible": "true"}
    assert service["spec"]["selector"].items() <= labels.items()
    assert (
        "paritas.dev/eligible" not in deployment["spec"]["selector"]["matchLabels"]
    )  # a pod that leaves is not replaced


def test_the_agents_file_is_one_and_says_what_the_chart_says():
    text = (EXAMPLES / "agent" / "agent.yaml").read_bytes()
    brokers = {"kafka": {"bootstrap": ["kafka-0.kafka:9092", "kafka-1.kafka:9092"]}}
    _, told = explicit(brokers)
    assert read_agent_config(text, "a") == read_agent_config(told["agent.yaml"].encode(), "a")


def test_the_chart_of_yours_makes_a_pod_that_the_schemas_know():
    template, _ = explicit(BROKERS)
    assert [c["name"] for c in template["spec"]["initContainers"]] == ["paritas-agent"]
    assert json.dumps(template).count("grpo-7") == 1


def test_the_contract_makes_a_silent_agent_a_violation():
    contract = load_contract(EXAMPLES / "contract.yaml")
    (clause,) = (clause for clause in contract.clauses if clause.statistic == "agent_silence")
    assert clause.at_most == 120.0
