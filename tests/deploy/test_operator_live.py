"""The operator against a real API server, a real controller and real detectors, with the documented role and no more."""

import signal
import zlib

import pytest
from certificates import self_signed
from command_runs import run
from deploy.operator_parts import CONFIG_MAP, GROUP, Contracts, Operator, allow, define, document
from escalation_examples import escalation, verdict
from free_ports import free_port
from kubelet_mounts import mount
from system.control_process import Command, controller, target_of
from system.kubernetes_api import KubernetesApi, RefusedError
from system.otel_parts import wait_until
from system.parts import why_not

from paritas.agent.eventlog import EmbeddedLog, LogSettings, SyncMode
from paritas.clock import SystemClock
from paritas.contracts.load import load_text
from paritas.controller.client import EscalationClient
from paritas.records import Phase, Severity, State

pytest.importorskip("kopf", reason="kopf is not installed (pip install 'paritas[operator]')")
# Asked here: what has to be built takes longer than a test may.
MISSING = why_not("kubernetes")


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """One API server with the definition."""
    if MISSING:
        pytest.skip(MISSING)
    with KubernetesApi(tmp_path_factory.mktemp("kubernetes")) as opened:
        define(opened)
        yield opened


@pytest.fixture
def contracts(api, request):
    """A namespace of its own."""
    return Contracts(api, api.namespace(f"ns-{zlib.crc32(request.node.name.encode()):08x}"))


@pytest.fixture
def token(contracts):
    """That of a service account with the documented role."""
    return allow(contracts.api, contracts.namespace)


@pytest.fixture
def operate(contracts, token):
    """Start an operator of the namespace."""
    return lambda *words: Operator(contracts.api, token, "--namespace", contracts.namespace, *words)


def test_good_changes_reach_detectors_bad_ones_keep_what_was_there_and_a_deletion_removes(contracts, operate):
    contracts.put(document())
    with operate() as running:
        contracts.wait("Accepted", "True", "Valid", alive=running)
        first = load_text(contracts.texts()["rollout.yaml"], "rollout.yaml")
        contracts.put(document(version="1.1.0", limit="0.03"))
        wait_until(lambda: contracts.status().get("version") == "1.1.0", "1.1.0 is accepted")
        second = load_text(contracts.texts()["rollout.yaml"], "rollout.yaml")
        assert (first.clause("token-tv").at_most, second.clause("token-tv").at_most) == (0.02, 0.03)
        assert second.digest == load_text(document(version="1.1.0", limit="0.03"), "a").digest

        before, generation = contracts.texts(), contracts.get()["metadata"]["generation"]
        contracts.change("rollout", spec={"preset": "dense-bf61"})
        said = contracts.wait("Accepted", "False", "Invalid", alive=running)
        hint = "did you mean 'dense-bf16'? paritas contract presets lists them"
        assert said == f"spec.preset: unknown preset 'dense-bf61' ({hint})"
        assert contracts.texts() == before
        status = contracts.status()
        assert (status["observedGeneration"], status["acceptedGeneration"]) == (generation + 1, generation)
        assert (status["digest"], status["version"]) == (second.digest, "1.1.0")
        assert contracts.condition("Enforced")[2].endswith(
            f"; 1.1.0 of generation {generation} stays in force"
        )

        contracts.change("rollout", spec={"preset": None})
        contracts.wait("Accepted", "True", "Valid", alive=running)
        contracts.delete()
        wait_until(lambda: contracts.texts() == {}, "its file is gone")


def test_the_config_map_is_owned_by_its_contracts_and_holds_no_finalizer(contracts, operate):
    stored = [contracts.put(document(name)) for name in ("a", "b")]
    with operate() as running:
        contracts.wait("Accepted", "True", "Valid", name="b", alive=running)
        owners = contracts.config_map()["metadata"]["ownerReferences"]
        assert {o["uid"] for o in owners} == {o["metadata"]["uid"] for o in stored}
        assert contracts.get("a")["metadata"].get("finalizers", []) == []
        assert set(contracts.get("a")["metadata"]["annotations"]) == {
            "paritas.dev/version",
            "paritas.dev/owner",
        }


