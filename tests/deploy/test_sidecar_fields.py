"""The sidecar as the chart renders it, field by field, each with why it is so."""

import pytest
from deploy.helm_setup import HelmError
from deploy.parts import why_not
from deploy.sidecar_parts import BROKERS, explicit, injection, shown

from paritas.commands.agent_config import read_agent_config

PORT = 4319
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture(autouse=True, scope="module")
def _helm():
    if reason := why_not("helm"):
        pytest.skip(reason)


@pytest.fixture(scope="module")
def template(_helm):
    return explicit(BROKERS)[0]


@pytest.fixture(scope="module")
def agent(template):
    (agent,) = template["spec"]["initContainers"]
    return agent


def sidecar(**values):
    """The sidecar and the pod's spec for these values of the section `sidecar`."""
    spec = explicit(BROKERS, {"sidecar": values})[0]["spec"]
    return spec["initContainers"][0], spec


def volumes(spec):
    return {v["name"]: {k: v[k] for k in v if k != "name"} for v in spec["volumes"]}


def test_it_starts_before_the_engine_ends_after_it_and_never_fails_its_pod(agent):
    assert agent["restartPolicy"] == "Always"


def test_it_is_the_agent_of_the_mounted_configuration(agent):
    assert "command" not in agent  # the image's entry point is the program
    assert agent["args"] == ["agent", "--config", "/etc/paritas/agent/agent.yaml"]
    assert agent["image"] == "ghcr.io/paritas-dev/paritas-agent:0.1.0"


def test_the_probes_ask_for_life_and_not_for_progress_so_that_no_outage_of_kafka_touches_the_engine(agent):
    page = {"path": "/healthz", "port": PORT}
    assert agent["startupProbe"] == {
        "httpGet": page,
        "periodSeconds": 1,  # the engine waits for it
        "timeoutSeconds": 5,
        "failureThreshold": 60,  # a spool of a gibibyte is looked through at the start
    }
    assert agent["livenessProbe"] == {
        "httpGet": page,
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": 6,  # a restart costs nothing but what is in memory; a busy node is no reason
    }
    assert "readinessProbe" not in agent


def test_fail_closed_makes_the_pod_ready_only_while_the_agent_ships():
    agent, _ = sidecar(failClosed=True)
    assert agent["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": PORT}


def test_the_engine_need_not_wait():
    agent, _ = sidecar(waitForAgent=False)
    assert "startupProbe" not in agent


def test_the_page_can_be_the_pods_own_and_is_then_asked_from_inside():
    agent, _ = sidecar(probes={"kind": "exec"}, port=4400)
    command = ["paritas", "health", "http://127.0.0.1:4400/healthz"]
    assert agent["livenessProbe"]["exec"]["command"] == agent["startupProbe"]["exec"]["command"] == command
    assert "ports" not in agent
    _, told = explicit(BROKERS, {"sidecar": {"probes": {"kind": "exec"}, "port": 4400}})
    assert configuration(told).health.listen == "127.0.0.1:4400"


def test_its_name_is_the_pods_because_the_roster_knows_pods(agent):
    """The host name is another one in an indexed Job's pod, on the node's network, and where it is made fully qualified."""
    (variable,) = agent["env"]
    field = {"fieldRef": {"fieldPath": "metadata.name"}}
    assert variable == {"name": "PARITAS_AGENT_NAME", "valueFrom": field}
    assert "name:" not in explicit(BROKERS)[1]["agent.yaml"]  # there it would be every pod's


def test_port_of_probes_page_and_container_are_one(agent):
    _, told = explicit(BROKERS)
    assert configuration(told).health.listen == f"0.0.0.0:{PORT}"  # the kubelet comes to the pod's address
    assert agent["ports"] == [{"name": "paritas-health", "containerPort": PORT, "protocol": "TCP"}]


