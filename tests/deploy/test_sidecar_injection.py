"""Injection by label on a real API server: what a pod is born with, and what is never touched."""

import shutil
import zlib

import pytest
import yaml
from deploy.parts import why_not
from deploy.sidecar_parts import (
    RESTRICTED,
    asking,
    container,
    follow,
    injection,
    names,
    places,
    pod,
    refusal,
    renamed,
    variables,
)
from system import parts
from system.kubernetes_api import MERGE, KubernetesApi, RefusedError, kubectl
from system.otel_parts import wait_until

from paritas.commands.agent_config import read_agent_config

MISSING = parts.why_not("kubernetes") or why_not("helm")  # asked here, as building takes long
pytestmark = pytest.mark.skipif(bool(MISSING), reason=str(MISSING))
TOKEN, CONFIG = "/var/run/secrets/kubernetes.io/serviceaccount", "paritas.dev/agent-config"
VOLUMES = ["paritas-agent-config", "paritas-run", "paritas-spool", "paritas-tmp", "paritas-no-token"]


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """One API server with the policy of the chart; it is followed when the fixture is there."""
    with KubernetesApi(tmp_path_factory.mktemp("kubernetes")) as opened:
        opened.namespace("paritas")
        follow(opened, *injection({"sidecar": {"engineEnv": {"PARITAS_RUN_ID": "grpo-7"}}}))
        yield opened


@pytest.fixture
def namespace(api, request):
    return api.namespace(f"t-{zlib.crc32(request.node.nodeid.encode()):08x}")


@pytest.fixture
def born(api, namespace):
    """Create a pod, as a controller does, and return what became of it."""
    return lambda asked: api.call("POST", f"/api/v1/namespaces/{namespace}/pods", asked)


