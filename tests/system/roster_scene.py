"""`paritas roster` beside a real API server, an agent with an embedded log, and the detectors that read it."""

import sys
import urllib.error
import urllib.request
from contextlib import ExitStack
from datetime import UTC, datetime

from system.agent_process import until
from system.control_process import Command, controller, target_of
from system.kubernetes_api import MERGE, RefusedError

from paritas.clock import SystemClock
from paritas.controller.client import EscalationClient
from paritas.errors import TransientError

SELECTOR = {"paritas.dev/inject": "true"}
CLOCK = SystemClock()
LIMIT_S = 15  # two cores are shared: a report a second may come late, but not so late
CONTRACT = f"""
apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {{name: watched, version: 1.0.0}}
spec:
  policy: policy
  compare: {{weights: equal, unit: sequence, pair_within: 10m}}
  slices: [{{name: all}}]
  clauses:
    observability:
      - {{id: agents, statistic: agent_silence, at_most: {LIMIT_S}s}}
  escalation:
    - when: {{clause: agents, state: violated}}
      keep_firing_for: 1s
      levels: [{{severity: critical, actions: [{{page: {{}}}}]}}]
"""
ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: paritas-roster, namespace: NAMESPACE}
rules:
  - {apiGroups: [""], resources: [pods], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: paritas-roster, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: paritas-roster}
subjects: [{kind: ServiceAccount, name: default, namespace: NAMESPACE}]
"""


class Cluster:
    """One namespace, its pods as a kubelet would run them, and a service account that may list and watch them."""

    def __init__(self, api, namespace, *, role=True):
        self.api, self.namespace = api, api.namespace(namespace)
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.account = f"system:serviceaccount:{namespace}:default"
        if role:
            api.apply_text(ROLE.replace("NAMESPACE", namespace))
            for verb in ("list", "watch"):
                api.wait_allowed(self.account, verb, "pods", namespace)

    def kubeconfig(self):
        return self.api.kubeconfig(self.api.account_token(self.namespace, "default"))

    def pod(self, name, *, labels=SELECTOR, sidecar=False, phase="Running", since_s=0.0):
        """Make a pod, and say that its containers have started `since_s` ago."""
        containers = [{"name": "engine", "image": "vllm"}]
        containers += [{"name": "paritas-agent", "image": "paritas-agent"}] if sidecar else []
        place = {"name": name, "namespace": self.namespace, "labels": labels}
        spec = {"containers": containers}
        self.api.apply({"apiVersion": "v1", "kind": "Pod", "metadata": place, "spec": spec})
        self.status(name, phase=phase, startTime=stamp(CLOCK.now_ns() - round(since_s * 1e9)))

    def status(self, name, **status):
        self.api.call("PATCH", f"{self.path}/{name}/status", {"status": status}, content_type=MERGE)

    def delete(self, name):
        self.api.call("DELETE", f"{self.path}/{name}?gracePeriodSeconds=0")

    def is_refused(self, method, path):
        try:
            self.api.call(method, path, token=self.api.account_token(self.namespace, "default"))
        except RefusedError as error:
            return error.status == 403
        return False


def stamp(ns):
    """A time as the API writes it."""
    return datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Pipeline:
    """Agent with an embedded log → detectors → controller; a context manager.  The agent is the pod `pod-good`."""

    def __init__(self, folder):
        self.folder, self._stack, self.target = folder, ExitStack(), ""
        self.socket = folder / "otlp.sock"

    def __enter__(self):
        with self._stack:
            self._start()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _start(self):
        (self.folder / "agent.yaml").write_text(
            f"name: pod-good\nspool: {{path: {self.folder / 'spool'}}}\n"
            f"receivers: {{unix: {{path: {self.socket}}}}}\n"
            f"destination: {{embedded: {{path: {self.folder / 'log'}, partitions: 2}}}}\n"
            "health: {listen: '127.0.0.1:0', report: 1s}\n"
        )
        (self.folder / "contract.yaml").write_text(CONTRACT)
        agent = self._stack.enter_context(Command("agent", "--config", self.folder / "agent.yaml"))
        agent.says("ready")
        until((self.folder / "log" / "log.json").exists, "the agent made its log")
        control = self._stack.enter_context(controller(self.folder / "control"))
        self.target = target_of(control)
        words = ("--log", self.folder / "log", "--contract", self.folder / "contract.yaml")
        words += ("--controller", self.target, "--state", self.folder / "state")
        self._stack.enter_context(Command("detect", *words)).says("judging")

    def incidents(self):
        """Slice → the last word about it."""
        with EscalationClient(self.target) as client:
            return {i.current.slice: i.current for i in client.incidents(include_closed=True)}

    def until(self, holds, what):
        """Wait until the incidents are so; returns them."""

        def found():
            try:
                told = self.incidents()
            except TransientError:
                return None
            return told if holds(told) else None

        return until(found, what, deadline_s=LIMIT_S + 75)


class Telling:
    """`paritas roster` as a process; a context manager."""

    def __init__(self, cluster, *words, kubeconfig=None):
        config = kubeconfig or cluster.kubeconfig()
        place = ("--kubeconfig", config, "--namespace", cluster.namespace)
        self.command = Command("roster", *place, "--every", "1s", "--health", "127.0.0.1:0", *words)

    def __enter__(self):
        self.page = self.command.says("health:").split()[1].removesuffix("/readyz")
        return self

    def __exit__(self, *reason):
        sys.stderr.write(self.command.errors[-2000:])
        self.command.__exit__(*reason)

    def ask(self, path):
        try:
            with urllib.request.urlopen(self.page + path, timeout=30) as answer:
                return answer.status, answer.read().decode().strip()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode().strip()

    def metric(self, name):
        """The value of a metric, over all its labels."""
        lines = [line for line in self.ask("/metrics")[1].splitlines() if not line.startswith("#")]
        return sum(float(line.split()[-1]) for line in lines if line.split(" ")[0].split("{")[0] == name)

    def is_ready(self):
        return until(lambda: self.ask("/readyz") == (200, "ready"), "the roster is told")
