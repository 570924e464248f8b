"""Values that YAML, CEL or a cluster takes for something else: they arrive as they were given, or are refused."""

import re

import pytest
import yaml
from deploy.chart_cases import containers, named, options, pod_of, workloads
from deploy.helm_setup import CHART, HelmError, helm, render, render_text
from deploy.odd_values import ODD
from deploy.parts import why_not

pytestmark = pytest.mark.skipif(why_not("helm") is not None, reason=str(why_not("helm")))
KUBE = "1.37"
BROKERS = {"kafka": {"bootstrap": ["kafka:9092"]}}
CONTRACT = {"contracts": {"dense": "preset: dense-bf16"}}
TEXTS = {
    *(
        "name",
        "namespace",
        "secretName",
        "serviceAccountName",
        "priorityClassName",
        "storageClassName",
        "key",
        "path",
    ),
    *("topic", "ca_file", "username", "password_file", "kind", "value", "subPathExpr", "storage", "image"),
}


def leaves(thing, key=""):
    if isinstance(thing, dict):
        for name, value in thing.items():
            assert isinstance(name, str), name
            yield from leaves(value, key if key in ("labels", "annotations", "matchLabels") else name)
    elif isinstance(thing, list):
        for value in thing:
            yield from leaves(value, key)
    else:
        yield key, thing


def test_text_stays_text():
    objects = render([ODD], KUBE, namespace="123")
    held = [yaml.safe_load(o["data"]["kafka.yaml"]) for o in objects if "kafka.yaml" in (o.get("data") or {})]
    assert len(held) == 2
    for key, value in leaves([*objects, *held]):
        if key in TEXTS | {"labels", "annotations", "matchLabels", "args", "data"}:
            assert isinstance(value, str), (key, value)


