"""What must fit in every render: ports and probes, arguments and programs, mounts and files, selectors and labels."""

from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest
import yaml
from deploy.chart_cases import CASES, containers, named, options, pod_of, rendered, workloads
from deploy.parts import why_not

from paritas.cli import parser
from paritas.commands.kafka_place import read_kafka_file
from paritas.contracts.load import load_text

pytestmark = pytest.mark.skipif(why_not("helm") is not None, reason=str(why_not("helm")))
OPENING = ("--listen", "--promotion-http", "--health", "--metrics")
each_case = pytest.mark.parametrize("case", CASES)


@each_case
def test_probes_ask_a_port_that_the_arguments_open(case):
    for thing in workloads(rendered(case)):
        for container in containers(thing):
            ports = {p["name"]: p["containerPort"] for p in container.get("ports", ())}
            opened = opened_ports(container)
            assert set(ports.values()) == opened, container["name"]
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if probe in container:
                    asked = container[probe]["httpGet"]
                    assert ports[asked["port"]] in opened - {4320, 4321}
                    assert asked["path"] == ("/readyz" if probe == "readinessProbe" else "/healthz")
            if {4322, 4323, 4324, 4325} & opened:
                assert {"startupProbe", "livenessProbe"} <= set(container), container["name"]


@each_case
def test_services_monitors_and_policies_name_ports_that_pods_open(case):
    objects = rendered(case)
    for thing in objects:
        if thing["kind"] == "Service":
            for port in thing["spec"]["ports"]:
                for container in chosen(objects, thing["spec"]["selector"]):
                    ports = {p["name"]: p["containerPort"] for p in container.get("ports", ())}
                    is_there = ports.get(port["targetPort"], port["targetPort"]) in ports.values()
                    assert is_there or not ports, (thing["metadata"]["name"], port)
        if (
            thing["kind"] == "PodMonitor"
            and "paritas.dev/inject" not in thing["spec"]["selector"]["matchLabels"]
        ):
            found = list(chosen(objects, thing["spec"]["selector"]["matchLabels"]))
            assert found, thing["metadata"]["name"]
            for container in found:
                names = {p["name"] for p in container["ports"]}
                assert {e["port"] for e in thing["spec"]["podMetricsEndpoints"]} <= names
        if thing["kind"] == "NetworkPolicy":
            opened = {
                port
                for container in chosen(objects, thing["spec"]["podSelector"]["matchLabels"])
                for port in opened_ports(container)
            }
            let_in = {p["port"] for rule in thing["spec"]["ingress"] for p in rule["ports"]}
            assert opened <= let_in, thing["metadata"]["name"]


@each_case
def test_arguments_are_those_of_the_program(case):
    for thing in workloads(rendered(case)):
        for container in containers(thing):
            read = parser().parse_args([str(a) for a in container["args"]])
            assert read.command == container["args"][0]


@each_case
def test_what_is_mounted_is_there_and_what_is_there_is_mounted(case):
    for thing in workloads(rendered(case)):
        volumes = [v["name"] for v in pod_of(thing)["spec"].get("volumes", ())]
        volumes += [c["metadata"]["name"] for c in thing["spec"].get("volumeClaimTemplates", ())]
        mounted = {m["name"] for c in containers(thing) for m in c["volumeMounts"]}
        assert len(volumes) == len(set(volumes))
        assert mounted == set(volumes), thing["metadata"]["name"]
        for container in containers(thing):
            paths = [m["mountPath"] for m in container["volumeMounts"]]
            assert len(paths) == len(set(paths))
            assert "/tmp" in paths
            assert not [m for m in container["volumeMounts"] if "subPath" in m], "a subPath is never updated"


@each_case
def test_files_that_arguments_name_lie_in_what_is_mounted(case):
    objects = rendered(case)
    for thing in workloads(objects):
        for container in containers(thing):
            for path in named_files(objects, thing, container):
                at = [
                    m for m in container["volumeMounts"] if PurePosixPath(path).is_relative_to(m["mountPath"])
                ]
                assert at, (thing["metadata"]["name"], path)
                assert PurePosixPath(path).name in keys_of(objects, thing, at[0]["name"], path)


