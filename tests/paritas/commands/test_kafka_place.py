"""Brokers on the command line, or a file with everything: the same settings, and exact words for what is wrong."""

import threading
from pathlib import Path

import pytest

from paritas.agent.eventlog.kafka_settings import Compression, KafkaSettings, Sasl, SaslMechanism, Tls
from paritas.clock import ManualClock
from paritas.commands.agent_config import ConfigError
from paritas.commands.kafka_place import kafka_place, read_kafka_file, when_served
from paritas.errors import TransientError, UsageError

FULL = """
kafka:
  bootstrap: ['k-0.kafka:9093', 'k-1.kafka:9093']
  topic: spans
  compression: gzip
  connect_timeout: 3s
  tls: {ca_file: /ca.pem, certificate_file: /me.pem, key_file: /me.key, check_hostname: false}
  sasl: {mechanism: SCRAM-SHA-512, username: me, password_file: %s}
"""


def test_everything_a_file_says(tmp_path):
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "kafka.yaml").write_text(FULL % (tmp_path / "password"))
    found = kafka_place(str(tmp_path / "kafka.yaml"), client_id="c")
    assert found == KafkaSettings(
        ("k-0.kafka:9093", "k-1.kafka:9093"),
        topic="spans",
        client_id="c",
        compression=Compression.GZIP,
        connect_timeout_s=3.0,
        tls=Tls(*map(Path, ("/ca.pem", "/me.pem", "/me.key")), check_hostname=False),
        sasl=Sasl(SaslMechanism.SCRAM_SHA_512, "me", "secret"),
    )
    assert "secret" not in repr(found)


def test_the_topic_of_the_command_line_wins(tmp_path):
    (tmp_path / "k.yaml").write_text("kafka: {bootstrap: ['a:1'], topic: spans}")
    assert kafka_place(str(tmp_path / "k.yaml"), topic="other").topic == "other"
    assert kafka_place(str(tmp_path / "k.yaml")).topic == "spans"
    assert kafka_place("a:1,b:2") == KafkaSettings(("a:1", "b:2"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "[config] k.yaml:1:1: the file is empty\n  hint: kafka.bootstrap is required"),
        (
            "kafka: {bootstrap: ['a:1'], tsl: {}}",
            "[config] k.yaml:1:29: kafka: unknown field 'tsl'\n  hint: did you mean 'tls'?",
        ),
        (
            "bootstrap: ['a:1']",
            (
                "[config] k.yaml:1:1: unknown field 'bootstrap'\n  hint: known: kafka\n"
                "[config] k.yaml:1:1: missing field 'kafka'\n  hint: kafka: the cluster"
            ),
        ),
        (
            "kafka: {bootstrap: ['a:1'], sasl: {mechanism: PLAIN}}",
            "[config] k.yaml:1:8: kafka: SASL PLAIN needs username and password",
        ),
        (
            "kafka: {bootstrap: ['a:1'], sasl: {mechanism: PLAIN, username: u, password_file: /no/such}}",
            (
                "[config] k.yaml:1:8: kafka: /no/such: cannot be read: No such file or directory\n"
                "  hint: name a file with the password"
            ),
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, said):
    with pytest.raises(ConfigError) as caught:
        read_kafka_file(text.encode(), "k.yaml")
    assert caught.value.render() == said


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(UsageError) as caught:
        kafka_place(str(tmp_path))
    assert caught.value.render() == (
        f"[usage] {tmp_path}: cannot be read: Is a directory\n  hint: name a Kafka settings file"
    )


def test_waiting_says_each_reason_once_and_ends_when_told():
    clock, stop, said = ManualClock(), threading.Event(), []
    answers = [TransientError("a"), TransientError("a"), TransientError("b"), "open"]

    def start():
        answer = answers.pop(0)
        if isinstance(answer, str):
            return answer
        raise answer

    def on_wait(error):
        said.append(str(error))

    assert when_served(start, clock=clock, stop=stop, on_wait=on_wait) == "open"
    assert said == ["a", "b"]
    stop.set()
    assert when_served(start, clock=clock, stop=stop, on_wait=on_wait) is None
