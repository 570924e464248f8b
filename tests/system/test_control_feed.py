"""`paritas control` fed from a real topic, as processes: killed, cut off, with garbage between, over TLS and SCRAM."""

import signal
from contextlib import closing, suppress

import pytest

pytest.importorskip("kafka", reason="kafka-python is not installed (pip install 'paritas[kafka]')")

from escalation_examples import escalation
from free_ports import free_ports
from kafka import KafkaProducer
from system.control_process import DEADLINE_S, Command, controller, target_of
from system.flink_cluster import until
from system.kafka_topics import CLOCK, fresh_topic
from system.listener import Listener
from system.recorded_records import recorded_traces, records_of
from system.safe_kafka import named_topic, settings_file

from paritas.agent.eventlog.kafka_shipper import KafkaShipper
from paritas.agent.eventlog.kafka_topic import describe_topic
from paritas.commands.kafka_place import kafka_place
from paritas.controller.client import EscalationClient
from paritas.controller.topic import escalation_bytes
from paritas.errors import TransientError, UsageError

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def topic(serving_broker, request):
    """A new topic for escalations."""
    return fresh_topic(serving_broker, request)


def write(topic, values):
    """Append values to the topic, each under a key of its own."""
    with closing(KafkaProducer(bootstrap_servers=topic.bootstrap[0], acks="all")) as producer:
        sent = [producer.send(topic.topic, value, key=b"%d" % i) for i, value in enumerate(values)]
        for future in sent:
            future.get(timeout=60)


def made(numbers, incident="incident-1"):
    """Encoded escalations of one incident."""
    return [escalation_bytes(escalation(n, incident_id=incident)) for n in numbers]


def feed(data, topic, *, where=None, listen="127.0.0.1:0"):
    words = ("--escalations-from", where or topic.bootstrap[0], "--escalations", topic.topic)
    return controller(data, *words, listen=listen)


def known(target, incident="incident-1"):
    """Ids that the controller knows of an incident, in order; none while it cannot be asked."""
    with suppress(TransientError), EscalationClient(target, clock=CLOCK) as client:
        found = {i.current.incident_id for i in client.incidents(include_closed=True)}
        return [t.event_id for t in client.history(incident).transitions] if incident in found else []
    return []


def reaches(target, count):
    return until(lambda: len(known(target)) >= count, timeout_s=DEADLINE_S, what=lambda: str(known(target)))