def test_what_is_given_arrives_whole():
    objects = render([ODD], KUBE, namespace="123")
    detector = named(objects, "StatefulSet", "demo-paritas-detect-on")
    given = options(pod_of(detector)["spec"]["containers"][0])
    assert given["--deployment"] == "prod: eu #1"
    assert given["--floors"] == "/etc/paritas/floors/c: d"
    assert given["--otlp-metrics"] == "http://otel:4317/ #x"
    assert pod_of(detector)["spec"]["terminationGracePeriodSeconds"] == 3_000_000
    kafka = yaml.safe_load(named(objects, "ConfigMap", "demo-paritas-kafka")["data"]["kafka.yaml"])["kafka"]
    assert (kafka["topic"], kafka["tls"]["ca_file"]) == ("123", "/etc/paritas/secrets/kafka-tls/ca: #1")
    (claim,) = named(objects, "StatefulSet", "demo-paritas-controller")["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "1073741824"


@pytest.mark.parametrize("text", ["  # ours\npreset: dense-bf16\n", "\n\n  preset: lora\n", "a: |\n    b\n"])
def test_a_text_keeps_its_first_spaces(text):
    given = {"contracts": {"dense": text}, "controller": {"routes": text}}
    objects = render([BROKERS, given], KUBE)
    assert named(objects, "ConfigMap", "demo-paritas-contracts")["data"]["dense.yaml"] == text
    assert named(objects, "ConfigMap", "demo-paritas-routes")["data"]["routes.yaml"] == text


def test_a_great_number_is_written_out():
    """A values file's numbers are floats to Helm, and a million of them `1e+06` to whoever prints them."""
    flink = {"checkpointsDir": "s3://a/b", "settings": {"a.b": 134217728}, "kafkaSettings": {"c.d": 1048576}}
    flink["cluster"] = {"configuration": {"e.f": 134217728, "g": 0.5, "h": True}}
    objects = render([BROKERS, CONTRACT, {"detectors": {"engine": "flink", "flink": flink}}], KUBE)
    args = pod_of(named(objects, "StatefulSet", "demo-paritas-detect-dense"))["spec"]["containers"][0]["args"]
    assert {"--flink=a.b=134217728", "--kafka-setting=c.d=1048576"} <= set(args)
    told = named(objects, "FlinkDeployment", "demo-paritas-flink")["spec"]["flinkConfiguration"]
    assert (told["e.f"], told["g"], told["h"]) == ("134217728", "0.5", "true")


def test_an_injected_agent_gets_half_a_processor_and_the_engine_its_number():
    half = {"cpu": 0.5, "memory": 268435456}
    sidecar = {"injection": {"enabled": True}, "resources": {"limits": half, "requests": half}}
    sidecar["engineEnv"] = {"PARITAS_LIMIT": 16777216}
    text = render_text([BROKERS, {"sidecar": sidecar}], KUBE)
    assert text.count('{"cpu": dyn(0.5), "memory": dyn(268435456)}') == 2
    assert '{"name": dyn("PARITAS_LIMIT"), "value": dyn("16777216")}' in text


@pytest.mark.parametrize("excluded", [[], None])
def test_a_policy_without_exceptions_has_no_empty_one(excluded):
    given = {"enabled": True, "excludedNamespaces": excluded, "excludeReleaseNamespace": False}
    objects = render([BROKERS, {"sidecar": {"injection": given}}], KUBE)
    policy = named(objects, "MutatingAdmissionPolicy", "demo-paritas-sidecar")
    assert policy["spec"]["matchConstraints"]["namespaceSelector"] == {}
    objects = render([BROKERS, {"sidecar": {"injection": given | {"namespaces": ["rl"]}}}], KUBE)
    (only,) = named(objects, "MutatingAdmissionPolicy", "demo-paritas-sidecar")["spec"]["matchConstraints"][
        "namespaceSelector"
    ]["matchExpressions"]
    assert (only["operator"], only["values"]) == ("In", ["rl"])


class OneOfEach(yaml.SafeLoader):
    """Refuses a key that stands twice, as Kustomize and Flux do."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), keys
        return super().construct_mapping(node, deep)


def test_a_label_of_yours_takes_the_place_of_ours():
    ours = {"app.kubernetes.io/part-of": "ml", "team": "rl"}
    values = {
        "commonLabels": ours,
        "controller": {"podLabels": {"team": "ops", "app.kubernetes.io/version": "7"}},
    }
    text = render_text([BROKERS, CONTRACT, values], KUBE)
    objects = [o for o in yaml.load_all(text, OneOfEach) if o]
    controller = named(objects, "StatefulSet", "demo-paritas-controller")
    assert ours.items() <= controller["metadata"]["labels"].items()
    labels = pod_of(controller)["metadata"]["labels"]
    assert (labels["team"], labels["app.kubernetes.io/version"]) == ("ops", "7")
    assert labels["app.kubernetes.io/part-of"] == "ml"
    for thing in workloads(objects):
        assert thing["metadata"]["labels"]["team"] == "rl"
        assert containers(thing)


def test_where_only_tainted_nodes_are_the_install_does_not_wait_for_its_first_job():
    place = {"nodeSelector": {"pool": "cpu"}, "tolerations": [{"key": "pool", "operator": "Exists"}]}
    objects = render([BROKERS, {"controller": place}], KUBE)
    for kind, name in (("StatefulSet", "controller"), ("Job", "topics"), ("Pod", "health")):
        spec = pod_of(named(objects, kind, f"demo-paritas-{name}"))["spec"]
        assert {field: spec[field] for field in place} == place


def test_a_variable_of_yours_takes_the_place_of_ours():
    objects = render(
        [BROKERS, {"controller": {"extraEnv": [{"name": "HOME", "value": "/var/lib/paritas"}]}}], KUBE
    )
    (container,) = pod_of(named(objects, "StatefulSet", "demo-paritas-controller"))["spec"]["containers"]
    assert [e["name"] for e in container["env"]] == ["PARITAS_DATA", "PYTHONDONTWRITEBYTECODE", "HOME"]
    assert container["env"][-1]["value"] == "/var/lib/paritas"


@pytest.mark.parametrize(
    "empty",
    [
        {"contracts": None},
        {"contractsFrom": {"names": None}},
        {"controller": {"tls": {"dnsNames": None}}},
        {"sidecar": {"config": None, "namespaces": ["rl"]}},
        {"roster": {"enabled": True, "namespaces": None}},
    ],
)
def test_a_value_that_is_left_blank_is_an_empty_one(empty):
    assert render([BROKERS, empty], KUBE)


def test_a_target_that_is_down_is_known_whatever_the_release_is_called():
    """`up` of a target that is away says no more than its job; a PodMonitor's own would be its name."""
    values = {"fullnameOverride": "drift", "podMonitor": {"enabled": True}, "roster": {"enabled": True}}
    objects = render([BROKERS, CONTRACT, values], KUBE, namespace="ml")
    rules = yaml.safe_load((CHART / "files/rules/cluster.yaml").read_text())["groups"][0]["rules"]
    (down,) = (rule["expr"] for rule in rules if rule["alert"] == "ParitasDown")
    wanted = re.search(r'job=~"(.*)"', down)[1]
    monitors = [o for o in objects if o["kind"] == "PodMonitor"]
    assert len(monitors) == 4
    for monitor in monitors:
        (page,) = monitor["spec"]["podMetricsEndpoints"]
        (job,) = (r["replacement"] for r in page["relabelings"] if r["targetLabel"] == "job")
        assert re.fullmatch(wanted, job)


ALONE = {"serviceAccount": {"create": False}}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"fullnameOverride": "a.b"},
            (
                "no Service can be named a.b-controller: begin fullnameOverride with a letter, and write small letters, "
                "digits and '-' only"
            ),
        ),
        (
            {"fullnameOverride": "7b"},
            (
                "no Service can be named 7b-controller: begin fullnameOverride with a letter, and write small letters, "
                "digits and '-' only"
            ),
        ),
        (
            {"fullnameOverride": "demo", "nameOverride": f"{'a' * 39}.b"},
            f"no label can be {'a' * 39}.: shorten nameOverride to 40 characters",
        ),
        (
            {"roster": {"enabled": True, **ALONE}},
            (
                "roster.serviceAccount names no account of its own: what the roster may ask the API server would be granted to "
                "`default`, so to every pod of the namespace; name one, or let create make it"
            ),
        ),
        (
            {"controller": {"routes": "routes: []", "labelDriver": {"enabled": True}, **ALONE}},
            (
                "controller.serviceAccount names no account of its own: what the controller may ask the API server would be granted to "
                "`default`, so to every pod of the namespace; name one, or let create make it"
            ),
        ),
        (
            {"controller": {"serviceAccount": {"name": "x"}}, "detectors": {"serviceAccount": {"name": "x"}}},
            (
                "controller.serviceAccount and detectors.serviceAccount would both make the account x: give each its own "
                "name, or let only one create it"
            ),
        ),
    ],
)
def test_what_no_cluster_should_take_is_refused_with_what_to_write(values, said):
    assert refusal(values).endswith(f": \n  - {said}")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"commonLabels": {"paritas.dev/contract": "x"}}, "at '/commonLabels': 'not' failed"),
        ({"controller": {"podLabels": {"helm.sh/chart": "x"}}}, "at '/controller/podLabels': 'not' failed"),
        (
            {"roster": {"namespaces": ["rl", "rl"]}},
            "at '/roster/namespaces': items at 0 and 1 are equal",
        ),
        (
            {"controller": {"labelDriver": {"namespaces": ["a.b"]}}},
            "at '/controller/labelDriver/namespaces/0': 'a.b' does not match pattern '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'",
        ),
        (
            {"controller": {"tls": {"certManager": {"duration": "90d"}}}},
            "at '/controller/tls/certManager/duration': '90d' does not match pattern '^([0-9]+(\\\\.[0-9]+)?(h|m|s|ms))+$'",
        ),
        (
            {"podMonitor": {"interval": "1.5m"}},
            (
                "at '/podMonitor/interval': '1.5m' does not match pattern "
                "'^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$'"
            ),
        ),
    ],
)
def test_a_value_of_the_wrong_form_is_refused_by_its_place(values, said):
    assert f"- {said}" in refusal(values)


def test_a_release_of_digits_has_labels_of_text(tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(BROKERS | {"fullnameOverride": "seven", "nameOverride": "8"}))
    made = helm("template", "7", CHART, "--values", file, "--namespace", "9", "--kube-version", KUBE)
    for thing in (o for o in yaml.safe_load_all(made) if o):
        labels = thing["metadata"]["labels"]
        assert (labels["app.kubernetes.io/instance"], labels["app.kubernetes.io/name"]) == ("7", "8")
        assert thing["metadata"]["namespace"] == "9"


def refusal(values):
    with pytest.raises(HelmError) as refused:
        render_text([BROKERS, CONTRACT, values], KUBE)
    return str(refused.value)
