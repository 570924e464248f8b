"""Every values file renders for every version of Kubernetes and is valid there; what is wrong is refused in plain words."""

import re
import subprocess
import tarfile

import pytest
import yaml
from deploy.chart_cases import CASES, GOLDEN_KUBE, KUBES, kubes_of, rendered, rendered_text
from deploy.chart_files import held, meant
from deploy.chart_golden import golden_file, golden_text
from deploy.chart_readme import README, described, readme
from deploy.helm_setup import CHART, HelmError, helm, render_text
from deploy.parts import why_not
from deploy.tools_setup import tool

pytestmark = pytest.mark.skipif(why_not("helm") is not None, reason=str(why_not("helm")))
KINDS_OF_OTHERS = {"Certificate", "FlinkDeployment", "PodMonitor", "PrometheusRule"}
BROKERS = {"kafka": {"bootstrap": ["kafka:9092"], "topics": {"create": False}}}
CONTRACT = {"contracts": {"dense": "preset: dense-bf16"}}


@pytest.mark.parametrize("case", CASES)
def test_the_linter_says_nothing(case):
    values = CHART / "ci" / f"{case}-values.yaml"
    said = helm("lint", "--strict", CHART, "--kube-version", GOLDEN_KUBE, "--values", values)
    assert "0 chart(s) failed" in said
    assert re.findall(r"\[(?:WARNING|ERROR)\].*", said) == []