@each_case
def test_configuration_is_read_by_the_code_that_reads_it(case, tmp_path):
    for name in ("password", "token"):
        (tmp_path / "kafka-sasl").mkdir(exist_ok=True)
        (tmp_path / "kafka-sasl" / name).write_text("a secret\n")
    for thing in rendered(case):
        if thing["kind"] == "ConfigMap":
            for name, text in (thing.get("data") or {}).items():
                if name == "kafka.yaml":
                    moved = text.replace("/etc/paritas/secrets", str(tmp_path))
                    assert read_kafka_file(moved.encode(), name).bootstrap
                if thing["metadata"]["name"].endswith("-contracts"):
                    assert load_text(text, name).clauses


def test_kafka_settings_are_what_the_values_say():
    text = named(rendered("kafka-tls-scram"), "ConfigMap", "demo-paritas-kafka")["data"]["kafka.yaml"]
    assert yaml.safe_load(text) == {
        "kafka": {
            "bootstrap": ["kafka-0.kafka:9093", "kafka-1.kafka:9093"],
            "topic": "otlp_spans",
            "compression": "zstd",
            "tls": {
                "ca_file": "/etc/paritas/secrets/kafka-tls/ca.crt",
                "certificate_file": "/etc/paritas/secrets/kafka-tls/tls.crt",
                "key_file": "/etc/paritas/secrets/kafka-tls/tls.key",
                "check_hostname": True,
            },
            "sasl": {
                "mechanism": "SCRAM-SHA-512",
                "username": "paritas",
                "password_file": "/etc/paritas/secrets/kafka-sasl/password",
            },
        }
    }


@each_case
def test_selectors_find_pods_of_their_component_and_no_others(case):
    objects = rendered(case)
    for thing in objects:
        selector = selector_of(thing)
        if selector is None or "paritas.dev/inject" in selector:
            continue
        found = [w for w in workloads(objects) if matches(selector, pod_of(w)["metadata"].get("labels", {}))]
        wanted = {selector["app.kubernetes.io/component"]}
        if wanted == {"flink"}:
            continue
        assert found, (thing["kind"], thing["metadata"]["name"])
        assert {pod_of(w)["metadata"]["labels"]["app.kubernetes.io/component"] for w in found} == wanted
        if thing["kind"] in ("StatefulSet", "Deployment"):
            assert found == [thing]


def opened_ports(container) -> set[int]:
    given = options(container)
    return {int(given[name].rsplit(":", 1)[1]) for name in OPENING if name in given}


def chosen(objects, labels) -> Iterator[dict]:
    for thing in workloads(objects):
        if matches(labels, pod_of(thing)["metadata"].get("labels", {})):
            yield from containers(thing)


def matches(selector, labels) -> bool:
    return selector.items() <= labels.items()


def selector_of(thing):
    spec = thing.get("spec", {})
    if thing["kind"] == "Service":
        return spec["selector"]
    if thing["kind"] in ("StatefulSet", "Deployment", "PodDisruptionBudget", "PodMonitor"):
        return spec["selector"]["matchLabels"]
    return spec["podSelector"]["matchLabels"] if thing["kind"] == "NetworkPolicy" else None


def named_files(objects, thing, container) -> Iterator[str]:
    """Paths of arguments, and of the Kafka settings that an argument names."""
    for value in options(container).values():
        if value.startswith("/etc/paritas/") and value != "/etc/paritas/promotion-keys":
            yield value
        if value == "/etc/paritas/kafka/kafka.yaml":
            (volume,) = (v for v in pod_of(thing)["spec"]["volumes"] if v["name"] == "kafka")
            text = named(objects, "ConfigMap", volume["configMap"]["name"])["data"]["kafka.yaml"]
            section = yaml.safe_load(text)["kafka"]
            yield from (
                v for part in ("tls", "sasl") for k, v in section.get(part, {}).items() if k.endswith("_file")
            )


def keys_of(objects, thing, volume_name, path) -> set[str]:
    """File names of a volume; those of what the chart does not make are believed."""
    (volume,) = (v for v in pod_of(thing)["spec"]["volumes"] if v["name"] == volume_name)
    source = volume.get("secret") or volume.get("configMap")
    if "items" in source:
        return {item["path"] for item in source["items"]}
    name = source.get("secretName") or source["name"]
    made = [o for o in objects if o["kind"] in ("Secret", "ConfigMap") and o["metadata"]["name"] == name]
    return set(made[0]["data"]) if made else {PurePosixPath(path).name}