def test_a_pod_with_the_label_is_born_with_the_agent(born):
    made = born(pod())
    assert names(made) == ["paritas-agent"]
    (agent,) = made["spec"]["initContainers"]
    assert agent["restartPolicy"] == "Always"
    assert agent["args"] == ["agent", "--config", "/etc/paritas/agent/agent.yaml"]
    assert "startupProbe" not in agent, (
        "an agent that nobody of this pod wrote may not keep the engine from starting"
    )
    assert agent["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 4319, "scheme": "HTTP"}
    assert (
        agent["resources"]["requests"] == agent["resources"]["limits"] == {"cpu": "250m", "memory": "256Mi"}
    )
    assert names(made, "volumes")[-5:] == VOLUMES
    told = {name: item["value"] for name, item in variables(made).items()}
    assert told == {
        "PARITAS_ENABLED": "1",
        "PARITAS_AGENT": "unix:/run/paritas/otlp.sock",
        "PARITAS_RUN_ID": "grpo-7",
    }
    assert places(made)["/run/paritas"] == "paritas-run"


def test_a_pod_without_it_is_as_it_was_asked_for(born):
    for label in (None, "false", "yes"):
        made = born(pod(label=label))
        assert "initContainers" not in made["spec"]
        assert "annotations" not in made["metadata"]
        assert not [name for name in names(made, "volumes") if name.startswith("paritas-")]
        assert variables(made) == {}


def test_the_agent_comes_first_and_the_pods_own_init_containers_keep_their_order(born):
    made = born(pod(initContainers=[container("fetch-weights"), container("warm", restartPolicy="Always")]))
    assert names(made) == ["paritas-agent", "fetch-weights", "warm"]


def test_the_configuration_travels_with_the_pod_and_is_what_the_agent_reads(born):
    made = born(pod())
    told = read_agent_config(made["metadata"]["annotations"][CONFIG].encode(), "agent.yaml")
    assert told.target.bootstrap == ("kafka-0.kafka:9092",)
    assert (told.receivers.any_user, told.health.listen) == (True, "0.0.0.0:4319")
    (volume,) = (v for v in made["spec"]["volumes"] if v["name"] == "paritas-agent-config")
    (item,) = volume["downwardAPI"]["items"]
    assert item["path"] == "agent.yaml"
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{CONFIG}']"


def test_a_pods_own_configuration_and_annotations_stay(born):
    made = born(pod(annotations={CONFIG: "mine: true", "note": "x"}))
    assert made["metadata"]["annotations"] == {CONFIG: "mine: true", "note": "x"}
    assert names(made) == ["paritas-agent"]


def test_changed_while_it_runs_it_reaches_the_pod_without_another_birth(api, namespace, born):
    made = born(pod())
    path = f"/api/v1/namespaces/{namespace}/pods/{made['metadata']['name']}"
    change = {"metadata": {"annotations": {CONFIG: "grace: 1s"}}}
    again = api.call("PATCH", path, change, content_type=MERGE)
    assert again["metadata"]["annotations"][CONFIG] == "grace: 1s"
    assert again["spec"] == made["spec"]


@pytest.mark.parametrize(
    ("asked", "watched"),
    [
        ("engine", [True, False, False]),
        ("engine, router", [True, True, False]),
        ("nobody", [False] * 3),
        ("", [False] * 3),
    ],
)
def test_the_annotation_says_which_containers_get_the_socket(born, asked, watched):
    three = [container("engine"), container("router"), container("logs")]
    made = born(pod(*three, annotations={"paritas.dev/containers": asked}))
    assert names(made) == ["paritas-agent"]
    assert ["/run/paritas" in places(made, at) for at in range(3)] == watched
    assert ["PARITAS_AGENT" in variables(made, at) for at in range(3)] == watched


def test_a_containers_own_variables_and_mounts_win(born):
    own = [
        {"name": "PARITAS_ENABLED", "value": "0"},
        {"name": "X", "value": "1"},
        {"name": "X", "value": "2"},
    ]
    shared = {"name": "mine", "emptyDir": {}}
    busy = container(env=own, volumeMounts=[{"name": "mine", "mountPath": "/run/paritas"}])
    made = born(pod(busy, container("second"), volumes=[shared]))
    first = made["spec"]["containers"][0]
    assert first["env"][:3] == own
    assert [item["name"] for item in first["env"][3:]] == ["PARITAS_AGENT", "PARITAS_RUN_ID"]
    assert (places(made, 0)["/run/paritas"], places(made, 1)["/run/paritas"]) == ("mine", "paritas-run")


def test_no_container_gains_or_loses_a_token_and_the_agent_has_none(born):
    made = born(pod(initContainers=[container("fetch")]))
    agent, fetch = made["spec"]["initContainers"]
    token = places(made)[TOKEN]
    assert token.startswith("kube-api-access-")
    assert {m["name"] for m in fetch["volumeMounts"]} == {token}
    assert {m["mountPath"]: m["name"] for m in agent["volumeMounts"]}[TOKEN] == "paritas-no-token"
    assert token not in {m["name"] for m in agent["volumeMounts"]}


def test_the_second_time_changes_nothing(api, namespace):
    asked = pod(name="engine")
    asked["metadata"]["namespace"] = namespace
    first, second = api.apply(asked, asked)
    assert second["spec"] == first["spec"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_what_was_injected_and_is_created_again_is_left_alone(born):
    """As a backup brings pods back, or a reinvoked admission sees them."""
    made = born(pod())
    again = pod()
    again["spec"] = made["spec"]
    assert names(born(again)) == ["paritas-agent"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kubectl_apply_of_the_same_file_changes_nothing(api, namespace, tmp_path):
    asked = pod(name="engine")
    asked["metadata"]["namespace"] = namespace
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(asked))
    assert kubectl(api, "apply", "-f", str(file)) == "pod/engine created\n"
    assert kubectl(api, "apply", "-f", str(file)) == "pod/engine unchanged\n"


TEMPLATES = {
    "Deployment": ("apps/v1", {"selector": {"matchLabels": {"paritas.dev/inject": "true"}}}),
    "StatefulSet": (
        "apps/v1",
        {"selector": {"matchLabels": {"paritas.dev/inject": "true"}}, "serviceName": "x"},
    ),
    "Job": ("batch/v1", {}),
}


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_template_is_left_as_it_is_and_its_pods_are_not(api, namespace, born, kind):
    """No controller runs here: the pod is created from the stored template, as one would."""
    version, spec = TEMPLATES[kind]
    asked = pod(restartPolicy="Never" if kind == "Job" else "Always")
    template = {"metadata": {"labels": asked["metadata"]["labels"]}, "spec": asked["spec"]}
    place = {"name": "engine", "namespace": namespace}
    (made,) = api.apply(
        {"apiVersion": version, "kind": kind, "metadata": place, "spec": {**spec, "template": template}}
    )
    assert "initContainers" not in made["spec"]["template"]["spec"]
    stored = made["spec"]["template"]
    one = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "engine-", "labels": stored["metadata"]["labels"]},
    }
    assert names(born({**one, "spec": stored["spec"]})) == ["paritas-agent"]


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always"])
def test_a_pod_that_ends_may_have_it(born, policy):
    made = born(pod(restartPolicy=policy))
    assert (made["spec"]["restartPolicy"], names(made)) == (policy, ["paritas-agent"])


