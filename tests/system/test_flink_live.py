"""Detection on a real Flink cluster while records come: machines lost, the command stopped, killed and started again."""

import signal
import threading
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

pytest.importorskip("kafka", reason="kafka-python is not installed (pip install 'paritas[kafka]')")

from kafka import KafkaProducer
from system.control_process import controller, target_of
from system.flink_cluster import until
from system.flink_job import LiveJob, running_job, saved_bytes
from system.kafka_topics import CLOCK, read_topic
from system.recorded_records import recorded_traces, records_of

from paritas.agent.eventlog import Cursor
from paritas.agent.eventlog.kafka_reader import KafkaReader
from paritas.agent.eventlog.kafka_settings import KafkaSettings, TopicSettings
from paritas.agent.eventlog.kafka_topic import ensure_topic
from paritas.commands.detecting import DetectionLoop, LoopSettings
from paritas.contracts.load import load_named
from paritas.controller.client import EscalationClient
from paritas.controller.deliveries import DeliveryKind
from paritas.controller.topic import escalation_from
from paritas.records import Phase

DEADLINE_S = 110
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def contract(tmp_path):
    """The preset with short waits, and a clause on silence."""
    from importlib.resources import files

    text = (files("paritas") / "contracts/presets/dense-bf16.yaml").read_text()
    text = text.replace("name: dense-bf16", "name: live").replace("pair_within: 10m", "pair_within: 5s")
    text = text.replace("within: 60s", "within: 5s")
    silence = "    observability:\n      - {id: fresh, statistic: silence, at_most: 8s}\n"
    path = tmp_path / "live.yaml"
    path.write_text(text.replace("    observability:\n", silence, 1))
    return path


@dataclass(frozen=True)
class Place:
    """Topics of one test."""

    spans: KafkaSettings
    escalations: KafkaSettings

    def ship(self, records):
        """Append records under their trace ids."""
        with closing(KafkaProducer(bootstrap_servers=self.spans.bootstrap[0], acks="all")) as producer:
            for record in records:
                producer.send(self.spans.topic, record.value, key=record.key, headers=list(record.headers))
            producer.flush(timeout=60)

    @property
    def words(self):
        """Of both commands."""
        return ("--kafka", self.spans.bootstrap[0], "--topic", self.spans.topic, "--deployment", "d")

    def said(self):
        """What readers of committed records see, in order."""
        return [escalation_from(record.value) for record in read_topic(self.escalations)[0]]


@pytest.fixture
def place(serving_broker, request):
    """A topic of spans and one of escalations."""
    made = [
        KafkaSettings((serving_broker.bootstrap,), topic=f"{request.node.name[:60].replace('_', '-')}-{kind}")
        for kind in ("spans", "escalations")
    ]
    for settings, partitions in zip(made, (3, 1), strict=True):
        ensure_topic(settings, TopicSettings(partitions=partitions))
    return Place(*made)


