"""Detection on a real Flink cluster and broker says what one process says, also when a machine is lost in between."""

import json
import threading
from contextlib import closing
from dataclasses import replace

import pytest

pytest.importorskip("kafka", reason="kafka-python is not installed (pip install 'paritas[kafka]')")

from kafka import KafkaProducer
from system.flink_cluster import until
from system.flink_job import DEADLINE_S, Job, running_job, saved_bytes
from system.kafka_topics import CLOCK
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
# Of state: some of the topic was taken in. At its end there are 160,000, and a slow machine saves few states before it.
MUCH_BYTES = 20_000

pytestmark = pytest.mark.timeout(1200)


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


def test_the_topic_has_what_can_go_differently(one_process):
    escalations, verdicts = one_process
    reasons = {v["state"] for v in json.loads(verdicts)["verdicts"]}
    assert {"violated", "undecided"} <= reasons
    assert len({e.event_id for e in escalations}) == len(escalations)


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.thorough), 2])
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


@pytest.mark.thorough
def test_a_task_manager_killed_in_between_changes_nothing(flink, spans, one_process, tmp_path):
    job = Job(flink, spans, tmp_path, "killed", parallelism=2)
    name = until(lambda: running_job(flink), timeout_s=DEADLINE_S, what=job.log.read_text)
    until(lambda: saved_bytes(flink, name) > MUCH_BYTES, timeout_s=DEADLINE_S, what=flink.logs)
    assert job.process.poll() is None
    flink.kill_task_manager()
    flink.add_task_manager()
    assert same(job.end(), one_process)
    assert flink.get(f"/jobs/{name}/checkpoints")["counts"]["restored"] >= 1