LEFT = {
    "own agent": {"initContainers": [container("paritas-agent", restartPolicy="Always")]},
    "own volume": {"volumes": [{"name": "paritas-run", "emptyDir": {}}]},
    "host network": {"hostNetwork": True},
    "windows by selector": {"nodeSelector": {"kubernetes.io/os": "windows"}},
    "windows": {"os": {"name": "windows"}},
}


@pytest.mark.parametrize("why", LEFT)
def test_a_pod_that_it_could_harm_is_born_as_it_is(born, why):
    made = born(pod(**LEFT[why]))
    assert names(made) == [c["name"] for c in LEFT[why].get("initContainers", [])]
    assert CONFIG not in made["metadata"].get("annotations", {})
    assert "PARITAS_AGENT" not in variables(made)


def test_a_volume_of_a_like_name_is_no_hindrance(born):
    made = born(pod(volumes=[{"name": "paritas-models", "emptyDir": {}}]))
    assert names(made) == ["paritas-agent"]


def test_a_static_pods_mirror_is_left_alone(born):
    made = born(
        pod(
            annotations={"kubernetes.io/config.mirror": "x"},
            nodeName="node-1",
            automountServiceAccountToken=False,
        )
    )
    assert "initContainers" not in made["spec"]


def test_where_the_pod_has_limits_as_a_whole_the_agent_takes_of_them(born):
    made = born(pod(resources={"requests": {"cpu": "100m"}, "limits": {"cpu": "100m", "memory": "64Mi"}}))
    (agent,) = made["spec"]["initContainers"]
    assert "requests" not in agent["resources"]
    assert names(made) == ["paritas-agent"]


def test_a_guaranteed_pod_stays_guaranteed(born):
    whole = {"cpu": "8", "memory": "64Gi"}
    made = born(pod(container(resources={"requests": whole, "limits": whole})))
    assert made["status"]["qosClass"] == "Guaranteed"


def test_an_ephemeral_container_is_no_birth(api, namespace, born):
    name = born(pod(label=None))["metadata"]["name"]
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    api.call("PATCH", path, {"metadata": {"labels": {"paritas.dev/inject": "true"}}}, content_type=MERGE)
    debug = {"name": "debug", "image": "busybox", "targetContainerName": "engine"}
    change = {"spec": {"ephemeralContainers": [debug]}}
    made = api.call(
        "PATCH", f"{path}/ephemeralcontainers", change, content_type="application/strategic-merge-patch+json"
    )
    assert "initContainers" not in made["spec"]
    assert names(made, "ephemeralContainers") == ["debug"]


def test_system_namespaces_and_the_releases_own_are_excluded(api):
    for namespace in ("kube-system", "kube-public", "kube-node-lease", "paritas"):
        api.namespace(namespace)
        made = api.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod())
        assert "initContainers" not in made["spec"], namespace


def test_pod_security_restricted_admits_it_where_it_admits_the_engine(api, namespace, born):
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    api.call("PATCH", f"/api/v1/namespaces/{namespace}", label, content_type=MERGE)
    wait_until(lambda: refusal(born, pod(label=None)) != "", "the namespace is restricted")
    made = born(pod(container(securityContext=RESTRICTED)))
    assert names(made) == ["paritas-agent"]
    said = refusal(born, pod())
    assert 'container "engine" must set' in said
    assert "paritas-agent" not in said


