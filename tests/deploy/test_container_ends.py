"""How containers end: SIGTERM drains within the grace period, and what is not done is on the volume for the next one.

Each life is a new container with the same volumes. The equation accepted = delivered + dropped + queued is checked
in every scrape of every life.
"""

import threading

import pytest
from deploy.containers import DEADLINE_S, probe
from deploy.parts import why_not
from deploy.pod_kafka import PodKafka, read_to
from deploy.pod_scene import AGENT_PORT, CONTROL_HEALTH, DETECT_PORT, Scene, account, delivered_all, send
from escalation_examples import escalation
from system.otel_parts import wait_until
from system.parts import why_not as why_no_part

from paritas.agent.eventlog import EmbeddedReader
from paritas.client import DeliveryKind, StartAt, SubscriptionOptions

pytestmark = pytest.mark.skipif(bool(why_not("containers")), reason=str(why_not("containers")))

GRACE_S = 30  # of a pod, unless it says otherwise
OURS = b"paritas-ingest"
TOLD = pytest.param("SIGTERM", marks=pytest.mark.thorough)  # `kill -9` leaves more to go on from
FROM_NOW = SubscriptionOptions(start=StartAt.SNAPSHOT)
# So that a signal finds something queued: twenty seconds for what is sent, or a minute and a half. One at a time, since
# a batch goes out whole and is paid for afterwards: one that took all that was sent would leave nothing.
SLOWLY = "max_records_per_s: 5, batch_records: 1, "
HARDLY = "max_records_per_s: 1, batch_records: 1, "


@pytest.fixture
def scene(tmp_path):
    with Scene(tmp_path) as made:
        yield made


def ready(agent):
    return agent.wait_for(lambda: agent.well(AGENT_PORT, "/healthz"), "the agent is up")


def farewell(container):
    return container.said.splitlines()[-1]


def logged(scene):
    """Values of what was streamed and is in the embedded log, copies included."""
    log = EmbeddedReader(scene.log.path)
    records = read_to(log, 0, log.start_offsets()[0], log.end_offsets()[0])
    return [record.value for record in records if OURS in record.value]


def queued(agent):
    return account(agent.metrics(AGENT_PORT))[3]


def test_sigterm_drains_the_spool_within_the_grace_period(scene):
    with scene.agent(shipping=SLOWLY, grace="60s") as agent:
        ready(agent)
        sent = send(scene.socket, "drained", "healthy.serve", "healthy.train")
        assert queued(agent) > 0
        assert agent.stop(3 * GRACE_S) == 0
        told = f"stopped: {sent} accepted = {sent} delivered + 0 dropped (none) + 0 kept in the spool"
        assert farewell(agent) == told
    values = logged(scene)
    assert len(values) == len(set(values)) == sent


def test_what_the_grace_period_is_too_short_for_is_delivered_by_the_next_container(scene):
    with scene.agent(shipping=HARDLY, grace="1s") as agent:
        ready(agent)
        sent = send(scene.socket, "cut", "healthy.serve", "healthy.train")
        assert agent.stop(GRACE_S) == 0
        assert f"stopped: {sent} accepted = " in farewell(agent)
        assert not farewell(agent).endswith(" 0 kept in the spool")
    with scene.agent() as agent:
        ready(agent)
        delivered_all(agent, sent)
    values = logged(scene)
    assert len(values) == len(set(values)) == sent


def test_what_kill_9_leaves_is_delivered_by_the_next_container(scene):
    with scene.agent(shipping=HARDLY) as agent:
        ready(agent)
        sent = send(scene.socket, "killed", "healthy.serve", "healthy.train")
        wait_until(lambda: account(agent.metrics(AGENT_PORT))[1] > 0, "something delivered")
        assert queued(agent) > 0
        agent.kill()
        assert agent.code() == 137
    with scene.agent() as agent:
        ready(agent)
        delivered_all(agent, sent)
    assert len(set(logged(scene))) == sent  # copies are allowed: readers know a record by its ids


