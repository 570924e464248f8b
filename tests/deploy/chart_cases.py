"""The values files of the chart, one a feature, rendered once; and what tests ask of what they rendered."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml
from deploy.helm_setup import CHART, render_text

Object = dict[str, Any]

CASES = sorted(file.name.removesuffix("-values.yaml") for file in (CHART / "ci").glob("*-values.yaml"))
KUBES = ("1.29", "1.33", "1.37")
GOLDEN_KUBE = "1.37"
NEEDS = {"sidecar-injection": "1.36"}  # what an older Kubernetes cannot have
WORKLOADS = ("StatefulSet", "Deployment", "Job", "Pod", "DaemonSet")


def kubes_of(case: str) -> tuple[str, ...]:
    """The versions of Kubernetes that a case is rendered for."""
    least = NEEDS.get(case, KUBES[0])
    return tuple(kube for kube in KUBES if _number(kube) >= _number(least))


@cache
def rendered_text(case: str, kube: str = GOLDEN_KUBE) -> str:
    """The manifests of a values file."""
    return render_text([CHART / "ci" / f"{case}-values.yaml"], kube)


def rendered(case: str, kube: str = GOLDEN_KUBE) -> list[Object]:
    """The objects of a values file."""
    return [thing for thing in yaml.load_all(rendered_text(case, kube), yaml.CSafeLoader) if thing]


def named(objects: list[Object], kind: str, name: str) -> Object:
    """The one object of that kind and name."""
    (found,) = (o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name)
    return found


def pod_of(thing: Object) -> Object:
    """The pod (metadata and spec) of a workload."""
    return thing if thing["kind"] == "Pod" else thing["spec"]["template"]


def workloads(objects: list[Object]) -> Iterator[Object]:
    """Everything that becomes a pod."""
    return (thing for thing in objects if thing["kind"] in WORKLOADS)


def containers(thing: Object) -> list[Object]:
    """All containers of a workload."""
    spec = pod_of(thing)["spec"]
    return [*spec.get("initContainers", ()), *spec["containers"]]


def options(container: Object) -> Mapping[str, str]:
    """``--name=value`` of the arguments; the last of several."""
    return dict(a.split("=", 1) for a in container.get("args", ()) if a.startswith("--") and "=" in a)


def _number(kube: str) -> tuple[int, ...]:
    return tuple(map(int, kube.split(".")))
