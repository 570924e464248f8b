"""The Kustomize files that are made from the chart, so that there is one sidecar and not two.

Run: python tests/deploy/sidecar_files.py   (writes them anew)
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import yaml
from deploy.helm_setup import ROOT
from deploy.sidecar_parts import BROKERS, explicit

FOLDER = ROOT / "deploy" / "kustomize"
AGENT, ENGINE = "paritas-agent", "engine"
LABEL = "paritas.dev/inject"  # by which the roster and Prometheus find the pods, whoever put the agent there
MARK = "# Made from the chart by tests/deploy/sidecar_files.py.\n"
PLACES = {
    "components/sidecar-ray/head.patch.yaml": "/spec/rayClusterSpec/headGroupSpec/template/spec",
    "components/sidecar-ray/worker.patch.yaml": "/spec/rayClusterSpec/workerGroupSpecs/0/template/spec",
    "components/sidecar-lws/leader.patch.yaml": "/spec/leaderWorkerTemplate/leaderTemplate/spec",
    "components/sidecar-lws/worker.patch.yaml": "/spec/leaderWorkerTemplate/workerTemplate/spec",
}


def texts():
    """The files by their path."""
    template, configuration = explicit(BROKERS)
    (engine,) = template["spec"]["containers"]
    engine["env"] = [item for item in engine["env"] if item["name"] != "PARITAS_RUN_ID"]  # the example's own
    closed, _ = explicit(BROKERS, {"sidecar": {"failClosed": True}})
    found = {
        "components/sidecar/pod.patch.yaml": _strategic(template["spec"]),
        "components/failclosed/readiness.patch.yaml": _readiness(closed["spec"]),
    }
    found |= {path: _by_place(template["spec"], place) for path, place in PLACES.items()}
    made = {path: yaml.safe_dump(patch, sort_keys=False, width=110) for path, patch in found.items()}
    made["base/agent.yaml"] = configuration["agent.yaml"].rstrip() + "\n"
    return {FOLDER / path: MARK + text for path, text in made.items()}


def _strategic(spec):
    """The lists of a pod are merged by name: the patch holds only what is new."""
    (engine,) = spec["containers"]
    new = {"name": ENGINE} | {field: engine[field] for field in ("env", "volumeMounts")}
    parts = {"initContainers": spec["initContainers"], "containers": [new], "volumes": spec["volumes"]}
    return _workload({"metadata": {"labels": {LABEL: "true"}}, "spec": parts})


def _readiness(spec):
    (agent,) = spec["initContainers"]
    probe = {"name": AGENT, "readinessProbe": agent["readinessProbe"]}
    return _workload({"spec": {"initContainers": [probe]}})


def _workload(template):
    """The kind and name of a patch that has a target are not looked at, but they must be there."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "any"},
        "spec": {"template": template},
    }


def _by_place(spec, place):
    (agent,), (engine,) = spec["initContainers"], spec["containers"]
    ends = [(f"{place}/volumes/-", volume) for volume in spec["volumes"]]
    ends += [
        (f"{place}/containers/0/{field}/-", item)
        for field in ("env", "volumeMounts")
        for item in engine[field]
    ]
    label = f"{place.removesuffix('/spec')}/metadata/labels/{LABEL.replace('/', '~1')}"
    added = [(label, "true"), (f"{place}/initContainers/0", agent), *ends]
    return [{"op": "add", "path": path, "value": value} for path, value in added]


def main():
    """Write all of them."""
    for path, text in texts().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
