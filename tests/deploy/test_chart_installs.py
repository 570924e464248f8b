"""The chart on a real API server, which checks, defaults and refuses; no kubelet runs what it stores.

So nobody waits for pods: a hook's Job and the pod of ``helm test`` are said to be done by hand.
"""

import base64
import json
import threading
import zlib
from datetime import UTC, datetime

import pytest
import yaml
from cryptography.x509 import load_pem_x509_certificate
from deploy.chart_cases import CASES, containers, pod_of, rendered, workloads
from deploy.crds_of_others import crds
from deploy.helm_setup import CHART, HelmError, helm
from deploy.odd_values import ODD
from deploy.parts import why_not
from system.kubernetes_api import MERGE, KubernetesApi, RefusedError
from system.otel_parts import wait_until
from system.parts import why_not as why_no_system_part

# Asked here: what has to be built takes longer than a test may.
MISSING = why_not("helm") or why_not("definitions") or why_no_system_part("kubernetes")
MINIMAL = CHART / "ci/minimal-values.yaml"
OWNING = ("--take-ownership",)  # of the definition that an operator before has left
SECRETS = (
    "demo-paritas-access",
    "demo-paritas-admin-token",
    "demo-paritas-controller-tls",
    "demo-paritas-detectors-token",
    "demo-paritas-subscriber-token",
)
TLS, ENDS = SECRETS[2], "paritas.dev/not-after"


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """One API server with the kinds of others, and the namespaces that values files name."""
    if MISSING:
        pytest.skip(MISSING)
    with KubernetesApi(tmp_path_factory.mktemp("kubernetes")) as opened:
        opened.apply(*crds())
        for crd in crds():
            wait_until(lambda crd=crd: is_established(opened, crd), f"{crd['metadata']['name']} is served")
        for name in ("serving", "training"):
            opened.namespace(name)
        yield opened


@pytest.fixture
def release(api, request):
    """A release `demo` in a namespace of its own that admits restricted pods only."""
    name = f"t{zlib.crc32(request.node.name.encode()):08x}"
    with Release(api, namespace(api, name)) as made:
        yield made


class Release:
    """A release `demo`; it is uninstalled at the end."""

    def __init__(self, api, namespace):
        self.api, self.namespace = api, namespace
        self.kubeconfig = api.kubeconfig()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.helm("uninstall", "demo", "--ignore-not-found", "--no-hooks")

    def helm(self, verb, *arguments):
        return helm(verb, *arguments, "--namespace", self.namespace, kubeconfig=self.kubeconfig)

    def install(self, *arguments):
        return self.helm("install", "demo", CHART, "--no-hooks", *values(arguments))

    def upgrade(self, *arguments):
        return self.helm("upgrade", "demo", CHART, "--no-hooks", *values(arguments))

    def get(self, resource, name, group="api/v1"):
        return self.api.call("GET", f"/{group}/namespaces/{self.namespace}/{resource}/{name}")

    def ends_s(self):
        """When the certificate ends, in Unix time, as its secret says."""
        return int(self.get("secrets", TLS)["metadata"]["annotations"][ENDS])

    def secrets(self):
        return {name: self.get("secrets", name)["data"] for name in SECRETS}


@pytest.mark.parametrize("case", CASES)
def test_it_installs_and_its_pods_are_admitted(release, case):
    release.install(CHART / f"ci/{case}-values.yaml", *OWNING)
    for thing in workloads(rendered(case)):
        admitted = release.api.call(
            "POST", f"/api/v1/namespaces/{release.namespace}/pods?dryRun=All", pod_alone(thing)
        )
        assert len(admitted["spec"]["containers"]) == len(containers(thing))


def test_names_of_digits_and_flags_are_names(release, tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(ODD))
    for name in ("123", "no", "off"):
        release.api.namespace(name)
    release.install(file)
    detector = release.get("statefulsets", "demo-paritas-detect-on", "apis/apps/v1")
    admitted = release.api.call(
        "POST", f"/api/v1/namespaces/{release.namespace}/pods?dryRun=All", pod_alone(detector)
    )
    assert admitted["metadata"]["labels"]["paritas.dev/contract"] == "on"
    bound = release.api.call(
        "GET", "/apis/rbac.authorization.k8s.io/v1/namespaces/no/rolebindings/demo-paritas-label-driver"
    )
    assert bound["subjects"] == [{"kind": "ServiceAccount", "name": "9", "namespace": release.namespace}]