@pytest.mark.skipif(bool(why_no_part("kafka")), reason=str(why_no_part("kafka")))
@pytest.mark.parametrize("end", [TOLD, "kill -9"])
def test_what_no_broker_took_is_on_the_volume_until_one_is_there(scene, tmp_path, end):
    kafka = PodKafka(scene.pod, tmp_path / "kafka")
    brokers = f"bootstrap: ['{kafka.bootstrap}']"
    hasty = f"{{kafka: {{{brokers}, connect_timeout: 1s, request_timeout: 1s, delivery_timeout: 2s}}}}"
    with scene.agent(hasty, grace="2s") as agent:
        ready(agent)
        sent = send(scene.socket, "outage", "healthy.serve", "healthy.train")
        assert account(agent.metrics(AGENT_PORT)) == (sent, 0, 0, sent)
        if end == "SIGTERM":
            assert agent.stop(GRACE_S) == 0
            told = f"stopped: {sent} accepted = 0 delivered + 0 dropped (none) + {sent} kept in the spool"
            assert farewell(agent) == told
        else:
            agent.kill()
    with kafka, scene.agent(f"{{kafka: {{{brokers}}}}}") as agent:
        scene.make_topics(kafka.bootstrap)
        ready(agent)
        delivered_all(agent, sent)
        agent.wait_for(lambda: agent.well(AGENT_PORT), "ready again")
        values = [record.value for record in kafka.records() if OURS in record.value]
    assert len(set(values)) == sent


def judged(detector):
    told = detector.metrics(DETECT_PORT)
    return sum(n for name, n in told.items() if name.startswith("paritas_detect_sequences_total"))


@pytest.mark.parametrize("end", [TOLD, "kill -9"])
def test_a_detector_goes_on_where_it_was(scene, end):
    """What was judged before and what came while it was away are each judged once."""
    with scene.agent() as agent, scene.controller() as controller:
        ready(agent)
        controller.wait_for(lambda: controller.well(CONTROL_HEALTH), "the controller is ready")
        first = send(scene.socket, "one", "healthy.serve", "healthy.train") // 2
        with scene.detector() as detector:
            detector.wait_for(
                lambda: probe_of(detector) and judged(detector) == first, "the first half judged"
            )
            state = scene.state.path / "detector.state"
            wait_until(state.exists, "a state saved")
            if end == "SIGTERM":
                assert detector.stop(GRACE_S) == 0
            else:
                detector.kill()
        both = first + send(scene.socket, "two", "healthy.serve", "healthy.train") // 2
        with scene.detector() as detector:
            detector.wait_for(lambda: probe_of(detector) and judged(detector) >= both, "all judged")
            assert detector.stop(GRACE_S) == 0
            assert f" {both} sequences, " in farewell(detector)


def probe_of(detector):
    return probe(f"http://{detector.pod.ip}:{DETECT_PORT}/healthz")[0] == 200


@pytest.mark.parametrize("end", ["SIGTERM", "kill -9"])
def test_a_subscriber_of_a_controller_that_came_back_misses_nothing(scene, end):
    events = [escalation(number) for number in range(1, 9)]
    with scene.controller() as controller:
        controller.wait_for(lambda: controller.well(CONTROL_HEALTH), "the controller is ready")
        with scene.client() as client, client.subscribe("kept", FROM_NOW) as deliveries:
            assert next(deliveries).kind is DeliveryKind.SNAPSHOT_START
            assert next(deliveries).kind is DeliveryKind.SNAPSHOT_END
            client.publish(events[:4])
            assert read(deliveries, 2) == [1, 2]
        if end == "SIGTERM":
            assert controller.stop(GRACE_S) == 0
        else:
            controller.kill()
    with scene.controller() as controller:
        controller.wait_for(lambda: controller.well(CONTROL_HEALTH), "the controller is ready again")
        with scene.client() as client, client.subscribe("kept") as deliveries:
            client.publish(events[2:])  # two of them are told twice
            assert read(deliveries, 6) == [3, 4, 5, 6, 7, 8]


def read(deliveries, number):
    """Take and acknowledge so many escalations; returns their transitions."""
    found = []
    late = threading.Timer(DEADLINE_S, deliveries.close)  # ends the iteration
    late.start()
    for delivery in deliveries:
        found.append(delivery.escalation.transition)
        deliveries.ack(delivery)
        if len(found) == number:
            break
    late.cancel()
    return found
