"""The containers really run, under the flags of the chart: they start, pass their probes, and an escalation comes through.

agent → log on a shared volume → detect → control → a subscriber outside, over TLS.
"""

import errno
import re
import threading
from pathlib import Path

import pytest
from deploy.containers import DEADLINE_S, Pod, podman
from deploy.parts import why_not
from deploy.pod_kafka import PodKafka
from deploy.pod_scene import AGENT_PORT, CONTROL_HEALTH, DETECT_PORT, Scene, delivered_all, send
from system.parts import why_not as why_no_part

from paritas.client import StartAt, SubscriptionOptions
from paritas.records import Phase

pytestmark = pytest.mark.skipif(bool(why_not("containers")), reason=str(why_not("containers")))

PORTS = {"agent": AGENT_PORT, "controller": CONTROL_HEALTH, "detector": DETECT_PORT}


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    with Scene(tmp_path_factory.mktemp("pod")) as made:
        yield made


@pytest.fixture(scope="module")
def stack(scene):
    """All three, started in the order of a pod and its cluster, each ready."""
    with scene.agent() as agent, scene.controller() as controller:
        agent.wait_for(lambda: agent.well(AGENT_PORT), "the agent is ready")
        controller.wait_for(lambda: controller.well(CONTROL_HEALTH), "the controller is ready")
        with scene.detector() as detector:
            detector.wait_for(lambda: detector.well(DETECT_PORT), "the detector is ready")
            yield {"agent": agent, "controller": controller, "detector": detector}


EACH = pytest.mark.parametrize("name", list(PORTS))


@EACH
def test_passes_its_probes_asked_from_outside_as_a_kubelet_asks(stack, name):
    assert stack[name].well(PORTS[name], "/healthz")
    assert stack[name].well(PORTS[name], "/readyz")
    assert stack[name].metrics(PORTS[name])


@EACH
def test_passes_the_probe_that_is_run_inside(stack, name):
    told = stack[name].exec("paritas", "health", f"http://127.0.0.1:{PORTS[name]}/readyz")
    assert told.strip() == "ready"


def test_passes_the_health_check_of_its_image(stack):
    assert podman("healthcheck", "run", stack["agent"].name) == ""


@EACH
def test_is_the_first_process_with_no_right_beyond_its_user(stack, name):
    pid = stack[name].state()["State"]["Pid"]
    told = dict(re.findall(r"^(\w+):\s+(.*)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE))
    assert told["Uid"].split() == told["Gid"].split() == ["65532"] * 4
    assert {told[kind] for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", "2")
    assert told["NSpid"].split()[-1] == "1"


@EACH
@pytest.mark.parametrize("place", ["/x", "/etc/paritas/x", "/opt/paritas/x", "/usr/x", "/run/x"])
def test_can_write_nowhere_else(stack, name, place):
    code = f"import os\ntry: open({place!r}, 'w')\nexcept OSError as e: print(e.errno)"
    assert int(stack[name].exec("python", "-c", code)) in (errno.EROFS, errno.EACCES)


@EACH
def test_can_write_what_the_chart_makes_writable(stack, name):
    stack[name].exec("python", "-c", "import tempfile; tempfile.NamedTemporaryFile().write(b'x')")


@EACH
def test_nothing_but_its_start_is_said(stack, name):
    """No warning, no traceback, and no bytecode that it could not write."""
    assert not re.search("warning|error|traceback|denied|read-only", stack[name].said, re.IGNORECASE), stack[
        name
    ].said


def test_a_fault_in_a_recording_becomes_an_escalation_outside(scene, stack):
    sent = send(scene.socket, "stale", "healthy.serve", "stale.train")
    found = escalated(scene)
    assert found is not None, stack["detector"].said
    assert (found.contract, found.after) == ("dense-bf16", Phase.FIRING)
    delivered_all(stack["agent"], sent)


@pytest.mark.skipif(bool(why_no_part("kafka")), reason=str(why_no_part("kafka")))
def test_the_same_comes_through_a_real_broker(tmp_path):
    """The stack of the chart: nothing is shared but Kafka; topics are made by the image's own command."""
    with Scene(tmp_path) as scene, PodKafka(scene.pod, tmp_path / "kafka") as kafka:
        scene.make_topics(kafka.bootstrap)
        destination = f"{{kafka: {{bootstrap: ['{kafka.bootstrap}']}}}}"
        with scene.agent(destination) as agent, scene.controller() as controller:
            controller.wait_for(lambda: controller.well(CONTROL_HEALTH), "the controller is ready")
            with scene.detector("--kafka", kafka.bootstrap) as detector:
                agent.wait_for(lambda: agent.well(AGENT_PORT), "the agent is ready")
                detector.wait_for(lambda: detector.well(DETECT_PORT), "the detector is ready")
                send(scene.socket, "stale", "healthy.serve", "stale.train")
                assert escalated(scene) is not None, detector.said


def escalated(scene):
    """The first escalation that names the fault, received outside of the pod; None if it does not come in time."""
    options = SubscriptionOptions(start=StartAt.SNAPSHOT, auto_ack=True)
    with scene.client() as client, client.subscribe("tests", options) as deliveries:
        late = threading.Timer(DEADLINE_S, deliveries.close)  # ends the iteration
        late.start()
        found = next((told for told in map(told_by, deliveries) if told and names_the_fault(told)), None)
        late.cancel()
    return found


def told_by(delivery):
    """The escalation that was delivered, as an event or as what an incident is at now."""
    return delivery.incident.current if delivery.incident else delivery.escalation


def names_the_fault(told):
    return told.slice == "replica=r2" and "stale_weights" in {finding.cause for finding in told.diagnosis[:1]}


def test_two_pods_do_not_share_an_address():
    with Pod() as one, Pod() as other:
        assert one.ip != other.ip