@pytest.mark.thorough
def test_a_release_goes_from_each_values_file_to_the_next(release):
    release.install(MINIMAL)
    for number, case in enumerate(CASES, 2):
        release.upgrade(CHART / f"ci/{case}-values.yaml", *OWNING)
        shown = json.loads(release.helm("status", "demo", "--output", "json"))
        assert (shown["version"], shown["info"]["status"]) == (number, "deployed"), case
    release.upgrade(MINIMAL)


def test_an_upgrade_keeps_what_was_made_and_a_lost_token_is_made_anew(release):
    release.install(MINIMAL)
    before = release.secrets()
    release.upgrade(MINIMAL, "--set", "resourcesPreset=guaranteed")
    assert release.secrets() == before
    release.api.call("DELETE", f"/api/v1/namespaces/{release.namespace}/secrets/demo-paritas-admin-token")
    release.upgrade(MINIMAL)
    after = release.secrets()
    assert changed(before, after) == {"demo-paritas-access", "demo-paritas-admin-token"}
    release.upgrade(MINIMAL, "--set", "controller.tls.dnsNames={paritas.example}")
    assert changed(after, release.secrets()) == {"demo-paritas-controller-tls"}
    release.upgrade(MINIMAL, "--set", "controller.tls.dnsNames={paritas.example}")
    assert len(pods_checksums(release)) == 1


@pytest.mark.parametrize(
    ("left_h", "is_renewed"), [(9, False), (7, True), (-1, True), (None, False)], ids=str
)
def test_an_upgrade_renews_a_certificate_in_its_last_third_and_not_before(release, left_h, is_renewed):
    day = (MINIMAL, "--set", "controller.tls.validityDays=1")
    release.install(*day)
    before, first = release.secrets(), pods_checksums(release)
    mark = None if left_h is None else str(release.ends_s() - (24 - left_h) * 3600)
    place, told = f"/api/v1/namespaces/{release.namespace}/secrets/{TLS}", {"annotations": {ENDS: mark}}
    release.api.call("PATCH", place, {"metadata": told}, content_type=MERGE)
    said, after = release.upgrade(*day), release.secrets()
    assert changed(before, after) == ({TLS} if is_renewed else set())
    assert len(first | pods_checksums(release)) == (2 if is_renewed else 1)
    assert ("was near its end, so this upgrade made a new one" in said) == is_renewed
    assert ("Nothing there says when it ends" in said) == (mark is None)
    said = release.upgrade(*day)
    assert (release.secrets(), "[WARNING]" in said) == (after, False)
    if is_renewed:
        certificate = load_pem_x509_certificate(base64.b64decode(after[TLS]["tls.crt"]))
        assert 0 <= certificate.not_valid_after_utc.timestamp() - release.ends_s() < 300


def test_a_rollback_brings_the_contract_back_and_keeps_the_tokens(release):
    release.install(MINIMAL)
    first, tokens = release.get("configmaps", "demo-paritas-contracts")["data"], release.secrets()
    release.upgrade(MINIMAL, "--set", "contracts.dense=changed")
    assert release.get("configmaps", "demo-paritas-contracts")["data"] == {"dense.yaml": "changed\n"}
    release.helm("rollback", "demo", "1", "--no-hooks")
    assert release.get("configmaps", "demo-paritas-contracts")["data"] == first
    assert release.secrets() == tokens