def test_what_changed_while_no_operator_ran_is_caught_up(contracts, operate):
    for name in ("kept", "gone", "bad"):
        contracts.put(document(name))
    with operate() as running:
        contracts.wait("Accepted", "True", "Valid", name="bad", alive=running)
        contracts.wait("Accepted", "True", "Valid", name="gone", alive=running)
        assert running.end() == 0
    before = contracts.texts()
    contracts.delete("gone")
    contracts.put(document("new"))
    contracts.change("bad", metadata={"annotations": {"paritas.dev/version": None}})
    with operate() as running:
        contracts.wait("Accepted", "False", "Invalid", name="bad", alive=running)
        contracts.wait("Accepted", "True", "Valid", name="new", alive=running)
        texts = contracts.texts()
    assert set(texts) == {"kept.yaml", "new.yaml", "bad.yaml"}
    assert {key: texts[key] for key in ("kept.yaml", "bad.yaml")} == {
        key: before[key] for key in ("kept.yaml", "bad.yaml")
    }
    said = "metadata.annotations[paritas.dev/version]: is missing (version: semantic version)"
    assert contracts.condition("Accepted", "bad")[2] == said


def test_a_restarted_operator_changes_nothing(contracts, operate):
    for name in ("a", "b"):
        contracts.put(document(name))
    contracts.change("b", spec={"preset": "none"})
    with operate() as running:
        contracts.wait("Accepted", "True", "Valid", name="a", alive=running)
        contracts.wait("Accepted", "False", "Invalid", name="b", alive=running)
        assert running.end() == 0

    def versions():
        things = (contracts.get("a"), contracts.get("b"), contracts.config_map())
        return [thing["metadata"]["resourceVersion"] for thing in things]

    before = versions()
    with operate() as running:
        running.ready().passes(3)
        page = running.ask("/metrics")[1]
        assert running.end(signal.SIGINT) == 0
        assert running.errors == ""
    assert versions() == before
    assert 'paritas_operator_writes_total{kind="config_map"} 0' in page
    assert 'paritas_operator_writes_total{kind="status"} 0' in page
    assert 'paritas_operator_contracts{accepted="false"} 1' in page


def test_an_incident_shows_in_the_status_and_resolves(contracts, operate, tmp_path):
    text = document()
    contracts.put(text)
    port, digest = free_port(), load_text(text, "a").digest
    with (
        controller(tmp_path / "control") as control,
        detecting(tmp_path, written(tmp_path, text), target_of(control), port),
        operate("--target", target_of(control), "--detectors", f"http://127.0.0.1:{port}") as running,
        EscalationClient(target_of(control)) as client,
    ):
        assert (
            contracts.wait("Enforced", "True", "Judged", alive=running)
            == f"a detector judges by {digest[:8]}"
        )
        assert contracts.wait("Violated", "False", "NoOpenIncident", alive=running) == "no incident is open"
        none = {"openIncidents": 0, "violated": 0, "undecided": 0, "noData": 0, "conforming": 0}
        assert contracts.status()["verdicts"] == none

        client.publish([incident(1, Phase.FIRING)])
        assert contracts.wait("Violated", "True", "OpenIncident", alive=running) == "token-tv is violated"
        verdicts = contracts.status()["verdicts"]
        assert verdicts.pop("since").endswith("Z")
        worst = {"clause": "token-tv", "slice": "all", "state": "violated", "severity": "critical"}
        assert verdicts == none | {
            "openIncidents": 1,
            "violated": 1,
            "worst": worst | {"statistic": "tv", "estimate": 0.031, "limit": 0.02},
        }
        client.publish([incident(2, Phase.RESOLVED)])
        contracts.wait("Violated", "False", "NoOpenIncident", alive=running)
        assert contracts.status()["verdicts"] == none

        client.publish([incident(3, Phase.FIRING, incident_id="second")])
        contracts.wait("Violated", "True", "OpenIncident", alive=running)
        assert control.end() == 0
        contracts.wait("Violated", "Unknown", "ControllerAway", alive=running)
        assert "verdicts" not in contracts.status()
        running.ready()


