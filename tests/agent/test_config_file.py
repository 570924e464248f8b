"""The configuration file: what it may say, and the exact words about every mistake."""

import pytest

from paritas.agent.config import EmbeddedTarget, HealthSettings, ReceiverSettings, ShippingSettings
from paritas.agent.eventlog import SyncMode
from paritas.agent.eventlog.kafka_settings import Compression, KafkaSettings, Sasl, SaslMechanism, Tls
from paritas.agent.retry import Backoff
from paritas.commands.agent_config import ConfigError, load_agent_config, read_agent_config
from paritas.errors import UsageError

SMALL = """\
name: pod-7
spool: {path: /var/spool/paritas}
receivers: {unix: {path: /run/paritas.sock}}
destination: {embedded: {path: /var/log/paritas}}
"""
EVERY_FIELD = """\
name: pod-7
spool:
  path: /s
  limit_bytes: 1000000
  segment_bytes: 100000
  max_age: 2h
  when_full: refuse
  sync: always
  sync_interval: 100ms
  memory_bytes: 5000
receivers:
  unix: {path: /u, uids: [1000, 1001]}
  http: {listen: '127.0.0.1:4318'}
  grpc: {listen: 'localhost:4317'}
  max_body_bytes: 7000
  max_pending_bytes: 8000
destination:
  kafka:
    bootstrap: ['k1:9092', 'k2:9092']
    topic: spans
    client_id: me
    compression: gzip
    tls: {ca_file: /ca, check_hostname: false}
    sasl: {mechanism: SCRAM-SHA-512, username: u, password_file: PASSWORD_FILE}
    in_flight_bytes: 3000000
    record_limit_bytes: 900000
    connect_timeout: 1s
    request_timeout: 2s
    delivery_timeout: 3s
shipping:
  batch_records: 5
  batch_bytes: 6
  max_records_per_s: 7
  max_bytes_per_s: 8.5
  retry_first: 100ms
  retry_most: 1m
  commit: 2s
  gather: 10ms
health: {listen: '0.0.0.0:9', stall: 1m, report: 0s}
grace: 3s
"""


def read(text):
    return read_agent_config(text.encode(), "agent.yaml")


def refusal(text):
    with pytest.raises(ConfigError) as raised:
        read(text)
    return raised.value.render()


def test_four_lines_are_a_configuration():
    config = read(SMALL)
    assert (config.name, config.grace_s) == ("pod-7", 10.0)
    assert config.target == EmbeddedTarget(config.target.path)
    assert config.receivers == ReceiverSettings(unix_path=config.receivers.unix_path)
    assert (config.shipping, config.health) == (ShippingSettings(), HealthSettings())


def test_without_a_name_it_has_the_hosts():
    assert read(SMALL.replace("name: pod-7\n", "")).name


def test_without_a_name_the_surroundings_may_tell_it(monkeypatch):
    monkeypatch.setenv("PARITAS_AGENT_NAME", "train-0-x7k2p")
    assert read(SMALL.replace("name: pod-7\n", "")).name == "train-0-x7k2p"
    assert read(SMALL).name == "pod-7"


def test_a_name_from_the_surroundings_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("PARITAS_AGENT_NAME", "a/b")
    assert refusal(SMALL.replace("name: pod-7\n", "")) == (
        "[config] agent.yaml:1:1: PARITAS_AGENT_NAME is 'a/b', which is no name\n"
        "  hint: write letters, digits, '.', '_' and '-', at most 128"
    )


def test_everyone_may_send_where_the_file_says_so():
    receivers = read(SMALL.replace("paritas.sock}", "paritas.sock, any_user: true}")).receivers
    assert (receivers.any_user, receivers.is_shared, receivers.peer_uids) == (True, True, ())


@pytest.fixture
def full(tmp_path):
    (tmp_path / "password").write_text("secret\n")
    return read(EVERY_FIELD.replace("PASSWORD_FILE", str(tmp_path / "password")))


def test_every_field_of_the_spool_reaches_its_place(full):
    spool = full.spool
    assert (spool.limit_bytes, spool.segment_bytes, spool.memory_bytes) == (1_000_000, 100_000, 5000)
    assert (spool.max_age_s, spool.refuse_when_full) == (7200.0, True)
    assert (spool.sync, spool.sync_interval_s) == (SyncMode.ALWAYS, 0.1)


def test_every_field_of_the_receivers_reaches_its_place(full):
    receivers = full.receivers
    assert (receivers.any_user, receivers.is_shared) == (False, True)
    assert receivers.peer_uids == (1000, 1001)
    assert (receivers.http_listen, receivers.grpc_listen) == ("127.0.0.1:4318", "localhost:4317")
    assert (receivers.max_body_bytes, receivers.max_pending_bytes) == (7000, 8000)