@pytest.mark.parametrize("kube", KUBES)
def test_every_render_is_valid_for_its_kubernetes(kube, tmp_path):
    if reason := why_not("tools"):
        pytest.skip(reason)
    files, seen = [], set()
    for case in (case for case in CASES if kube in kubes_of(case)):
        new = [text for text in re.split(r"(?m)^---$", rendered_text(case, kube)) if text not in seen]
        seen |= set(new)
        files.append(tmp_path / f"{case}.yaml")
        files[-1].write_text("---".join(new))
    command = [tool("kubernetes-validate"), "--strict", "--quiet", "-k", kube, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    unknown = {m[1] for line in said if (m := re.search(r"Couldn't find schema for kind (\w+)", line))}
    assert [line for line in said if "Couldn't find schema for kind" not in line] == []
    assert unknown <= KINDS_OF_OTHERS


@pytest.mark.parametrize("case", CASES)
def test_it_renders_what_is_committed(case):
    assert golden_file(case).read_text() == golden_text(case), (
        "python tests/deploy/chart_golden.py, and read the diff"
    )


def test_the_chart_holds_equal_copies_of_what_it_ships():
    assert held() == meant(), "python tests/deploy/chart_files.py"


def test_the_readme_describes_every_value():
    assert README.read_text() == readme(), "python tests/deploy/chart_readme.py"
    known = {name for name, _ in described()}
    assert {
        name
        for name in leaves(yaml.safe_load((CHART / "values.yaml").read_text()))
        if not covered(name, known)
    } == set()


def test_the_package_holds_what_templates_read_and_no_examples(tmp_path):
    helm("package", CHART, "--destination", tmp_path)
    with tarfile.open(tmp_path / "paritas-0.1.0.tgz") as packed:
        names = {name.removeprefix("paritas/") for name in packed.getnames()}
    assert set(held()) <= names
    assert {"Chart.yaml", "values.yaml", "values.schema.json", "README.md", "templates/NOTES.txt"} <= names
    assert not [name for name in names if name.startswith("ci/")]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {},
            (
                "kafka.bootstrap is empty: name the brokers, such as [kafka-0.kafka:9092]; to try Paritas without Kafka, "
                "run `paritas up` on one machine"
            ),
        ),
        (
            BROKERS | {"kafka": {"bootstrap": ["kafka:9092"], "sasl": {"mechanism": "PLAIN"}}},
            (
                "kafka.sasl.secretName is empty: name the secret that holds the password or the token\n"
                "  - kafka.sasl.username is empty: PLAIN needs one"
            ),
        ),
        (
            BROKERS | {"kafka": {"bootstrap": ["kafka:9092"], "tls": {"enabled": True, "keyKey": "tls.key"}}},
            "kafka.tls: a client certificate needs secretName, certificateKey and keyKey",
        ),
        (
            BROKERS | {"kafka": {"bootstrap": ["kafka:9092"], "tls": {"secretName": "ca"}}},
            "kafka.tls.secretName is set and kafka.tls.enabled is false: enable it",
        ),
        (
            BROKERS | CONTRACT | {"contractsFrom": {"configMap": "ours"}},
            "contracts and contractsFrom.configMap are both set: keep one",
        ),
        (
            BROKERS | CONTRACT | {"controller": {"enabled": False}},
            (
                "controller.enabled is false: detectors and operator need a controller, so leave contracts and operator "
                "to its release"
            ),
        ),
        (
            BROKERS | {"contractsFrom": {"names": ["dense"]}},
            "contractsFrom.names needs contractsFrom.configMap",
        ),
        (
            BROKERS | CONTRACT | {"operator": {"enabled": True}},
            (
                "operator.enabled makes the ConfigMap of contracts from KernelContract objects: move contracts into such "
                "objects, and name those that get a detector in contractsFrom.names\n"
                "  - operator.enabled needs contractsFrom.configMap: the ConfigMap that it writes, such as paritas-contracts"
            ),
        ),
        (
            BROKERS | {"contracts": {"a" * 40: "preset: dense-bf16"}},
            (
                f"the name demo-paritas-detect-{'a' * 40} has 60 characters, and a StatefulSet takes 52: set a short "
                "fullnameOverride, or shorten the contract's name"
            ),
        ),
        (
            BROKERS | {"controller": {"tls": {"mode": "secret"}}},
            (
                "controller.tls.secretName is empty: name the secret with tls.crt, tls.key and ca.crt, or take another "
                "controller.tls.mode"
            ),
        ),
        (
            BROKERS | {"controller": {"tls": {"mode": "certManager"}}},
            "controller.tls.certManager.issuerRef is empty: write {name: …, kind: ClusterIssuer}",
        ),
        (
            BROKERS | {"controller": {"tls": {"clientCaKey": "ca.crt"}}},
            "controller.tls.clientCaKey needs controller.tls.mode secret",
        ),
        (
            BROKERS | CONTRACT | {"controller": {"access": {"mode": "secret"}}},
            (
                "controller.access.secretName is empty: name the secret with the access file that `paritas access add` writes\n"
                "  - detectors.token.secretName is empty: with an access file of yours, name the secret with the detectors' "
                "token (role actor)"
            ),
        ),
        (
            BROKERS | {"controller": {"access": {"mode": "certificates"}}},
            (
                "controller.access.mode certificates needs controller.tls.clientCaKey: without it nobody can be told apart, "
                "and the controller refuses to start"
            ),
        ),
        (
            BROKERS
            | CONTRACT
            | {"controller": {"tls": {"mode": "secret", "secretName": "tls", "clientCaKey": "ca.crt"}}},
            "detectors.certificate.secretName is empty: the controller asks for clients' certificates",
        ),
        (
            BROKERS | {"controller": {"promotion": {"keys": {"secretName": "a", "configMap": "b"}}}},
            "controller.promotion.keys: name a secret or a ConfigMap, not both",
        ),
        (
            BROKERS | {"controller": {"labelDriver": {"enabled": True}}},
            (
                "controller.labelDriver.enabled lets the controller patch pods, and controller.routes names no pod: write "
                "routes, or disable it"
            ),
        ),
        (
            BROKERS | {"detectors": {"engine": "flink", "flink": {"cluster": {"create": False}}}},
            (
                "detectors.flink.checkpointsDir is empty: name a place that every task manager reaches, such as "
                "s3://bucket/paritas\n"
                "  - detectors.flink.cluster.restAddress is empty: name the session cluster's REST service, or let "
                "cluster.create make one"
            ),
        ),
        (
            {
                "kafka": {
                    "bootstrap": ["kafka:9092"],
                    "sasl": {"mechanism": "OAUTHBEARER", "secretName": "token"},
                },
                "detectors": {"engine": "flink", "flink": {"checkpointsDir": "s3://a/b"}},
            },
            (
                "kafka.sasl.mechanism OAUTHBEARER is not for detectors.engine flink: take SCRAM or PLAIN, or the engine "
                "process"
            ),
        ),
        (
            BROKERS | {"detectors": {"floors": {"names": ["h100.json"]}}},
            "detectors.floors.names needs detectors.floors.configMap",
        ),
        (
            BROKERS
            | {
                "operator": {"enabled": True},
                "contractsFrom": {"configMap": "ours"},
                "controller": {
                    "access": {"mode": "secret", "secretName": "access"},
                    "tls": {"mode": "secret", "secretName": "tls", "clientCaKey": "ca.crt"},
                },
            },
            (
                "operator.token.secretName is empty: with an access file of yours, name the secret with the operator's token "
                "(role subscriber)\n"
                "  - operator.enabled has no certificate to show: leave controller.tls.clientCaKey empty"
            ),
        ),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_write(values, said):
    assert refusal(values).endswith(f": \n  - {said}")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"kafak": {}}, "at '': additional properties 'kafak' not allowed"),
        ({"image": {"tga": "1"}}, "at '/image': additional properties 'tga' not allowed"),
        (
            {"image": {"digest": "0123"}},
            "at '/image/digest': '0123' does not match pattern '^(sha256:[0-9a-f]{64})?$'",
        ),
        (
            {"image": {"pullPolicy": "Sometimes"}},
            "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'",
        ),
        ({"commonLabels": {"app.kubernetes.io/name": "x"}}, "at '/commonLabels': 'not' failed"),
        ({"kafka": {"bootstrap": "kafka:9092"}}, "at '/kafka/bootstrap': got string, want array"),
        (
            {"kafka": {"bootstrap": ["kafka"]}},
            "at '/kafka/bootstrap/0': 'kafka' does not match pattern '^(\\\\[[0-9A-Fa-f:.]+\\\\]|[^\\\\s:,]+):[0-9]{1,5}$'",
        ),
        (
            {"kafka": {"compression": "lz4"}},
            "at '/kafka/compression': value must be one of '', 'none', 'gzip', 'zstd'",
        ),
        (
            {"kafka": {"sasl": {"mechanism": "GSSAPI"}}},
            "at '/kafka/sasl/mechanism': value must be one of '', 'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512', 'OAUTHBEARER'",
        ),
        ({"kafka": {"topics": {"partitions": 0}}}, "at '/kafka/topics/partitions': minimum: got 0, want 1"),
        (
            {"contracts": {"Dense": "preset: dense-bf16"}},
            "at '/contracts': additional properties 'Dense' not allowed",
        ),
        (
            {"contracts": {"dense": {"preset": "dense-bf16"}}},
            "at '/contracts/dense': got object, want string",
        ),
        (
            {"resourcesPreset": "huge"},
            "at '/resourcesPreset': value must be one of 'burstable', 'guaranteed'",
        ),
        ({"controller": {"replicas": 2}}, "at '/controller': additional properties 'replicas' not allowed"),
        (
            {"controller": {"tls": {"mode": "none"}}},
            "at '/controller/tls/mode': value must be one of 'generated', 'secret', 'certManager'",
        ),
        (
            {"controller": {"podLabels": {"paritas.dev/inject": "true"}}},
            "at '/controller/podLabels': 'not' failed",
        ),
        (
            {"detectors": {"engine": "spark"}},
            "at '/detectors/engine': value must be one of 'process', 'flink'",
        ),
        (
            {"roster": {"every": "soon"}},
            "at '/roster/every': 'soon' does not match pattern '^[0-9]+(\\\\.[0-9]+)?(ms|s|m|h|d)$'",
        ),
        (
            {"operator": {"refreshSeconds": 0}},
            "at '/operator/refreshSeconds': exclusiveMinimum: got 0, want 0",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_place(values, said):
    assert refusal(values).splitlines()[2].strip() == f"- {said}"


def test_an_older_kubernetes_is_refused():
    with pytest.raises(HelmError) as refused:
        render_text([BROKERS], "1.28")
    assert "requires kubeVersion: >=1.29.0-0 which is incompatible with Kubernetes v1.28" in str(
        refused.value
    )


def test_extra_manifests_are_templates():
    found = {o["metadata"]["name"]: o for o in rendered("extra-manifests") if o["kind"] == "ConfigMap"}
    assert found["a-map"]["data"] == {"release": "demo"}
    assert "demo-paritas-text" in found


def refusal(values):
    with pytest.raises(HelmError) as refused:
        render_text([values])
    return str(refused.value).strip()


def leaves(values, above=""):
    for key, value in values.items():
        name = f"{above}{key}"
        yield from leaves(value, f"{name}.") if isinstance(value, dict) and value else [name]


def covered(name, known):
    parts = name.split(".")
    return any(".".join(parts[:n]) in known for n in range(1, len(parts) + 1))
