"""What tests of the sidecar share: renders of it, and pods that ask for it."""

import shutil
import tempfile
from pathlib import Path

import yaml
from deploy.helm_setup import CHART, ROOT, helm
from system.kubernetes_api import RefusedError
from system.otel_parts import wait_until

EXAMPLES = ROOT / "examples" / "kubernetes-sidecar"
BROKERS = {"kafka": {"bootstrap": ["kafka-0.kafka:9092"]}}
INJECTED = {"sidecar": {"injection": {"enabled": True}}}
KUBE = "1.36"


def documents(text):
    return [thing for thing in yaml.safe_load_all(text) if thing]


def shown(template, *values, kube=KUBE, name="demo"):
    """The objects that one template of the chart makes, and only they."""
    with tempfile.TemporaryDirectory() as folder:
        options = _options(values, Path(folder))
        where = (
            "--namespace",
            "paritas",
            "--kube-version",
            kube,
            "--skip-schema-validation",
            "--show-only",
            f"templates/{template}",
        )
        return documents(helm("template", name, CHART, *options, *where))


def injection(*values, kube=KUBE, name="demo"):
    """The policy and its binding."""
    return shown("mutatingadmissionpolicy.yaml", BROKERS, INJECTED, *values, kube=kube, name=name)


def explicit(*values, kube=KUBE):
    """What the example of a chart that depends on ours makes: its Deployment's pod template, and the agent's ConfigMap."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / "engine"
        shutil.copytree(EXAMPLES / "chart", chart)
        shutil.copytree(CHART, chart / "charts" / "paritas")
        options = _options([{"paritas": given} for given in values], Path(folder))
        made = documents(helm("template", "demo", chart, *options, "--kube-version", kube))
    found = {thing["kind"]: thing for thing in made}
    assert set(found) == {"Deployment", "ConfigMap"}, "with everything else off the dependency makes nothing"
    return found["Deployment"]["spec"]["template"], found["ConfigMap"]["data"]


def _options(values, folder):
    for number, given in enumerate(values):
        file = folder / f"{number}.yaml"
        file.write_text(yaml.safe_dump(given))
        yield from ("--values", file)


RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def container(name="engine", **fields):
    return {"name": name, "image": "vllm/vllm-openai", **fields}


def pod(*containers, label="true", annotations=None, name=None, **spec):
    """A pod that asks for the agent, unless `label` is None."""
    place = {"name": name} if name else {"generateName": "engine-"}
    if label is not None:
        place["labels"] = {"paritas.dev/inject": label}
    if annotations is not None:
        place["annotations"] = annotations
    spec = {"containers": list(containers) or [container()]} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": place, "spec": spec}


def names(made, field="initContainers"):
    return [item["name"] for item in made["spec"].get(field, [])]


def variables(made, at=0):
    """Of one container, its variables by name."""
    return {item["name"]: item for item in made["spec"]["containers"][at].get("env", [])}


def places(made, at=0):
    """Where one container mounts what."""
    return {
        item["mountPath"]: item["name"] for item in made["spec"]["containers"][at].get("volumeMounts", [])
    }


def follow(api, policy, binding):
    """Make a policy and wait until pods are mutated by it."""
    label = policy["spec"]["matchConstraints"]["objectSelector"]["matchLabels"]
    namespace = api.namespace(f"probe-{policy['metadata']['name']}")
    api.apply(policy, binding)
    asking = pod()
    asking["metadata"]["labels"] = label
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    wait_until(
        lambda: "paritas-agent" in names(api.call("POST", path, asking)),
        "the policy is followed",
        alive=api.part,
    )


def renamed(name, *values):
    """The policy under another name, for another label."""
    policy, binding = injection(*values, name=name)
    policy["spec"]["matchConstraints"]["objectSelector"]["matchLabels"] = {"try": name}
    return policy, binding


def asking(name):
    made = pod()
    made["metadata"]["labels"] = {"try": name}
    return made


def refusal(born, asked):
    """Why the API server refuses a pod that `born` asks for; empty if it takes it."""
    try:
        born(asked)
    except RefusedError as error:
        return str(error)
    return ""