def parts(number):
    """A faulty recording, pair by pair, in so many parts."""
    records = []
    for place, run_id in enumerate(("stale", "top-p")):
        both = [replace(t, run_id=run_id) for t in recorded_traces(run_id, base_ns=(place + 1) * 10**18)]
        pairs = zip(both[: len(both) // 2], both[len(both) // 2 :], strict=True)
        records += [t for pair in pairs for t in pair]
    encoded = records_of(records)
    return [encoded[i * len(encoded) // number : (i + 1) * len(encoded) // number] for i in range(number)]


@contextmanager
def one_process(contract, place, folder):
    """The loop of one process on the same topic, live; yields what it says."""
    said: list[Any] = []
    stop = threading.Event()
    with KafkaReader(place.spans, clock=CLOCK) as reader:
        loop = DetectionLoop(
            load_named(str(contract)),
            reader,
            Cursor(folder / "one.state"),
            publish=said.extend,
            clock=CLOCK,
            settings=LoopSettings(deployment="d"),
        )
        with loop:
            thread = threading.Thread(target=loop.run, args=(stop,))
            thread.start()
            try:
                yield said
            finally:
                stop.set()
                thread.join(timeout=60)


def live(flink, place, contract, folder):
    words = ("--contract", contract, "--escalations", place.escalations.topic, "--state", folder / "job.json")
    return LiveJob(flink, *place.words, *words)


def ids_of(said):
    return [e.event_id for e in list(said)]


def agree(said, found, *, before):
    """Wait until both say the same, in order, and the log's end has been lived through; return Flink's ids.

    A job that lags judges a silence that the log did not have (its README says so), and on a busy machine
    it does lag: of the clause on silence only the state at the end is compared.
    """
    return until(
        lambda: (
            is_silent(list(said)[before:])
            and is_silent(told := found())
            and judged(told) == judged(said)
            and ids_of(told)
        ),
        timeout_s=DEADLINE_S,
        what=lambda: f"one process:\n{lines(said)}\nFlink:\n{lines(found())}",
    )


def judged(said):
    return [e.event_id for e in list(said) if e.clause != "fresh"]


def is_silent(said):
    """Whether silence is the state now."""
    phases = [e.after for e in said if e.clause == "fresh"]
    return bool(phases) and phases[-1] is Phase.FIRING


def lines(said):
    return "\n".join(f"{e.event_id} {e.clause} {e.slice} {e.after}" for e in list(said))


def test_live_escalations_reach_a_subscriber_and_a_lost_machine_changes_nothing(
    flink, place, contract, tmp_path
):
    first, second = parts(2)
    with ExitStack() as stack:
        said = stack.enter_context(one_process(contract, place, tmp_path))
        words = ("--escalations-from", place.spans.bootstrap[0], "--escalations", place.escalations.topic)
        control = stack.enter_context(controller(tmp_path / "control", *words))
        client = stack.enter_context(EscalationClient(target_of(control), clock=CLOCK))
        heard = stack.enter_context(subscriber(client))
        job = stack.enter_context(live(flink, place, contract, tmp_path))
        job.says("  job: ", deadline_s=DEADLINE_S)
        name = until(lambda: running_job(flink), timeout_s=90, what=flink.logs)
        place.ship(first)
        until(lambda: place.said() and heard, timeout_s=DEADLINE_S, what=flink.logs)
        until(lambda: saved_bytes(flink, name) > 10_000, timeout_s=DEADLINE_S, what=flink.logs)
        flink.kill_task_manager()
        flink.add_task_manager()
        before = len(said)
        place.ship(second)
        restored = until(lambda: restores(flink, name), timeout_s=DEADLINE_S, what=flink.logs)
        assert restored >= 1
        ids = agree(said, place.said, before=before)
        assert len(set(ids)) == len(ids)
        assert {e.clause for e in said} > {"fresh"}
        until(lambda: set(ids) <= set(heard), timeout_s=DEADLINE_S, what=lambda: str(set(ids) - set(heard)))
        assert sorted(heard) == sorted(set(heard))
        assert job.end(deadline_s=DEADLINE_S) == 0
        assert "stopped with a savepoint: file:" in job.out
        assert control.end() == 0


def restores(cluster, job):
    return cluster.get(f"/jobs/{job}/checkpoints").get("counts", {}).get("restored", 0)


@contextmanager
def subscriber(client):
    """Ids that a real subscriber is delivered."""
    heard: list[str] = []
    subscription = client.subscribe("router-1")

    def read():
        for delivery in subscription:
            if delivery.kind is DeliveryKind.ESCALATION:
                heard.append(delivery.escalation.event_id)
            subscription.ack(delivery)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield heard
    finally:
        subscription.close()
        thread.join(timeout=30)


def test_stopped_killed_and_cancelled_the_same_command_goes_on(flink, place, contract, tmp_path):
    first, second, third = parts(3)
    with one_process(contract, place, tmp_path) as said:
        place.ship(first)
        with live(flink, place, contract, tmp_path) as job:
            assert job.says("goes on:", deadline_s=DEADLINE_S) == "  goes on:     from the start of the topic"
            until(lambda: running_job(flink), timeout_s=90, what=flink.logs)
            until(place.said, timeout_s=DEADLINE_S, what=flink.logs)
            assert job.end(signal.SIGINT, deadline_s=DEADLINE_S) == 0
            savepoint = job.out.splitlines()[-1].removeprefix("stopped with a savepoint: ")
        assert running_job(flink) is None
        before = len(said)
        place.ship(second)  # while nothing runs
        with live(flink, place, contract, tmp_path) as job:
            assert job.says("goes on:", deadline_s=DEADLINE_S) == f"  goes on:     from {savepoint}"
            agree(said, place.said, before=before)
            job.kill()  # the command, not the job
        name = running_job(flink)
        with live(flink, place, contract, tmp_path) as job:
            assert job.says("goes on:", deadline_s=DEADLINE_S) == "  goes on:     it was running already"
            assert name in job.out
            flink.cancel(name)
            assert job.wait(deadline_s=DEADLINE_S) == 1
            assert f"[permanent] job {name} ended: " in job.errors
        before = len(said)
        place.ship(third)
        with live(flink, place, contract, tmp_path) as job:
            line = job.says("goes on:", deadline_s=DEADLINE_S)
            assert f"checkpoints/{name}/chk-" in line
            ids = agree(said, place.said, before=before)
            assert len(set(ids)) == len(ids)
            assert job.end(deadline_s=DEADLINE_S) == 0


def test_what_a_live_job_cannot_do_is_said(flink, place, contract, tmp_path):
    missing = replace(place, escalations=replace(place.escalations, topic="none"))
    with live(flink, missing, contract, tmp_path) as job:
        assert job.wait(deadline_s=DEADLINE_S) == 64
        assert job.errors.endswith(
            f"[usage] topic 'none' on {place.spans.bootstrap[0]} does not exist\n"
            "  hint: make it with `paritas topics`, or correct its name\n"
        )