def test_it_may_nothing(agent):
    assert agent["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_it_has_no_token_whatever_the_pods_account_is(agent, template):
    """A mount at that place keeps the API server from mounting the pod's token there."""
    (mount,) = (m for m in agent["volumeMounts"] if m["mountPath"] == TOKEN)
    assert mount["name"] == "paritas-no-token"
    assert volumes(template["spec"])["paritas-no-token"] == {
        "emptyDir": {"medium": "Memory", "sizeLimit": "4Ki"}
    }


def test_requests_are_limits_so_that_a_guaranteed_pod_stays_one(agent):
    assert (
        agent["resources"]["requests"] == agent["resources"]["limits"] == {"cpu": "250m", "memory": "256Mi"}
    )


def test_no_limit_of_ephemeral_storage_for_it_would_be_the_whole_pods(agent):
    """Where one container has one, the kubelet holds the sum over the containers against all that the pod writes."""
    assert "ephemeral-storage" not in agent["resources"]["limits"]


def test_the_socket_is_in_memory_and_shared_with_the_engine_alone(agent, template):
    assert volumes(template["spec"])["paritas-run"] == {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
    (engine,) = template["spec"]["containers"]
    assert engine["volumeMounts"] == [{"name": "paritas-run", "mountPath": "/run/paritas"}]
    told = {item["name"]: item["value"] for item in engine["env"]}
    assert told["PARITAS_AGENT"] == "unix:/run/paritas/otlp.sock"
    assert configuration(explicit(BROKERS)[1]).receivers.unix_path.as_posix() == "/run/paritas/otlp.sock"


def test_whoever_mounts_the_socket_may_send_unless_users_are_named():
    assert configuration(explicit(BROKERS)[1]).receivers.any_user
    receivers = configuration(explicit(BROKERS, {"sidecar": {"uids": [0, 1000]}})[1]).receivers
    assert (receivers.any_user, receivers.peer_uids) == (False, (0, 1000))


def test_the_spool_outlives_a_container_and_its_limit_is_never_what_evicts_the_pod(template):
    limit = volumes(template["spec"])["paritas-spool"]["emptyDir"]["sizeLimit"]
    assert limit == "1536Mi"
    assert configuration(explicit(BROKERS)[1]).spool.limit_bytes * 1.4 < 1536 * 1024**2


def test_a_volume_of_yours_can_hold_the_spool():
    claim = {"persistentVolumeClaim": {"claimName": "spool"}}
    agent, spec = sidecar(spool={"volume": claim, "subPathExpr": "$(PARITAS_AGENT_NAME)"})
    assert volumes(spec)["paritas-spool"] == claim
    (mount,) = (m for m in agent["volumeMounts"] if m["name"] == "paritas-spool")
    assert mount["subPathExpr"] == "$(PARITAS_AGENT_NAME)"


def test_the_last_words_of_a_crash_are_the_termination_message(agent):
    assert agent["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_the_configuration_is_a_directory_because_a_file_of_one_never_changes(agent, template):
    (mount,) = (m for m in agent["volumeMounts"] if m["name"] == "paritas-agent-config")
    assert mount == {"name": "paritas-agent-config", "mountPath": "/etc/paritas/agent", "readOnly": True}
    assert volumes(template["spec"])["paritas-agent-config"] == {"configMap": {"name": "paritas-agent"}}


def test_every_mount_has_its_volume_and_every_volume_a_mount():
    for values in (BROKERS, SECURE):
        spec = explicit(values)[0]["spec"]
        mounted = {m["name"] for c in spec["initContainers"] + spec["containers"] for m in c["volumeMounts"]}
        assert mounted == {v["name"] for v in spec["volumes"]}


def test_nothing_of_the_pod_as_a_whole_is_asked_for(template):
    """No fsGroup: it would change the owner of every file of the engine's own volumes."""
    assert "securityContext" not in template["spec"]
    assert "shareProcessNamespace" not in template["spec"]


SECURE = {
    "kafka": {
        "bootstrap": ["a:9093"],
        "tls": {"enabled": True, "secretName": "kafka-tls", "certificateKey": "tls.crt", "keyKey": "tls.key"},
        "sasl": {"mechanism": "SCRAM-SHA-512", "username": "pod", "secretName": "kafka-password"},
    }
}


def test_secrets_are_mounts_that_only_the_agent_has_and_the_configuration_names_their_files():
    template, told = explicit(SECURE)
    (agent,), (engine,) = template["spec"]["initContainers"], template["spec"]["containers"]
    places = {
        m["mountPath"]: m["name"]
        for m in agent["volumeMounts"]
        if m["mountPath"].startswith("/etc/paritas/secrets")
    }
    assert places == {
        "/etc/paritas/secrets/kafka-tls": "paritas-kafka-tls",
        "/etc/paritas/secrets/kafka-sasl": "paritas-kafka-sasl",
    }
    assert not {m["name"] for m in engine["volumeMounts"]} & set(places.values())
    assert "password_file: /etc/paritas/secrets/kafka-sasl/password" in told["agent.yaml"]
    assert "key_file: /etc/paritas/secrets/kafka-tls/tls.key" in told["agent.yaml"]
    modes = {v["secret"]["defaultMode"] for v in template["spec"]["volumes"] if "secret" in v}
    assert modes == {0o444}  # the files are root's, and the pod may have no group that is the agent's


def test_the_key_of_token_names_reaches_the_engine_by_reference():
    _, spec = sidecar(tokenKey={"secretName": "token-key"})
    (variable,) = (e for e in spec["containers"][0]["env"] if e["name"] == "PARITAS_TOKEN_SECRET")
    reference = {"name": "token-key", "key": "token.key", "optional": True}
    assert variable["valueFrom"] == {"secretKeyRef": reference}


def configuration(told):
    return read_agent_config(told["agent.yaml"].encode(), "agent.yaml")


def test_fields_of_the_configuration_can_be_added_and_large_numbers_stay_numbers():
    fields = {"spool": {"max_age": "1d", "limit_bytes": 5_000_000_000}, "shipping": {"batch_records": 64}}
    told = configuration(explicit(BROKERS, {"sidecar": {"config": fields}})[1])
    assert (told.spool.limit_bytes, told.spool.max_age_s) == (5_000_000_000, 86_400.0)
    assert (told.shipping.batch_records, told.grace_s) == (64, 5.0)


def test_without_brokers_the_chart_says_so():
    with pytest.raises(HelmError, match=r"kafka\.bootstrap is empty"):
        explicit({"kafka": {"bootstrap": []}})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"probes": {"kind": "tcp"}}, "/sidecar/probes/kind"),
        ({"failclosed": True}, "'failclosed' not allowed"),
        ({"injection": {"failurePolicy": "ignore"}}, "/sidecar/injection/failurePolicy"),
        ({"uids": [-1]}, "/sidecar/uids/0"),
        ({"grace": "5"}, "/sidecar/grace"),
    ],
)
def test_a_wrong_value_is_told_with_its_place(values, text):
    with pytest.raises(HelmError) as caught:
        explicit(BROKERS, {"sidecar": values})
    assert text in str(caught.value)