def test_a_quota_counts_the_agent_and_says_so(api, namespace, born):
    place = {"name": "few", "namespace": namespace}
    api.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": place,
            "spec": {"hard": {"limits.cpu": "1"}},
        }
    )
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/few/status"  # no controller counts here
    api.call(
        "PATCH",
        path,
        {"status": {"hard": {"limits.cpu": "1"}, "used": {"limits.cpu": "0"}}},
        content_type=MERGE,
    )
    engine = container(resources={"limits": {"cpu": "900m"}})
    wait_until(lambda: refusal(born, pod(container(), label=None)) != "", "the quota is followed")
    assert refusal(born, pod(engine)).endswith(
        "requested: limits.cpu=1150m, used: limits.cpu=0, limited: limits.cpu=1"
    )
    assert refusal(born, pod(engine, label=None)) == ""


@pytest.mark.parametrize(("failure_policy", "is_born"), [("Ignore", True), ("Fail", False)])
def test_a_policy_that_fails_lets_the_pod_through_or_not_as_it_says(api, born, failure_policy, is_born):
    name = f"broken-{failure_policy.lower()}"
    policy, binding = renamed(name, {"sidecar": {"injection": {"failurePolicy": failure_policy}}})
    follow(api, policy, binding)
    (listed,) = (v for v in policy["spec"]["variables"] if v["name"] == "names")
    listed["expression"] = (
        "[string(1 / (object.spec.containers.size() - 1))]"  # fails for a pod of one container
    )
    api.apply(policy)

    def said():
        try:
            return names(born(asking(name)))
        except RefusedError as error:
            return str(error)

    wait_until(lambda: "paritas-agent" not in said() or "division" in said(), "the broken policy is followed")
    if is_born:
        assert said() == []
        made = born(asking(name))  # and nothing of the agent is left in it
        assert "annotations" not in made["metadata"]
        assert not [volume for volume in names(made, "volumes") if volume.startswith("paritas-")]
    else:
        assert "division by zero" in said()


def test_waiting_for_the_agent_can_be_asked_for(api, born):
    follow(api, *renamed("waits", {"sidecar": {"injection": {"waitForAgent": True}}}))
    (agent,) = born(asking("waits"))["spec"]["initContainers"]
    assert agent["startupProbe"]["httpGet"]["path"] == "/healthz"


def test_half_a_processor_is_half_a_processor(api, born):
    half = {"cpu": 0.5, "memory": 268435456}
    follow(api, *renamed("half", {"sidecar": {"resources": {"limits": half, "requests": half}}}))
    (agent,) = born(asking("half"))["spec"]["initContainers"]
    assert (
        agent["resources"]["limits"]
        == agent["resources"]["requests"]
        == {"cpu": "500m", "memory": "268435456"}
    )


def test_no_namespace_needs_to_be_excluded(api, born):
    everywhere = {"excludedNamespaces": [], "excludeReleaseNamespace": False}
    follow(api, *renamed("everywhere", {"sidecar": {"injection": everywhere}}))
    assert names(born(asking("everywhere"))) == ["paritas-agent"]


def test_secrets_are_named_and_a_missing_one_does_not_hold_the_pod(api, born):
    secure = {
        "kafka": {
            "tls": {"enabled": True, "secretName": "kafka-tls"},
            "sasl": {"mechanism": "SCRAM-SHA-512", "username": "pod", "secretName": "kafka-password"},
        },
        "sidecar": {"tokenKey": {"secretName": "token-key"}},
    }
    follow(api, *renamed("secrets", secure))
    made = born(asking("secrets"))
    secrets = {v["secret"]["secretName"]: v["secret"] for v in made["spec"]["volumes"] if "secret" in v}
    assert set(secrets) == {"kafka-tls", "kafka-password"}
    assert {(s["optional"], oct(s["defaultMode"])) for s in secrets.values()} == {(True, "0o444")}
    reference = variables(made)["PARITAS_TOKEN_SECRET"]["valueFrom"]["secretKeyRef"]
    assert reference == {"name": "token-key", "key": "token.key", "optional": True}


def test_only_the_named_namespaces_if_some_are_named(api, namespace):
    inside = api.namespace("inside")
    policy, binding = renamed(
        "some", {"sidecar": {"injection": {"namespaces": ["inside", "probe-some-paritas-sidecar"]}}}
    )
    follow(api, policy, binding)

    def found(where):
        return names(api.call("POST", f"/api/v1/namespaces/{where}/pods", asking("some")))

    assert (found(inside), found(namespace)) == (["paritas-agent"], [])