def test_every_field_of_a_kafka_destination_reaches_its_place(full):
    told = full.target
    assert isinstance(told, KafkaSettings)
    assert (told.bootstrap, told.topic, told.client_id) == (("k1:9092", "k2:9092"), "spans", "me")
    assert (told.compression, told.tls) == (Compression.GZIP, Tls(told.tls.ca_file, check_hostname=False))
    assert told.sasl == Sasl(SaslMechanism.SCRAM_SHA_512, "u", "secret")
    assert (told.in_flight_bytes, told.record_limit_bytes) == (3_000_000, 900_000)
    assert (told.connect_timeout_s, told.request_timeout_s, told.delivery_timeout_s) == (1.0, 2.0, 3.0)


def test_a_password_is_in_no_text_of_a_configuration(full):
    assert "secret" not in repr(full)


def test_every_field_of_shipping_and_health_reaches_its_place(full):
    assert full.shipping == ShippingSettings(5, 6, 7.0, 8.5, Backoff(0.1, 60.0), 2.0, 0.01)
    assert full.health == HealthSettings("0.0.0.0:9", 60.0, 0.0)
    assert full.grace_s == 3.0


@pytest.mark.parametrize(
    ("wrong", "right", "text"),
    [
        (
            "spool:",
            "spol:",
            (
                "[config] agent.yaml:1:1: missing field 'spool'\n"
                "  hint: spool: what is kept until it is delivered\n"
                "[config] agent.yaml:2:1: unknown field 'spol'\n  hint: did you mean 'spool'?"
            ),
        ),
        (
            "/var/spool/paritas",
            "/s, max_age: 7",
            (
                "[config] agent.yaml:2:28: spool.max_age: expected a duration, got number 7\n"
                "  hint: durations carry a unit: write 7s"
            ),
        ),
        (
            "/var/spool/paritas",
            "/s, limit_bytes: 1GiB",
            (
                "[config] agent.yaml:2:32: spool.limit_bytes: expected a whole number, got text '1GiB'\n"
                "  hint: in bytes: write 1073741824"
            ),
        ),
        (
            "/var/spool/paritas",
            "/s, limit_bytes: 10000",
            (
                "[config] agent.yaml:2:8: spool: a limit of 10000 bytes is less than two segments of 33554432\n"
                "  hint: raise limit_bytes, or lower segment_bytes or the number of partitions"
            ),
        ),
        (
            "unix: {path: /run/paritas.sock}",
            "http: {listen: '0.0.0.0:4318'}",
            (
                "[config] agent.yaml:1:1: 0.0.0.0:4318: spans are taken on loopback addresses only\n"
                "  hint: listen on 127.0.0.1; other machines send to the event log"
            ),
        ),
        (
            "{unix: {path: /run/paritas.sock}}",
            "{}",
            "[config] agent.yaml:1:1: no receiver: nothing could come in\n  hint: set receivers.unix.path",
        ),
        (
            "embedded: {path: /var/log/paritas}",
            "pulsar: {}",
            "[config] agent.yaml:4:15: destination: unknown name 'pulsar'\n  hint: known: embedded, kafka",
        ),
        (
            "embedded: {path: /var/log/paritas}",
            "kafka: {bootstrap: ['broker']}",
            (
                "[config] agent.yaml:4:15: destination.kafka: bootstrap address 'broker' is not host:port\n"
                "  hint: e.g. kafka-0.kafka:9092"
            ),
        ),
        (
            "embedded: {path: /var/log/paritas}",
            "kafka: {bootstrap: ['k:1'], sasl: {mechanism: PLAIN, username: u, password_file: /no/such}}",
            (
                "[config] agent.yaml:4:15: destination.kafka: /no/such: cannot be read: No such file or directory\n"
                "  hint: name a file with the password"
            ),
        ),
        (
            "embedded: {path: /var/log/paritas}",
            "kafka: {bootstrap: ['k:1'], sasl: {mechanism: PLAIN, username: u}}",
            "[config] agent.yaml:4:15: destination.kafka: SASL PLAIN needs username and password",
        ),
        (
            "name: pod-7",
            "name: pod 7",
            (
                "[config] agent.yaml:1:7: name: 'pod 7' is not allowed here\n"
                "  hint: letters, digits, '.', '_' and '-'"
            ),
        ),
    ],
)
def test_every_mistake_has_its_place_and_a_way_out(wrong, right, text):
    assert refusal(SMALL.replace(wrong, right)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "",
            "[config] agent.yaml:1:1: the file is empty\n  hint: spool, receivers and destination are required",
        ),
        (
            SMALL + "---\n",
            "[config] agent.yaml:5:1: a second document\n  hint: one configuration a file",
        ),
        (
            "spool: {path: /s",
            (
                "[config] agent.yaml:1:8: not YAML: expected ',' or '}', but got '<stream end>'\n"
                "  hint: what opens here is never closed"
            ),
        ),
    ],
)
def test_what_is_no_configuration_at_all(text, expected):
    assert refusal(text) == expected


def test_a_missing_file_is_one_clear_error(tmp_path):
    with pytest.raises(UsageError) as raised:
        load_agent_config(tmp_path / "no.yaml")
    assert raised.value.render() == (
        f"[usage] {tmp_path}/no.yaml: cannot be read: No such file or directory\n"
        "  hint: name the agent's configuration file"
    )
