"""Detection on a real Flink cluster and broker says what one process says, also when a machine is lost in between."""

import json
import os
import subprocess
import threading
from contextlib import closing
from dataclasses import replace

import pytest

pytest.importorskip("kafka", reason="kafka-python is not installed (pip install 'paritas[kafka]')")

from kafka import KafkaProducer
from system.flink_cluster import JAR, ROOT, VENV, FlinkCluster, fetch, missing_tool, until
from system.kafka_topics import CLOCK, read_topic
from system.recorded_records import recorded_traces, records_of

from paritas.agent.eventlog import Cursor
from paritas.agent.eventlog.kafka_reader import KafkaReader
from paritas.agent.eventlog.kafka_settings import KafkaSettings, TopicSettings
from paritas.agent.eventlog.kafka_topic import ensure_topic
from paritas.commands.detecting import DetectionLoop, LoopSettings
from paritas.contracts.load import load_named
from paritas.controller.topic import escalation_bytes, escalation_from
from paritas.detectors.flink.evaluation import verdict_line

PARTITIONS, COPIES, STEP_NS = 3, 10, 10**12
CONTRACT = load_named("dense-bf16")
DEADLINE_S = 240
MUCH_BYTES = 100_000  # of state: well in the middle of the topic

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def flink(tmp_path_factory):
    """A cluster of two task managers."""
    if reason := missing_tool():
        pytest.skip(reason)
    fetch()
    with FlinkCluster(tmp_path_factory.mktemp("flink")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def spans(kafka_broker):
    """A topic with the shipped recordings, several times over, each a run of its own."""
    kafka_broker.start()
    settings = KafkaSettings((kafka_broker.bootstrap,), topic="flink-spans")
    ensure_topic(settings, TopicSettings(partitions=PARTITIONS))
    with closing(KafkaProducer(bootstrap_servers=kafka_broker.bootstrap, acks="all")) as producer:
        for record in records_of(list(traces())):
            producer.send(settings.topic, record.value, key=record.key, headers=list(record.headers))
        producer.flush(timeout=60)
    return settings


def traces():
    """Every pair of recordings, kernels in turn, and a few halves that nothing follows."""
    for copy in range(COPIES):
        for place, run_id in enumerate(("healthy", "stale", "top-p")):
            base_ns = 10**18 + (3 * copy + place) * STEP_NS
            both = [replace(t, run_id=f"{run_id}-{copy}") for t in recorded_traces(run_id, base_ns=base_ns)]
            half = len(both) // 2
            for i, pair in enumerate(zip(both[:half], both[half:], strict=True)):
                yield from pair[: 1 if i % 16 == 5 else 2]


@pytest.fixture(scope="module")
def one_process(spans, tmp_path_factory):
    """Escalations and verdicts of one process on the same topic."""
    said = []
    cursor = Cursor(tmp_path_factory.mktemp("state") / "detector.state")
    with KafkaReader(spans, clock=CLOCK) as reader:
        settings = LoopSettings(deployment="d", to_end=True)
        with DetectionLoop(
            CONTRACT, reader, cursor, publish=said.extend, clock=CLOCK, settings=settings
        ) as loop:
            loop.run(threading.Event())
            verdicts = verdict_line(CONTRACT.digest, loop.detector.verdicts())
    assert len(said) > 5
    return [escalation_from(escalation_bytes(e)) for e in said], verdicts


class Job:
    """`paritas detect --engine flink` as a user starts it, on the cluster."""

    def __init__(self, cluster, spans, folder, name, *, parallelism):
        self.out = folder / "verdicts"
        self.escalations = replace(spans, topic=f"escalations-{name}")
        ensure_topic(self.escalations, TopicSettings(partitions=1))
        options = {
            "--kafka": spans.bootstrap[0],
            "--topic": spans.topic,
            "--escalations": self.escalations.topic,
            "--contract": "dense-bf16",
            "--deployment": "d",
            "--parallelism": str(parallelism),
            "--checkpoint-s": "0.5",
            "--verdicts": str(self.out),
            "--jar": str(JAR),
        }
        words = [word for option in options.items() for word in option]
        for setting in cluster.settings.items():
            words += ["--flink", "=".join(setting)]
        command = [str(VENV / "bin/paritas"), "detect", "--engine", "flink", "--to-end"]
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *words],
                cwd=ROOT,
                env=os.environ | {"PATH": f"{VENV / 'bin'}:{os.environ['PATH']}"},
                stdout=log,
                stderr=log,
            )

    def end(self):
        """Wait for the end; returns (escalations, verdicts)."""
        try:
            code = self.process.wait(timeout=DEADLINE_S)
        finally:
            self.process.kill()
        assert code == 0, self.log.read_text()[-4000:]
        records, _ = read_topic(self.escalations)
        lines = [line for part in self.out.rglob("part-*") for line in part.read_text().splitlines()]
        assert len(lines) == 1
        return [escalation_from(record.value) for record in records], lines[0]


def test_the_topic_has_what_can_go_differently(one_process):
    escalations, verdicts = one_process
    reasons = {v["state"] for v in json.loads(verdicts)["verdicts"]}
    assert {"violated", "undecided"} <= reasons
    assert len({e.event_id for e in escalations}) == len(escalations)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_verdicts_and_escalations_equal_those_of_one_process(
    flink, spans, one_process, tmp_path, parallelism
):
    job = Job(flink, spans, tmp_path, f"p{parallelism}", parallelism=parallelism)
    assert same(job.end(), one_process)


def same(found, expected):
    """Ids first, so that a difference reads well; then every field and every bit of the verdicts."""
    assert [e.event_id for e in found[0]] == [e.event_id for e in expected[0]]
    assert [repr(e) for e in found[0]] == [repr(e) for e in expected[0]]
    assert found[1] == expected[1]
    return True


def test_a_task_manager_killed_in_between_changes_nothing(flink, spans, one_process, tmp_path):
    job = Job(flink, spans, tmp_path, "killed", parallelism=2)
    name = until(lambda: running_job(flink), timeout_s=90, what=job.log.read_text)
    until(lambda: saved_bytes(flink, name) > MUCH_BYTES, timeout_s=90, what=flink.logs)
    assert job.process.poll() is None
    flink.kill_task_manager()
    flink.add_task_manager()
    assert same(job.end(), one_process)
    assert flink.get(f"/jobs/{name}/checkpoints")["counts"]["restored"] >= 1


def running_job(cluster):
    jobs = cluster.get("/jobs/overview").get("jobs", ())
    return next((job["jid"] for job in jobs if job["state"] == "RUNNING"), None)


def saved_bytes(cluster, name):
    """Size of the last checkpoint: how much it knows."""
    last = cluster.get(f"/jobs/{name}/checkpoints").get("latest", {}).get("completed")
    return last["state_size"] if last else 0