def test_a_killed_controller_goes_on_and_every_id_is_there_once(topic, tmp_path):
    [port] = free_ports(1)
    listen, per_round = f"127.0.0.1:{port}", 20
    with Listener(listen, "router-1") as subscriber:
        for round_ in range(4):
            first = round_ * per_round + 1
            # In one round an escalation twice, as a detector that was killed writes it.
            write(topic, made([*range(first, first + per_round), first]))
            with feed(tmp_path, topic, listen=listen) as control:
                target_of(control)
                if round_ < 3:
                    reaches(listen, first + per_round // 2)  # then in the middle of whatever it does
                    control.kill()
                    continue
                expected = [f"incident-1/{n}" for n in range(1, 4 * per_round + 1)]
                reaches(listen, len(expected))
                assert sorted(known(listen)) == sorted(expected)
                until(
                    lambda: f"incident-1/{4 * per_round}" in subscriber.events,
                    timeout_s=DEADLINE_S,
                    what=lambda: str(subscriber.events),
                )
                assert control.end() == 0
                assert control.out.endswith(" 0 refused, 0 lost\n")
    assert len(set(subscriber.events)) == len(subscriber.events)


def test_what_is_no_escalation_is_counted_said_once_and_holds_back_nothing(topic, tmp_path):
    write(topic, [b"\xff garbage", *made([1, 2]), b"", b"\xff more"])
    with feed(tmp_path, topic) as control:
        reaches(target_of(control), 2)
        control.says("detail=the record is no escalation")
        until(lambda: control_refused(control) == 3, timeout_s=DEADLINE_S, what=lambda: control.errors)
        assert control.end() == 0
        assert control.out.splitlines()[-1] == (
            f"taken from topic {topic.topic!r}: 2 escalations, {control_refused(control)} refused, 0 lost"
        )
    with feed(tmp_path, topic) as again:  # positions are kept
        write(topic, made([3]))
        reaches(target_of(again), 3)
        assert again.end() == 0
        assert again.out.splitlines()[-1].endswith(": 1 escalations, 0 refused, 0 lost")


def control_refused(control):
    """Refused records by the lines of the log."""
    lines = [line for line in control.errors.splitlines() if "are refused. (records=" in line]
    return sum(int(line.split("records=")[1].split(",")[0]) for line in lines)


def test_a_topic_that_is_not_there(serving_broker, tmp_path):
    where = serving_broker.bootstrap
    with controller(tmp_path, "--escalations-from", where, "--escalations", "none") as control:
        assert control.wait() == 64
        assert (control.out, control.errors) == (
            "",
            f"[usage] topic 'none' on {where} does not exist\n  hint: make it with `paritas topics`, or correct its name\n",
        )


@pytest.mark.thorough
def test_a_broker_that_is_away_is_waited_for_and_said_once(topic, serving_broker, tmp_path):
    write(topic, made([1]))
    serving_broker.stop()
    with feed(tmp_path, topic) as control:
        target = target_of(control)  # gRPC is served all the same
        line = control.says("Escalations wait.")
        assert line == (
            f"warning: Escalations wait. (detail=cannot connect to {topic.bootstrap[0]}: Connection refused)"
        )
        assert known(target) == []
        serving_broker.start()
        reaches(target, 1)
        serving_broker.kill()
        until(
            lambda: control.errors.count("Escalations wait.") >= 2,
            timeout_s=DEADLINE_S,
            what=lambda: control.errors,
        )
        serving_broker.start()
        write(topic, made([2]))
        reaches(target, 2)
        assert control.end(signal.SIGINT) == 0
        assert "Traceback" not in control.errors


# ---- TLS and SCRAM, from the file that an agent's destination has


def test_detect_and_control_over_tls_and_scram(safe_broker, tmp_path):
    spans, events = (named_topic(safe_broker, name) for name in ("safe-spans", "safe-escalations"))
    with KafkaShipper(spans) as shipper:
        traces = list(recorded_traces("stale", base_ns=10**18))
        shipped = records_of([t for pair in zip(traces[:48], traces[48:], strict=True) for t in pair])
        assert shipper.ship(shipped).settled == len(shipped)
    write(events, made([1, 2]))
    file = settings_file(tmp_path, safe_broker)
    with controller(tmp_path / "c", "--kafka", file, "--escalations", events.topic) as control:
        target = target_of(control)
        reaches(target, 2)
        words = ("--topic", spans.topic, "--controller", target, "--state", tmp_path / "state", "--to-end")
        with Command("detect", "--kafka", file, *words) as detect:
            assert detect.wait() == 0, detect.errors
            assert detect.out.startswith(
                f"judging safe-spans on {safe_broker.safe_bootstrap} by dense-bf16 1.0.0\njudged 96 records"
            )
        assert control.end() == 0
        assert control.out.endswith("2 escalations, 0 refused, 0 lost\n")


def wait_for_first_login(folder, broker):
    """A Java process takes long for its first TLS and SCRAM; who is to be refused is given seconds."""
    place = kafka_place(str(settings_file(folder, broker)), topic="x", client_id="first")
    with pytest.raises(UsageError, match="does not exist"):
        describe_topic(place)


def test_a_wrong_password_is_said_and_stops_a_run_to_the_end(safe_broker, tmp_path):
    wait_for_first_login(tmp_path, safe_broker)
    file = settings_file(tmp_path, safe_broker, password="wrong-horse", connect="5s")
    words = ("--topic", "x", "--controller", "127.0.0.1:1", "--state", tmp_path / "state", "--to-end")
    with Command("detect", "--kafka", file, *words) as detect:
        assert detect.wait() == 1
        assert detect.errors == (
            f"[transient] {safe_broker.safe_bootstrap} did not let us in with SASL SCRAM-SHA-512 as 'scram-user'\n"
            "  hint: check user and password, and that this listener offers the mechanism\n"
        )


def test_live_detection_waits_for_a_broker_and_ends_when_told(tmp_path):
    [port] = free_ports(1)
    words = ("--controller", "127.0.0.1:1", "--state", tmp_path / "state")
    with Command("detect", "--kafka", f"127.0.0.1:{port}", *words) as detect:
        line = detect.says("Detection waits.")
        assert line == (
            f"warning: Detection waits. (detail=cannot connect to 127.0.0.1:{port}: Connection refused)"
        )
        assert detect.end() == 0
