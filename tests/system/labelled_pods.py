"""The pods of one namespace on a real API server for tests of the label driver; readiness is set by hand."""

import asyncio
from types import SimpleNamespace

from fleets import fleet_of
from system.kubernetes_api import MERGE

from paritas.clock import SystemClock
from paritas.controller.drivers.kubernetes_label import KubernetesLabelDriver, KubernetesSettings

LABEL = "paritas.dev/eligible"
TARGETS = {"r0": "app=vllm,replica=r0", "r1": "r1-0", "ref": "app=vllm,replica=ref"}


class Pods:
    """The pods of one namespace as the administrator sees and makes them, and the settings of a driver there."""

    def __init__(self, api, namespace, folder):
        self.api, self.namespace, self.token_file = api, namespace, folder / "token"
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.token_file.write_text(api.account_token("paritas", "paritas-controller") + "\n")

    def make(self, name, replica, *, ready=True, **metadata):
        place = {"name": name, "namespace": self.namespace, "labels": {"app": "vllm", "replica": replica}}
        spec = {"containers": [{"name": "engine", "image": "vllm"}]}
        self.api.apply({"apiVersion": "v1", "kind": "Pod", "metadata": place | metadata, "spec": spec})
        if ready:
            self.status(name, conditions=[{"type": "Ready", "status": "True"}])

    def status(self, name, **status):
        """Say what a kubelet would say of a pod."""
        body = {"status": status}
        self.api.call("PATCH", f"{self.path}/{name}/status", body, content_type=MERGE)

    def label(self, name, **labels):
        body = {"metadata": {"labels": labels}}
        self.api.call("PATCH", f"{self.path}/{name}", body, content_type=MERGE)

    def delete(self, name):
        self.api.call("DELETE", f"{self.path}/{name}")

    def listed(self):
        return [SimpleNamespace(**item["metadata"]) for item in self.api.call("GET", self.path)["items"]]

    def labels(self):
        """The label's value of every pod, as the API server has it."""
        return {pod.name: pod.labels.get(LABEL) for pod in self.listed()}

    def versions(self):
        """What changes at every write, by pod."""
        return {pod.name: pod.resourceVersion for pod in self.listed()}

    def driver(self, kind=KubernetesLabelDriver, *, targets=None, **settings):
        place = {"server": self.api.server, "ca_file": self.api.ca_file, "token_file": self.token_file}
        chosen = KubernetesSettings(**{"namespace": self.namespace, "request_s": 30.0} | place | settings)
        return kind(chosen, fleet_of(targets=TARGETS | (targets or {})), SystemClock())


def told(driver, *states):
    """Apply each state; return (outcome, detail) of each."""

    async def scene():
        async with driver:
            said = [await driver.apply([state]) for state in states]
        return [(applied.outcome, applied.detail) for (applied,) in said]

    return asyncio.run(scene())


def seen(driver):
    async def scene():
        async with driver:
            return await driver.observe()

    return asyncio.run(scene())