def test_uninstalling_leaves_the_volumes(release):
    release.install(MINIMAL)
    stateful = release.get("statefulsets", "demo-paritas-controller", "apis/apps/v1")
    assert stateful["spec"]["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }
    (claim,) = stateful["spec"]["volumeClaimTemplates"]
    name = "state-demo-paritas-controller-0"  # as the StatefulSet controller makes it
    made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": claim["spec"]}
    place = {"name": name, "namespace": release.namespace, "labels": claim["metadata"]["labels"]}
    release.api.apply(made | {"metadata": place})
    release.helm("uninstall", "demo", "--no-hooks")
    assert (
        release.get("persistentvolumeclaims", name)["metadata"]["labels"]["app.kubernetes.io/instance"]
        == "demo"
    )
    for lost, group in (
        ("statefulsets/demo-paritas-controller", "apis/apps/v1"),
        ("secrets/demo-paritas-access", "api/v1"),
    ):
        with pytest.raises(RefusedError) as refused:
            release.get(*lost.split("/"), group)
        assert refused.value.status == 404


def test_another_size_of_a_volume_is_refused_and_changes_nothing(release):
    release.install(MINIMAL)
    with pytest.raises(HelmError) as refused:
        release.upgrade(MINIMAL, "--set", "controller.persistence.size=9Gi")
    said = str(refused.value)
    assert 'cannot patch "demo-paritas-controller" with kind StatefulSet' in said
    assert "spec.volumeClaimTemplates" in said
    assert said.endswith("field is immutable")
    stateful = release.get("statefulsets", "demo-paritas-controller", "apis/apps/v1")
    assert stateful["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "2Gi"
    release.upgrade(MINIMAL)


def test_topics_are_made_before_anything_else_and_the_job_goes(release):
    with DoneByHand(release, "batch", "jobs", "demo-paritas-topics", JOB_DONE) as seen:
        said = release.helm("install", "demo", CHART, "--values", MINIMAL, "--timeout", "60s")
    assert seen == {"statefulsets": []}
    assert said.split("NOTES:\n")[1].strip() == notes(release.namespace, release.ends_s())
    for resource, group in (("jobs", "apis/batch/v1"), ("configmaps", "api/v1")):
        with pytest.raises(RefusedError) as refused:
            release.get(resource, "demo-paritas-topics", group)
        assert refused.value.status == 404


def test_helm_test_runs_the_health_command_on_every_page(release):
    release.install(MINIMAL)
    with DoneByHand(release, "", "pods", "demo-paritas-health", {"status": {"phase": "Succeeded"}}):
        said = release.helm("test", "demo", "--timeout", "60s")
    assert "Phase:          Succeeded" in said


def test_the_operators_definition_stays_and_takes_a_contract(release):
    release.install(CHART / "ci/operator-values.yaml", *OWNING)
    spec = {"preset": "dense-bf16"}
    contract = {
        "apiVersion": "paritas.dev/v1",
        "kind": "KernelContract",
        "metadata": {"name": "dense"},
        "spec": spec,
    }
    contract["metadata"] |= {"namespace": release.namespace}
    wait_until(
        lambda: is_served(release.api, "paritas.dev/v1", "KernelContract"), "KernelContracts are served"
    )
    release.api.apply(contract)
    release.helm("uninstall", "demo", "--no-hooks")
    kept = release.api.call(
        "GET", f"/apis/paritas.dev/v1/namespaces/{release.namespace}/kernelcontracts/dense"
    )
    assert kept["spec"]["preset"] == "dense-bf16"


@pytest.mark.parametrize(
    ("case", "component", "place", "may"),
    [
        ("routing", "controller", "serving", ("patch", "pods")),
        ("roster", "roster", "training", ("watch", "pods")),
    ],
)
def test_an_account_may_what_it_needs_where_it_needs_it(release, case, component, place, may):
    release.install(CHART / f"ci/{case}-values.yaml")
    user = f"system:serviceaccount:{release.namespace}:demo-paritas-{component}"
    release.api.wait_allowed(user, *may, place)
    for verb, resource, where in (
        (*may, "default"),
        ("get", "secrets", place),
        ("delete", "pods", place),
        ("get", "secrets", release.namespace),
    ):
        assert not is_allowed(release.api, user, verb, resource, where), (verb, resource, where)


JOB_DONE = {
    "status": {
        "startTime": "2026-01-01T00:00:00Z",
        "completionTime": "2026-01-01T00:00:01Z",
        "succeeded": 1,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}
            for kind in ("SuccessCriteriaMet", "Complete")
        ],
    }
}


