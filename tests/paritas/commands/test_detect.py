"""`paritas detect` and `paritas control` as processes, and every error a user can cause."""

import contextlib
import json
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from command_runs import DEADLINE_S, recording, run, until

from paritas.agent.eventlog import Cursor, EmbeddedLog, EmbeddedReader, LogSettings, SyncMode
from paritas.clock import ManualClock, SystemClock
from paritas.collectors.dumps import ReadOptions, read_dump
from paritas.commands.detecting import DetectionLoop, LoopSettings
from paritas.commands.escalation_feed import EscalationFeed
from paritas.commands.ingest import alternate
from paritas.contracts.load import load_named
from paritas.controller.client import EscalationClient
from paritas.controller.config import ServerConfig
from paritas.controller.server import serving
from paritas.controller.topic import escalation_bytes
from paritas.detectors.flink.evaluation import verdict_line
from paritas.errors import PermanentError, TransientError
from paritas.tokens import TokenHasher
from paritas.wire import Origin, WireRecord, encode, stamp

CONTRACT = load_named("dense-bf16")


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """The stale recording in an embedded log of three partitions, ten milliseconds a record."""
    folder, clock = tmp_path_factory.mktemp("log") / "log", ManualClock()
    options = ReadOptions(TokenHasher(b"k" * 16), base_ns=10**18, step_ns=10_000_000)
    paths = [Path(recording(name)) for name in ("healthy.serve", "stale.train")]
    traces = alternate([read_dump(path, options) for path in paths])
    with EmbeddedLog(folder, LogSettings(partitions=3, sync=SyncMode.NONE), clock=clock) as made:
        for i, record in enumerate(r for trace in traces for r in encode([trace], resource={})):
            made.append(stamp(record, Origin("test", 1, i)), partition_key=record.key)
            clock.advance(seconds=0.01)
    return folder


@pytest.fixture(scope="module")
def judged(log, tmp_path_factory):
    """Escalations and verdicts of a loop in this process, to the end."""
    return judge(log, tmp_path_factory.mktemp("here"), batch=256)


def judge(folder, state, *, batch):
    from threading import Event

    said, settings = [], LoopSettings(batch=batch, to_end=True)
    with (
        EmbeddedReader(folder) as reader,
        DetectionLoop(
            CONTRACT, reader, Cursor(state / "s"), publish=said.extend, clock=SystemClock(), settings=settings
        ) as loop,
    ):
        loop.run(Event())
        return said, verdict_line(CONTRACT.digest, loop.detector.verdicts())


@contextlib.contextmanager
def controller(data):
    """`paritas control` from ready to ended; yields its target."""
    command = [str(Path(sys.executable).with_name("paritas")), "control", "--data", str(data)]
    process = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("escalations: 127.0.0.1:"), line
        yield line.split()[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_log_is_judged_to_its_end_and_a_second_run_says_nothing_new(log, judged, tmp_path):
    with controller(tmp_path / "control") as target, EscalationClient(target) as client:
        options = ["--log", log, "--controller", target, "--state", tmp_path / "state", "--to-end"]
        first = run("detect", *options, "--verdicts", tmp_path / "verdicts.json")
        assert (first.returncode, first.stderr) == (0, "")
        assert first.stdout == (
            f"judging {log} by dense-bf16 1.0.0\njudged 96 records: 48 sequences, {len(judged[0])} escalations\n"
        )
        assert (tmp_path / "verdicts.json").read_text() == judged[1] + "\n"
        found = {i.current.event_id for i in client.incidents(include_closed=True)}
        assert found <= {e.event_id for e in judged[0]}
        assert found
        again = run("detect", *options)
        assert again.stdout.endswith("judged 0 records: 48 sequences, 0 escalations\n")


@pytest.mark.parametrize("batch", [1, 5])
def test_batches_of_several_partitions_change_nothing(log, judged, tmp_path, batch):
    said, verdicts = judge(log, tmp_path, batch=batch)
    assert [repr(e) for e in said] == [repr(e) for e in judged[0]]
    assert verdicts == judged[1]


def test_verdicts_are_json_that_any_reader_takes(judged):
    def refuse(text):
        raise AssertionError(text)

    told = json.loads(judged[1], parse_constant=refuse)
    assert told["contract"] == CONTRACT.digest
    assert {v["state"] for v in told["verdicts"]} >= {"violated", "undecided"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["--log", "x"],
            "[usage] --engine process needs --controller\n  hint: start one with `paritas control`\n",
        ),
        (
            [],
            "[usage] one of the arguments --log --kafka is required\n  hint: paritas detect --help shows what it takes\n",
        ),
        (
            ["--log", "x", "--engine", "flink"],
            "[usage] --engine flink reads Kafka\n  hint: give --kafka HOST:PORT instead of --log\n",
        ),
        (
            ["--kafka", "x:1", "--verdicts", "v"],
            "[usage] --verdicts needs --to-end\n  hint: a log that goes on has no last verdict\n",
        ),
        (
            ["--kafka", "x", "--controller", "y:1"],
            (
                "[usage] 'x' is neither HOST:PORT nor a file\n"
                "  hint: write kafka-0.kafka:9092, or the path of a file with a `kafka:` section\n"
            ),
        ),
        (
            ["--kafka", "x:1", "--engine", "flink"],
            (
                "[usage] --engine flink needs Apache Flink's Python package\n"
                "  hint: pip install 'paritas[flink]' in a virtual environment of its own\n"
            ),
        ),
    ],
)
def test_errors_say_what_to_do(words, text):
    done = run("detect", *words)
    assert (done.returncode, done.stdout, done.stderr) == (64, "", text)