def incident(number, after, **changes):
    values = {
        "contract": "rollout",
        "after": after,
        "severity": Severity.CRITICAL,
        "summary": "token-tv is violated",
        "verdict": verdict(state=State.VIOLATED),
    }
    return escalation(number, **{**values, **changes})


def written(folder, text):
    file = folder / "rollout.yaml"
    file.write_text(text)
    return file


def detecting(folder, file, target, port):
    """`paritas detect` on an empty log, with its page."""
    log = folder / "log"
    with EmbeddedLog(log, LogSettings(partitions=1, sync=SyncMode.NONE), clock=SystemClock()):
        pass
    words = ("--log", log, "--contract", file, "--controller", target, "--state", folder / "state")
    return Command("detect", *words, "--metrics", f"127.0.0.1:{port}")


def test_a_change_reaches_a_detector_through_its_mount(contracts, operate, tmp_path):
    """The test is the kubelet: it brings what the ConfigMap holds into the folder that the detector reads."""
    contracts.put(document())
    port, folder = free_port(), tmp_path / "contracts"
    folder.mkdir()
    with controller(tmp_path / "control") as control:
        words = ("--target", target_of(control), "--detectors", f"http://127.0.0.1:{port}")
        with operate(*words) as running:
            contracts.wait("Enforced", "Unknown", "DetectorAway", alive=running)
            file = mount(folder, "rollout.yaml", contracts.texts()["rollout.yaml"])
            with detecting(tmp_path, file, target_of(control), port):
                contracts.wait("Enforced", "True", "Judged", alive=running)
                contracts.put(document(version="1.1.0", limit="0.015"))
                contracts.wait("Enforced", "False", "OtherDigest", alive=running)
                mount(folder, "rollout.yaml", contracts.texts()["rollout.yaml"])
                said = contracts.wait("Enforced", "True", "Judged", alive=running)
    digest = load_text(document(version="1.1.0", limit="0.015"), "a").digest
    assert said == f"a detector judges by {digest[:8]}"
    assert contracts.status()["version"] == "1.1.0"


def test_a_controller_with_tls_and_roles_is_asked_as_a_subscriber(contracts, operate, tmp_path):
    contracts.put(document())
    pki, access, secret = self_signed(tmp_path), tmp_path / "access.jsonl", tmp_path / "token"
    added = run("access", "add", "operator", "--role", "subscriber", "--file", access)
    secret.write_text(added.stdout)
    served = ("--certificate", pki.certificate, "--key", pki.key, "--access", access)
    address, reached = (f"{host}:{port}" for port in [free_port()] for host in ("127.0.0.1", "localhost"))
    with controller(tmp_path / "control", *served, listen=address) as control:
        target_of(control)
        with operate("--target", reached, "--ca", pki.ca) as unknown:
            contracts.wait("Violated", "Unknown", "ControllerAway", alive=unknown)
        with operate("--target", reached, "--ca", pki.ca, "--token-file", secret) as running:
            contracts.wait("Violated", "Unknown", "NotEnforced", alive=running)
            assert contracts.status()["verdicts"]["openIncidents"] == 0