class DoneByHand:
    """While this is open, the named object is said to be done as soon as it is there; yields what there was then."""

    def __init__(self, release, group, resource, name, status):
        self._release, self._status = release, status
        root = f"apis/{group}/v1" if group else "api/v1"
        self._path = f"/{root}/namespaces/{release.namespace}/{resource}/{name}"
        self._seen = {}
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self._seen

    def __exit__(self, *_):
        self._thread.join()

    def _run(self):
        api, namespace = self._release.api, self._release.namespace
        wait_until(self._is_there, f"{self._path} is there")
        found = api.call("GET", f"/apis/apps/v1/namespaces/{namespace}/statefulsets")["items"]
        self._seen["statefulsets"] = [f["metadata"]["name"] for f in found]
        api.call("PATCH", f"{self._path}/status", self._status, content_type=MERGE)

    def _is_there(self):
        try:
            return bool(self._release.api.call("GET", self._path))
        except RefusedError:
            return False


def values(arguments):
    return [word for a in arguments for word in (("--values", a) if not isinstance(a, str) else (a,))]


def namespace(api, name):
    api.namespace(name)
    levels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    api.call("PATCH", f"/api/v1/namespaces/{name}", {"metadata": {"labels": levels}}, content_type=MERGE)
    return name


def pod_alone(thing):
    """The pod of a workload as its controller would make it; a claim's volume is a folder here."""
    pod = pod_of(thing)
    claims = [c["metadata"]["name"] for c in thing["spec"].get("volumeClaimTemplates", ())]
    volumes = [*pod["spec"].get("volumes", ()), *({"name": name, "emptyDir": {}} for name in claims)]
    labels = pod["metadata"]["labels"]
    spec = pod["spec"] | {"volumes": volumes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone", "labels": labels}, "spec": spec}


def changed(before, after):
    return {name for name in before if before[name] != after[name]}


def pods_checksums(release):
    """The distinct checksums of the names in the certificate."""
    names = ("demo-paritas-controller", "demo-paritas-detect-dense")
    found = (release.get("statefulsets", name, "apis/apps/v1") for name in names)
    return {f["spec"]["template"]["metadata"]["annotations"]["checksum/names"] for f in found}


def is_allowed(api, user, verb, resource, place):
    attributes = {"namespace": place, "verb": verb, "resource": resource}
    review = {"spec": {"user": user, "resourceAttributes": attributes}}
    review |= {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    return api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]


def is_established(api, crd):
    found = api.call(
        "GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
    )
    group = f"{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}"
    conditions = {c["type"]: c["status"] for c in found.get("status", {}).get("conditions", ())}
    return conditions.get("Established") == "True" and is_served(api, group, crd["spec"]["names"]["kind"])


def is_served(api, group, kind):
    try:
        return kind in {r["kind"] for r in api.call("GET", f"/apis/{group}")["resources"]}
    except RefusedError:
        return False


def notes(namespace, ends_s):
    ends = datetime.fromtimestamp(ends_s, UTC).date()
    return f"""Paritas 0.1.0 is installed as demo in {namespace}.

  controller   demo-paritas-controller.{namespace}.svc:4320 (gRPC with TLS)
  detectors    dense (process)
  spans        topic otlp_spans on kafka-0.kafka:9092

Next:
  1. Ask whether everything does its work:
       helm test demo --namespace {namespace}
  2. Bring an agent to an engine: label its pods `paritas.dev/inject: "true"`
     (sidecar.injection.enabled, Kubernetes 1.36 and newer), or put the sidecar
     into its own manifests (docs/deploy.md).
  3. See what happened:
       kubectl --namespace {namespace} exec demo-paritas-controller-0 -- paritas incidents list
  4. Let others in. Their token is in the secret demo-paritas-subscriber-token (admin-token
     for an administrator), whom to trust in ca.crt of demo-paritas-controller-tls.

[NOTE] The controller's certificate was made by Helm and is kept in demo-paritas-controller-tls.
  It ends on {ends}; a `helm upgrade` in its last 30 days (of a short one, in its last third) makes a new one.
  Tools that only render (helm template, Argo CD) would make another one each time:
  there, set controller.tls.mode to certManager or secret, and controller.access.mode to secret."""