def test_the_configmap_is_made_in_the_named_namespaces():
    made = shown("sidecar-configmap.yaml", BROKERS, {"sidecar": {"namespaces": ["serving", "training"]}})
    places = [(m["kind"], m["metadata"]["namespace"], m["metadata"]["name"]) for m in made]
    assert places == [("ConfigMap", "serving", "paritas-agent"), ("ConfigMap", "training", "paritas-agent")]
    assert made[0]["data"]["agent.yaml"].strip() == explicit(BROKERS)[1]["agent.yaml"].strip()


def test_the_policy_asks_only_for_births_of_labelled_pods():
    policy, binding = injection()
    told = policy["spec"]["matchConstraints"]
    (rule,) = told["resourceRules"]
    assert (rule["operations"], rule["resources"], rule["apiGroups"]) == (["CREATE"], ["pods"], [""])
    assert told["objectSelector"] == {"matchLabels": {"paritas.dev/inject": "true"}}
    assert policy["spec"]["failurePolicy"] == "Ignore"  # rather a pod without an agent than none
    assert len(policy["spec"]["mutations"]) == 1  # of several the first ones stay where a later one fails
    assert binding["spec"] == {"policyName": policy["metadata"]["name"]}


@pytest.mark.parametrize(("version", "kube", "least"), [("v1", "1.35", "1.36"), ("v1beta1", "1.33", "1.34")])
def test_a_cluster_that_cannot_inject_is_told_what_it_can_do(version, kube, least):
    name = f"admissionregistration.k8s.io/{version}"
    with pytest.raises(HelmError) as caught:
        injection({"sidecar": {"injection": {"apiVersion": name}}}, kube=kube)
    assert f"sidecar.injection with apiVersion {name} needs Kubernetes {least}, and this is v{kube}" in str(
        caught.value
    )


def test_the_beta_of_older_clusters_can_be_chosen():
    beta = "admissionregistration.k8s.io/v1beta1"
    values = {"sidecar": {"injection": {"apiVersion": beta}}}
    assert {thing["apiVersion"] for thing in injection(values, kube="1.34")} == {beta}
