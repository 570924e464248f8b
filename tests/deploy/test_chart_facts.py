"""What must hold in every render: who may do what, what is the cluster's, what a change restarts."""

import base64

import pytest
import yaml
from deploy.chart_cases import CASES, containers, named, pod_of, rendered, workloads
from deploy.helm_setup import CHART, render
from deploy.parts import why_not

pytestmark = pytest.mark.skipif(why_not("helm") is not None, reason=str(why_not("helm")))
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
each_case = pytest.mark.parametrize("case", CASES)


@each_case
def test_every_container_is_restricted(case):
    for thing in workloads(rendered(case)):
        spec = pod_of(thing)["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), thing["metadata"]["name"]
        assert spec["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert not any("hostPath" in volume for volume in spec["volumes"])
        for container in containers(thing):
            assert container["securityContext"] == RESTRICTED, container["name"]
            assert {"requests", "limits"} <= set(container["resources"]), container["name"]


def test_the_guaranteed_preset_asks_for_all_it_may_use():
    seen = [c for thing in workloads(rendered("guaranteed")) for c in containers(thing)]
    assert len(seen) >= 6
    for container in seen:
        assert container["resources"]["requests"] == container["resources"]["limits"], container["name"]
    burstable = [c for thing in workloads(rendered("minimal")) for c in containers(thing)]
    for container in burstable:
        asked, limits = container["resources"]["requests"], container["resources"]["limits"]
        assert asked["memory"] == limits["memory"], "memory cannot be taken back, so it is asked for in full"
        assert asked["cpu"] != limits["cpu"]


@each_case
def test_only_the_controller_can_be_out_of_service(case):
    ready = {c["name"] for t in workloads(rendered(case)) for c in containers(t) if "readinessProbe" in c}
    assert ready == (set() if case in ("no-health", "sidecar-only") else {"controller"})


@each_case
def test_the_health_test_asks_again_but_ends_before_helm_gives_up(case):
    """Just after an install not everything is ready; Helm waits five minutes for a test."""
    for pod in (o for o in rendered(case) if o["kind"] == "Pod"):
        assert pod["spec"]["restartPolicy"] == "OnFailure"
        assert 120 <= pod["spec"]["activeDeadlineSeconds"] < 300


@each_case
def test_a_secret_stands_in_secrets_only(case):
    objects = rendered(case)
    secrets = {
        base64.b64decode(v).decode() for o in objects if o["kind"] == "Secret" for v in o["data"].values()
    }
    secrets = {s for s in secrets if "BEGIN CERTIFICATE" not in s}
    rest = yaml.safe_dump_all([o for o in objects if o["kind"] != "Secret"])
    for secret in secrets:
        assert secret not in rest
        assert base64.b64encode(secret.encode()).decode() not in rest
    for thing in workloads(objects):
        for container in containers(thing):
            assert not [e for e in container["env"] if "secretKeyRef" in str(e)], (
                "variables end up in dumps and children"
            )


@each_case
def test_only_those_who_ask_have_roles_and_only_two_things_are_the_clusters(case):
    objects = rendered(case)
    components = {
        o["metadata"]["labels"]["app.kubernetes.io/component"] for o in objects if "Role" in o["kind"]
    }
    assert components <= {"roster", "operator"} | ({"controller"} if case == "routing" else set())
    clusters = {o["kind"] for o in objects if "namespace" not in o["metadata"]} - {"ConfigMap"}
    if case not in ("operator", "operator-all-namespaces"):
        assert clusters <= {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
    assert not [o for o in objects if o["metadata"].get("namespace") == "default"]


@each_case
def test_only_who_asks_the_api_server_gets_a_token(case):
    objects = rendered(case)
    holders = {
        pod_of(w)["metadata"]["labels"]["app.kubernetes.io/component"]
        for w in workloads(objects)
        if pod_of(w)["spec"]["automountServiceAccountToken"]
    }
    wanted = {"roster", "operator"} & {
        w["metadata"]["labels"]["app.kubernetes.io/component"] for w in workloads(objects)
    }
    assert holders == wanted | ({"controller"} if case == "routing" else set())
    for account in (o for o in objects if o["kind"] == "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False


def test_roles_say_what_is_needed_and_no_more():
    routing, roster = rendered("routing"), rendered("roster")
    (driver,) = (o for o in routing if o["kind"] == "Role")
    assert (driver["metadata"]["namespace"], driver["rules"]) == (
        "serving",
        [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "patch"]}],
    )
    roles = [o for o in roster if o["kind"] == "Role"]
    assert [r["metadata"]["namespace"] for r in roles] == ["serving", "training"]
    assert all(
        r["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}] for r in roles
    )
    operator = named(rendered("operator"), "Role", "demo-paritas-operator")
    assert operator["rules"] == [
        {"apiGroups": ["paritas.dev"], "resources": ["kernelcontracts"], "verbs": ["list", "watch"]},
        {"apiGroups": ["paritas.dev"], "resources": ["kernelcontracts/status"], "verbs": ["patch"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["paritas-contracts"],
            "verbs": ["get", "create", "patch"],
        },
    ]
    everywhere = [
        o["kind"] for o in rendered("operator-all-namespaces") if o["kind"].endswith(("Role", "RoleBinding"))
    ]
    assert everywhere == ["ClusterRole", "ClusterRoleBinding"]
    for objects in (routing, roster, rendered("operator"), rendered("operator-all-namespaces")):
        assert_bindings_reach(objects)


def test_a_changed_contract_restarts_nothing_and_changed_brokers_do():
    file = CHART / "ci/minimal-values.yaml"
    before = {named_as(o): o for o in rendered("minimal")}
    contract = {named_as(o): o for o in render([file, {"contracts": {"dense": "kind: Changed"}}], "1.37")}
    brokers = {named_as(o): o for o in render([file, {"kafka": {"bootstrap": ["other:9092"]}}], "1.37")}
    assert changed(before, contract) == {("ConfigMap", "demo-paritas-contracts")}
    assert changed(before, brokers) == {
        ("ConfigMap", "demo-paritas-kafka"),
        ("ConfigMap", "demo-paritas-topics"),
        ("StatefulSet", "demo-paritas-detect-dense"),
    }


def test_routes_restart_the_controller_alone():
    file = CHART / "ci/routing-values.yaml"
    before = {named_as(o): o for o in rendered("routing")}
    after = {named_as(o): o for o in render([file, {"controller": {"routes": "routes: []"}}], "1.37")}
    assert changed(before, after) == {
        ("ConfigMap", "demo-paritas-routes"),
        ("StatefulSet", "demo-paritas-controller"),
    }


@pytest.mark.parametrize("case", ["minimal", "scheduling"])
def test_everything_a_pod_may_be_given_reaches_it(case):
    given = yaml.safe_load((CHART / f"ci/{case}-values.yaml").read_text()).get("controller", {})
    pod = pod_of(
        named(rendered(case), "StatefulSet", f"demo-{'contracts' if given else 'paritas'}-controller")
    )
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    for field in (
        "nodeSelector",
        "tolerations",
        "affinity",
        "topologySpreadConstraints",
        "priorityClassName",
    ):
        assert spec.get(field) == given.get(field)
    assert spec["terminationGracePeriodSeconds"] == given.get("terminationGracePeriodSeconds", 30)
    if given:
        assert given["podLabels"].items() <= pod["metadata"]["labels"].items()
        assert given["podAnnotations"].items() <= pod["metadata"]["annotations"].items()
        assert container["resources"] == given["resources"]
        assert given["extraEnv"][0] in container["env"]
        assert given["extraVolumes"][0] in spec["volumes"]
        assert given["extraVolumeMounts"][0] in container["volumeMounts"]
        assert spec["serviceAccountName"] == "ours"
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
        assert container["image"].startswith("registry.example:5000/paritas-dev/paritas@sha256:0123")


def assert_bindings_reach(objects):
    accounts = {o["metadata"]["name"] for o in objects if o["kind"] == "ServiceAccount"}
    roles = {(o["kind"], o["metadata"]["name"], o["metadata"].get("namespace")) for o in objects}
    for binding in (o for o in objects if o["kind"].endswith("RoleBinding")):
        (subject,) = binding["subjects"]
        assert subject["name"] in accounts
        assert subject["namespace"] == "paritas"
        ref = binding["roleRef"]
        assert (ref["kind"], ref["name"], binding["metadata"].get("namespace")) in roles


def named_as(thing):
    return thing["kind"], thing["metadata"]["name"]


def changed(before, after):
    return {k for k in before.keys() | after.keys() if k[0] != "Secret" and before.get(k) != after.get(k)}
