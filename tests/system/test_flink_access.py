"""A Flink job on a real broker that wants TLS and SCRAM, from the file that all commands take."""

import json

import pytest

pytest.importorskip("kafka", reason="kafka-python is not installed (pip install 'paritas[kafka]')")

from system.control_process import Command
from system.flink_job import environment
from system.flink_setup import JAR_WORDS, VENV
from system.kafka_topics import read_topic, wait_for_ends_of_transactions
from system.recorded_records import recorded_traces, records_of
from system.safe_kafka import named_topic, settings_file

from paritas.agent.eventlog.kafka_shipper import KafkaShipper
from paritas.contracts.load import load_named

DEADLINE_S = 240
pytestmark = [pytest.mark.timeout(1200), pytest.mark.thorough]


@pytest.fixture
def words(flink, safe_broker, tmp_path):
    """Of the command; the topics are there, one of them with a faulty recording."""
    spans, events = (named_topic(safe_broker, f"{tmp_path.name}-{kind}") for kind in ("spans", "escalations"))
    traces = list(recorded_traces("stale", base_ns=10**18))
    half = len(traces) // 2
    shipped = records_of([t for pair in zip(traces[:half], traces[half:], strict=True) for t in pair])
    with KafkaShipper(spans) as shipper:
        assert shipper.ship(shipped).settled == len(shipped)
    further = [word for setting in flink.settings.items() for word in ("--flink", "=".join(setting))]
    return [
        *("detect", "--engine", "flink", "--to-end", "--checkpoint-s", "0.5", *JAR_WORDS),
        *("--kafka", str(settings_file(tmp_path, safe_broker)), "--topic", spans.topic),
        *("--escalations", events.topic, "--verdicts", str(tmp_path / "verdicts"), *further),
    ], events


def test_source_and_sink_over_tls_and_scram(words, tmp_path):
    command, events = words
    with Command(*command, program=VENV / "bin/paritas", env=environment()) as job:
        assert job.wait(deadline_s=DEADLINE_S) == 0, job.errors
        assert job.out.endswith("judged to the end\n")
    [line] = [
        text for part in (tmp_path / "verdicts").rglob("part-*") for text in part.read_text().splitlines()
    ]
    assert json.loads(line)["contract"] == load_named("dense-bf16").digest
    wait_for_ends_of_transactions(events)
    assert read_topic(events)[0]


def test_an_empty_topic_has_no_verdicts_and_that_is_said(words, safe_broker, tmp_path):
    command, _ = words
    empty = named_topic(safe_broker, f"{tmp_path.name}-nothing")
    command[command.index("--topic") + 1] = empty.topic
    with Command(*command, program=VENV / "bin/paritas", env=environment()) as job:
        assert job.wait(deadline_s=DEADLINE_S) == 1
        lines = job.errors.splitlines()
        assert lines[-2].startswith("[transient] job ")
        assert lines[-2].endswith(" ended without verdicts")
        assert lines[-1] == "  hint: is the topic empty? else run it again"


def test_without_the_connector_flink_says_what_is_missing(words):
    command, _ = words
    without = [word for word in command if word not in JAR_WORDS]
    with Command(*without, program=VENV / "bin/paritas", env=environment()) as job:
        assert job.wait(deadline_s=DEADLINE_S) == 64
        first, hint = job.errors.splitlines()[-2:]
        assert first.startswith(
            "[usage] Flink cannot build the job: Could not find any factory for identifier 'kafka'"
        )
        assert hint == (
            "  hint: the connector is a jar: --jar flink-sql-connector-kafka-5.0.0-2.2.jar; settings are --flink KEY=VALUE"
        )
