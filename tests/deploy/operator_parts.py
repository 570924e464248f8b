"""`paritas operator` as a process beside a real API server, and the contracts of one namespace as people see them."""

import os
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

import yaml
from free_ports import free_port
from system.control_process import Command
from system.kubernetes_api import ADMIN, MERGE, REQUEST_S, RefusedError
from system.otel_parts import wait_until

from paritas.contracts.cluster.objects import object_of

ROOT = Path(__file__).parents[2]
CRD = ROOT / "deploy" / "crd" / "kernelcontracts.yaml"
GROUP = "/apis/paritas.dev/v1"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kernelcontracts.paritas.dev"
EMPTY = f"{GROUP}/namespaces/default/kernelcontracts"
CONFIG_MAP = "paritas-contracts"
ACCOUNT = "paritas-operator"

DOCUMENT = """apiVersion: paritas.dev/v1
kind: KernelContract
metadata: {name: NAME, version: VERSION, owner: rl-infra}
spec:
  policy: qwen3-8b
  clauses:
    numerical:
      - {id: token-tv, statistic: tv, at_most: LIMIT}
"""


def document(name="rollout", *, version="1.0.0", limit="0.02"):
    return DOCUMENT.replace("NAME", name).replace("VERSION", version).replace("LIMIT", limit)


def define(api):
    """Apply the definition and wait until its objects can be stored."""
    api.apply_text(CRD.read_text())
    wait_until(lambda: _is_established(api), "the definition is established")


def _is_established(api):
    conditions = api.call("GET", DEFINITION).get("status", {}).get("conditions") or ()
    if not any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
        return False
    with suppress(
        RefusedError
    ):  # its paths open a moment later, and that they are there is told by another part
        kinds = {found["kind"] for found in api.call("GET", GROUP)["resources"]}
        # Where there are none: Python may not be able to read those of another test.
        return "KernelContract" in kinds and "items" in api.call("GET", EMPTY)
    return False


def role(namespace, config_map=CONFIG_MAP):
    """The role that docs/operator.md writes down, bound to a service account of the namespace."""
    page = (ROOT / "docs" / "operator.md").read_text()
    (rules,) = (part.split("```")[0] for part in page.split("```yaml\n") if part.startswith("rules:"))
    named = rules.replace("paritas-contracts", config_map)
    place = {"name": ACCOUNT, "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": place},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": place, **yaml.safe_load(named)},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": place,
            "subjects": [{"kind": "ServiceAccount", **place}],
            "roleRef": {"apiGroup": group, "kind": "Role", "name": ACCOUNT},
        },
    ]


def allow(api, namespace):
    """Give the namespace's operator its role; return its token once the role is known."""
    api.apply(*role(namespace))
    account = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    attributes = {
        "namespace": namespace,
        "verb": "watch",
        "resource": "kernelcontracts",
        "group": "paritas.dev",
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": account, "resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    wait_until(lambda: api.call("POST", path, review)["status"]["allowed"], "the role is known")
    return api.account_token(namespace, ACCOUNT)


class Contracts:
    """The contracts of one namespace, as the administrator."""

    def __init__(self, api, namespace):
        self.api, self.namespace = api, namespace
        self.path = f"{GROUP}/namespaces/{namespace}/kernelcontracts"
        self.map_path = f"/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}"

    def put(self, text):
        """Apply a contract file as its object."""
        thing = object_of(text.encode(), "test.yaml")
        thing["metadata"]["namespace"] = self.namespace
        (stored,) = self.api.apply(thing)
        return stored

    def change(self, name, **body):
        """Change an object however wrong that makes it for the loader."""
        return self.api.call("PATCH", f"{self.path}/{name}", body, content_type=MERGE)

    def change_by_text(self, name, text):
        """Change an object by a text that Python itself may not be able to read or write."""
        self._ask(name, method="PATCH", data=text.encode(), headers={"content-type": MERGE})

    def text(self, name):
        """Return an object as the API server writes it."""
        return self._ask(name)

    def _ask(self, name, *, headers=(), **how):
        url, told = (
            f"{self.api.server}{self.path}/{name}",
            {"authorization": f"Bearer {ADMIN}", **dict(headers)},
        )
        request = urllib.request.Request(url, headers=told, **how)
        trusting = ssl.create_default_context(cafile=self.api.ca_file)
        with urllib.request.urlopen(request, timeout=REQUEST_S, context=trusting) as answer:
            return answer.read().decode()

    def get(self, name="rollout"):
        return self.api.call("GET", f"{self.path}/{name}")

    def delete(self, name="rollout"):
        self.api.call("DELETE", f"{self.path}/{name}")

    def status(self, name="rollout"):
        return self.get(name).get("status", {})

    def condition(self, about, name="rollout"):
        """Return (status, reason, message) of a condition; None before it is written."""
        for condition in self.status(name).get("conditions", ()):
            if condition["type"] == about:
                return condition["status"], condition["reason"], condition["message"]
        return None

    def wait(self, about, status, reason, *, name="rollout", alive=None):
        """Wait for a condition and return its message."""
        found = None

        def is_so():
            nonlocal found
            found = self.condition(about, name)
            assert alive is None or alive.process.poll() is None, alive.errors
            return found is not None and found[:2] == (status, reason)

        try:
            wait_until(is_so, f"{about} is {status} for {reason}")
        except AssertionError as error:
            raise AssertionError(f"{error}\nlast: {found}\n{alive.errors if alive else ''}") from None
        return found[2]

    def config_map(self):
        try:
            return self.api.call("GET", self.map_path)
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def texts(self):
        """What detectors mount; None where there is no ConfigMap."""
        found = self.config_map()
        return None if found is None else found.get("data", {})


class Operator(Command):
    """`paritas operator` of one namespace with a token, and its page; a context manager."""

    def __init__(self, api, token, *words):
        self.page = f"http://127.0.0.1:{free_port()}"
        given = ("--refresh-s", "0.5", "--health", self.page.removeprefix("http://"), *words)
        super().__init__("operator", *given, env=_environment(api, token))

    def ready(self):
        """Wait until a pass has reached the cluster."""

        def is_ready():
            assert self.process.poll() is None, self.errors
            return self.ask("/readyz")[0] == HTTPStatus.OK

        wait_until(is_ready, "the operator is ready")
        return self

    def ask(self, path):
        """Return (status, text) of its page; status 0 while it does not answer."""
        try:
            with urllib.request.urlopen(self.page + path, timeout=REQUEST_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def number(self, name):
        """Return a metric of its page."""
        lines = self.ask("/metrics")[1].splitlines()
        (found,) = (line.split()[-1] for line in lines if line.startswith(f"paritas_operator_{name} "))
        return float(found)

    def passes(self, count=2):
        """Wait for so many more whole passes."""
        begun = self.number("passes_total")
        wait_until(lambda: self.number("passes_total") >= begun + count, "passes")


def _environment(api, token):
    return {**os.environ, "KUBECONFIG": str(api.kubeconfig(token))}