def test_settings_are_key_and_value():
    from paritas.commands.detect_flink import settings_of
    from paritas.errors import UsageError

    with pytest.raises(UsageError) as caught:
        settings_of(["a.b"], "--flink")
    assert str(caught.value) == "--flink 'a.b' is not KEY=VALUE"


# ---- the controller's side of the topic


@pytest.fixture
def topic(judged, tmp_path):
    """Escalations twice over, with garbage between, in a log."""
    with EmbeddedLog(
        tmp_path / "topic", LogSettings(partitions=1, sync=SyncMode.NONE), clock=ManualClock()
    ) as made:
        for event in (*judged[0], *judged[0]):
            for value in (escalation_bytes(event), b"\xff garbage"):
                made.append(WireRecord(b"", value), partition_key=b"")
    return partial(EmbeddedReader, tmp_path / "topic")


def test_the_feed_publishes_each_id_once_and_goes_on_where_it_stood(topic, judged, tmp_path):
    clock, total = SystemClock(), 2 * len(judged[0])
    with (
        serving(ServerConfig(tmp_path / "e.sqlite", listen="127.0.0.1:0")) as target,
        EscalationClient(target) as client,
    ):
        for expected in (total, 0):
            feed = EscalationFeed(topic, Cursor(tmp_path / "cursor"), publish=client.publish, clock=clock)
            with feed:
                until(lambda feed=feed, n=2 * expected: feed.published + feed.refused >= n)
            assert (feed.published, feed.refused) == (expected, expected)
        known = {e.event_id for i in client.incidents(include_closed=True) for e in history(client, i)}
        assert known == {e.event_id for e in judged[0]}


def history(client, incident):
    return client.history(incident.current.incident_id).transitions


def test_the_feed_waits_for_a_controller_that_is_away(topic, judged, tmp_path):
    taken, refusals = [], [TransientError("not now")] * 3

    def publish(escalations):
        if refusals:
            raise refusals.pop()
        taken.extend(escalations)

    with EscalationFeed(topic, Cursor(tmp_path / "cursor"), publish=publish, clock=SystemClock()):
        until(lambda: len(taken) >= 2 * len(judged[0]))
    assert [e.event_id for e in taken] == [e.event_id for e in judged[0]] * 2


def test_the_feed_waits_for_a_topic_that_is_away_and_says_it_once(topic, judged, tmp_path, caplog):
    taken, refusals = [], [TransientError("not now"), TransientError("not now"), RuntimeError("a mistake")]

    def open_reader():
        if refusals:
            raise refusals.pop(0)
        return topic()

    feed = EscalationFeed(open_reader, Cursor(tmp_path / "c"), publish=taken.extend, clock=SystemClock())
    with feed:
        until(lambda: len(taken) >= 2 * len(judged[0]))
    said = [(r.getMessage(), getattr(r, "detail", "")) for r in caplog.records]
    assert said[0] == ("Escalations wait.", "not now")
    assert len([detail for _, detail in said if detail == "not now"]) == 1
    assert "a mistake" in caplog.text


def test_a_broker_that_hangs_does_not_hold_back_the_end(topic, tmp_path):
    asked, release, taken = threading.Event(), threading.Event(), []

    def open_reader():
        asked.set()
        assert release.wait(timeout=60)
        return topic()

    feed = EscalationFeed(open_reader, Cursor(tmp_path / "c"), publish=taken.extend, clock=SystemClock())
    with feed:
        assert asked.wait(timeout=60)
    [left] = [thread for thread in threading.enumerate() if thread.name == "escalation-feed"]
    release.set()
    left.join(timeout=60)
    assert not left.is_alive()
    assert taken == []


def test_a_feed_that_ends_while_it_reads_hands_nothing_on(topic, tmp_path):
    reading, release, taken = threading.Event(), threading.Event(), []

    class Held(EmbeddedReader):
        """Gives its records only when it is let, as a broker that is slow does."""

        def read(self, *where, **how):
            found = super().read(*where, **how)
            reading.set()
            assert release.wait(timeout=60)
            return found

    feed = EscalationFeed(
        lambda: Held(tmp_path / "topic"), Cursor(tmp_path / "c"), publish=taken.extend, clock=SystemClock()
    )
    with feed:
        assert reading.wait(timeout=60)
    [left] = [thread for thread in threading.enumerate() if thread.name == "escalation-feed"]
    release.set()
    left.join(timeout=60)
    assert not left.is_alive()
    assert (taken, Cursor(tmp_path / "c").load()) == ([], None)


def test_one_escalation_that_the_controller_refuses_holds_back_no_other(topic, judged, tmp_path, caplog):
    taken, bad = [], judged[0][1].event_id

    def publish(escalations):
        if any(e.event_id == bad for e in escalations):
            raise PermanentError("never")
        taken.extend(e.event_id for e in escalations)

    feed = EscalationFeed(topic, Cursor(tmp_path / "c"), publish=publish, clock=SystemClock())
    total = 4 * len(judged[0])  # each twice, and as much garbage
    with feed:
        until(lambda: feed.published + feed.refused >= total)
    assert sorted(taken) == sorted(2 * [e.event_id for e in judged[0] if e.event_id != bad])
    assert (feed.refused, feed.lost) == (2 * len(judged[0]) + 2, 0)
    told = [r for r in caplog.records if r.getMessage() == "Records of the escalation topic are refused."]
    assert told[0].first == "partition 0, offset 1"
    assert told[0].detail == "the record is no escalation"