def test_a_detector_with_another_text_or_none_is_not_taken_for_enforcement(contracts, operate, tmp_path):
    contracts.put(document())
    port, older = free_port(), document(limit="0.05")
    with operate("--detectors", f"http://127.0.0.1:{port}") as running:
        said = contracts.wait("Enforced", "Unknown", "DetectorAway", alive=running)
        assert said == f"http://127.0.0.1:{port}/metrics does not answer: ClientConnectorError"
        with (
            controller(tmp_path / "control") as control,
            detecting(tmp_path, written(tmp_path, older), target_of(control), port) as detector,
        ):
            given, judged = (load_text(text, "a").digest[:8] for text in (document(), older))
            said = contracts.wait("Enforced", "False", "OtherDigest", alive=detector)
            assert said == f"the detector judges by {judged}, it is given {given}"
        contracts.wait("Enforced", "Unknown", "DetectorAway", alive=running)
        assert contracts.condition("Violated")[:2] == ("Unknown", "NoController")


def test_a_key_of_somebody_else_is_left_alone(contracts, operate):
    place = {"name": CONFIG_MAP, "namespace": contracts.namespace}
    data = {"rollout.yaml": "by hand"}
    contracts.api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": place, "data": data})
    contracts.put(document())
    contracts.put(document("other"))
    with operate() as running:
        said = contracts.wait("Enforced", "False", "KeyTaken", alive=running)
        assert said == "rollout.yaml of the ConfigMap is somebody else's"
        contracts.wait("Enforced", "Unknown", "NoDetectors", name="other", alive=running)
        texts = contracts.texts()
        assert (texts["rollout.yaml"], set(texts)) == ("by hand", {"rollout.yaml", "other.yaml"})
        assert "ownerReferences" not in contracts.config_map()["metadata"]


def test_an_empty_config_map_that_a_chart_made_is_filled(contracts, operate):
    place = {"name": CONFIG_MAP, "namespace": contracts.namespace}
    contracts.api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": place, "data": {}})
    contracts.put(document())
    with operate() as running:
        contracts.wait("Enforced", "Unknown", "NoDetectors", alive=running)
        assert set(contracts.texts()) == {"rollout.yaml"}


def test_a_contract_that_does_not_fit_is_told_and_the_others_stay(contracts, operate):
    big = "".join(f"      - {{name: s{i}, by: [l{i}]}}\n" for i in range(100))
    long = "x" * 1000
    clauses = "".join(
        f"      - {{id: c{i}, statistic: tv, at_most: 0.02, source: {long}}}\n" for i in range(900)
    )
    text = f"{document().split('  clauses')[0]}  slices:\n{big}  clauses:\n    numerical:\n{clauses}"
    assert len(text) > 900_000
    contracts.put(document("small"))
    with operate() as running:
        contracts.wait("Accepted", "True", "Valid", name="small", alive=running)
        for name in ("rollout-1", "rollout-2"):
            contracts.put(text.replace("name: rollout,", f"name: {name},"))
        contracts.wait("Accepted", "True", "Valid", name="rollout-2", alive=running)
        said = contracts.wait("Enforced", "False", "ConfigMapFull", name="rollout-2", alive=running)
        assert said == "the ConfigMap would hold more than 1048576 bytes with this contract"
        assert set(contracts.texts()) == {"small.yaml", "rollout-1.yaml"}


def test_a_config_map_that_the_api_server_refuses_is_told_in_its_words(contracts, operate):
    place = {"name": CONFIG_MAP, "namespace": contracts.namespace}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": place, "immutable": True}
    contracts.api.apply(body)
    contracts.put(document())
    with operate() as running:
        said = contracts.wait("Enforced", "False", "ConfigMapRefused", alive=running)
    assert said == (
        f'the API server says 422: ConfigMap "{CONFIG_MAP}" is invalid: data: Forbidden: field is immutable when '
        "`immutable` is set"
    )


def test_the_documented_role_is_refused_everywhere_else(contracts, token):
    api, namespace = contracts.api, contracts.namespace
    contracts.put(document())
    other = api.namespace(f"{namespace}-other")
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    refused = {
        ("GET", f"{GROUP}/kernelcontracts"): "list everywhere",
        ("GET", f"{GROUP}/namespaces/{other}/kernelcontracts"): "list elsewhere",
        ("PATCH", f"{contracts.path}/rollout"): "change a contract",
        ("DELETE", f"{contracts.path}/rollout"): "delete one",
        ("GET", maps): "list ConfigMaps",
        ("GET", f"{maps}/kube-root-ca.crt"): "read another",
        ("DELETE", f"{maps}/{CONFIG_MAP}"): "delete its own",
        ("GET", f"/api/v1/namespaces/{namespace}/secrets"): "read secrets",
        ("GET", f"/api/v1/namespaces/{namespace}/pods"): "read pods",
        ("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"): "read definitions",
    }
    for (method, path), what in refused.items():
        body = {} if method == "PATCH" else None
        with pytest.raises(RefusedError) as caught:
            api.call(method, path, body, token=token, content_type="application/merge-patch+json")
        assert caught.value.status == 403, what


@pytest.mark.parametrize("asked", ["kernelcontracts.paritas.dev is", 'configmaps "another" is'])
def test_an_operator_of_every_namespace_or_another_config_map_needs_more_than_that_role(
    contracts, token, asked
):
    one = ("--config-map", "another", "--namespace", contracts.namespace)
    with Operator(contracts.api, token, *(one if "another" in asked else ("--all-namespaces",))) as running:
        running.says("The cluster was not reached")
        status, said = running.ask("/readyz")
        assert (status, f"{asked} forbidden" in said) == (503, True)
        assert running.ask("/healthz") == (200, "ok\n")
        assert running.end() == 0


def test_one_operator_of_every_namespace_gives_each_its_own(api, contracts):
    second = Contracts(api, api.namespace(f"{contracts.namespace}-b"))
    contracts.put(document("one"))
    second.put(document("two"))
    with Operator(api, "admin-token", "--all-namespaces", "--config-map", CONFIG_MAP) as running:
        contracts.wait("Accepted", "True", "Valid", name="one", alive=running)
        second.wait("Accepted", "True", "Valid", name="two", alive=running)
        assert (set(contracts.texts()), set(second.texts())) == ({"one.yaml"}, {"two.yaml"})
        second.delete("two")
        wait_until(lambda: second.texts() == {}, "its file is gone")


def test_an_object_too_deep_for_python_is_told_so_and_keeps_no_other_waiting(contracts, operate):
    """The API server takes what is nested thousands deep where the schema leaves a limit open."""
    contracts.put(document("deep"))
    contracts.put(document("good"))
    with operate() as running:
        contracts.wait("Accepted", "True", "Valid", name="deep", alive=running)
        limit = f'{{"id": "token-tv", "statistic": "tv", "at_most": {"[" * 3000}1{"]" * 3000}}}'
        contracts.change_by_text("deep", f'{{"spec": {{"clauses": {{"numerical": [{limit}]}}}}}}')
        wait_until(lambda: "nested deeper than 32 levels" in contracts.text("deep"), "it is told")
        contracts.put(document("good", version="1.1.0"))
        wait_until(lambda: contracts.status("good").get("version") == "1.1.0", "1.1.0")
        assert set(contracts.texts()) == {"deep.yaml", "good.yaml"}
        assert "Traceback" not in running.errors


def test_an_api_server_that_is_away_is_waited_for(contracts, operate):
    contracts.put(document())
    with operate() as running:
        contracts.wait("Accepted", "True", "Valid", alive=running)
        contracts.api.stop()
        wait_until(lambda: running.ask("/readyz")[0] == 503, "it is not ready")
        assert running.ask("/healthz")[0] == 200
        contracts.api.start()
        define(contracts.api)  # it is ready a moment before it serves its objects again
        contracts.put(document(version="2.0.0"))
        wait_until(lambda: contracts.status().get("version") == "2.0.0", "2.0.0 is there")
        assert "Traceback" not in running.errors
        assert running.end() == 0
