"""Topics that are there or not, and whom a real Kafka broker lets in: exact words for each answer."""

import base64
import json
import threading
from contextlib import suppress
from dataclasses import replace

import pytest

pytest.importorskip("kafka", reason="kafka-python is not installed (pip install 'paritas[kafka]')")

from free_ports import free_ports
from kafka.admin import ConfigResource, ConfigResourceType
from system.kafka_broker import PASSWORD
from system.kafka_topics import CLOCK, admin_of, fresh_topic, numbered, topic_name

from paritas.agent.eventlog.kafka_errors import KafkaProblem
from paritas.agent.eventlog.kafka_log import KafkaLog
from paritas.agent.eventlog.kafka_reader import KafkaReader
from paritas.agent.eventlog.kafka_settings import (
    KafkaSettings,
    Sasl,
    SaslMechanism,
    Tls,
    TopicSettings,
)
from paritas.agent.eventlog.kafka_shipper import KafkaShipper
from paritas.agent.eventlog.kafka_topic import describe_topic, ensure_topic
from paritas.errors import ParitasError, TransientError, UsageError


@pytest.fixture
def settings(serving_broker, request):
    """A new topic of two partitions."""
    return fresh_topic(serving_broker, request)


def test_a_topic_is_made_once_and_with_our_settings(serving_broker, request):
    settings = KafkaSettings((serving_broker.bootstrap,), topic=topic_name(request))
    made = ensure_topic(settings, TopicSettings(partitions=5, retention_s=60, max_message_bytes=2_000_000))
    assert made == ensure_topic(settings, TopicSettings(partitions=9)) == describe_topic(settings)
    assert made.partitions == 5
    configs = admin_of(serving_broker, lambda admin: topic_configs(admin, settings.topic))
    assert configs["retention.ms"] == "60000"
    assert configs["max.message.bytes"] == "2000000"
    assert configs["message.timestamp.type"] == "LogAppendTime"


def topic_configs(admin, topic):
    answer = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    return {name: told["value"] for name, told in answer["topic"][topic].items()}


def test_a_topic_made_again_is_another_log(settings, serving_broker):
    before = describe_topic(settings)
    admin_of(serving_broker, lambda admin: admin.delete_topics([settings.topic]))
    after = before
    while after.log_id == before.log_id:  # the broker deletes it in its own time
        with suppress(ParitasError):
            after = ensure_topic(settings, TopicSettings(partitions=2))
        CLOCK.wait(threading.Event(), timeout_s=0.1)
    assert (before.name, before.partitions) == (after.name, after.partitions)


@pytest.mark.parametrize("opening", [KafkaReader, KafkaLog])
def test_a_topic_that_is_not_there(opening, serving_broker):
    settings = KafkaSettings((serving_broker.bootstrap,), topic="no-such-topic")
    with pytest.raises(UsageError) as caught:
        opening(settings, clock=CLOCK)
    assert caught.value.render() == (
        f"[usage] topic 'no-such-topic' on {serving_broker.bootstrap} does not exist\n"
        "  hint: make it with `paritas topics`, or correct its name"
    )


def test_shipping_to_a_topic_that_is_not_there_keeps_the_records(serving_broker):
    settings = KafkaSettings((serving_broker.bootstrap,), topic="no-such-topic")
    with KafkaShipper(settings) as shipper:
        shipped = shipper.ship([numbered(1)])
    assert (shipped.settled, shipped.refused, shipped.fault.problem) == (0, {}, KafkaProblem.NO_TOPIC)


COPIES = (
    "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached "
    "because only 1 broker(s) are registered."
)
NAME = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


@pytest.mark.parametrize(
    ("topic", "wanted", "text"),
    [
        ("too-many-copies", TopicSettings(replication_factor=3), COPIES),
        ("not a name", TopicSettings(), f"Topic name is invalid: 'not a name' {NAME}"),
    ],
)
def test_a_topic_that_the_broker_refuses(topic, wanted, text, serving_broker):
    with pytest.raises(UsageError) as caught:
        ensure_topic(KafkaSettings((serving_broker.bootstrap,), topic=topic), wanted)
    assert str(caught.value) == f"topic {topic!r} on {serving_broker.bootstrap} cannot be made: {text}"


def token_file(folder, lasts_s):
    """A bearer token as the broker's test validator takes it: unsigned."""
    now_s = CLOCK.now_ns() // 10**9
    parts = ({"alg": "none"}, {"sub": "agent", "iat": now_s - 10, "exp": now_s + lasts_s})
    packed = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    path = folder / "token"
    path.write_text(".".join(packed) + ".\n")
    return path


def identity(mechanism, folder, *, right=True):
    if mechanism is SaslMechanism.OAUTHBEARER:
        return Sasl(mechanism, token_file=token_file(folder, 600 if right else -5))
    user = "plain-user" if mechanism is SaslMechanism.PLAIN else "scram-user"
    return Sasl(mechanism, user, PASSWORD if right else "wrong-horse")


@pytest.mark.parametrize("mechanism", SaslMechanism)
def test_every_mechanism_lets_us_in(mechanism, settings, serving_broker, tmp_path):
    known = replace(
        settings,
        bootstrap=(serving_broker.sasl_bootstrap,),
        sasl=identity(mechanism, tmp_path),
        connect_timeout_s=60,
    )
    with KafkaLog(known, clock=CLOCK) as log:
        position = log.append(numbered(1), partition_key=b"k")
        assert [s.record for s in log.read(position.partition, position.offset, limit=1)] == [numbered(1)]


@pytest.mark.parametrize("mechanism", SaslMechanism)
def test_a_wrong_identity_is_named(mechanism, settings, serving_broker, tmp_path):
    wrong = identity(mechanism, tmp_path, right=False)
    unknown = replace(settings, bootstrap=(serving_broker.sasl_bootstrap,), sasl=wrong, connect_timeout_s=1)
    with pytest.raises(TransientError) as caught:
        KafkaReader(unknown, clock=CLOCK)
    assert caught.value.render() == (
        f"[transient] {serving_broker.sasl_bootstrap} did not let us in with SASL {mechanism} "
        f"as {str(wrong.username or wrong.token_file)!r}\n"
        "  hint: check user and password, and that this listener offers the mechanism"
    )
    with KafkaShipper(unknown) as shipper:
        shipped = shipper.ship([numbered(1)])
    assert (shipped.settled, shipped.refused) == (0, {})
    assert "horse" not in str(shipped.fault.error)


def test_a_missing_token_file_is_named(settings, serving_broker, tmp_path):
    sasl = Sasl(SaslMechanism.OAUTHBEARER, token_file=tmp_path / "none")
    with pytest.raises(UsageError) as caught:
        KafkaReader(replace(settings, sasl=sasl), clock=CLOCK)
    assert str(caught.value) == f"{tmp_path / 'none'}: no such token file"


def test_tls(settings, serving_broker):
    safe = replace(
        settings,
        bootstrap=(serving_broker.tls_bootstrap,),
        tls=Tls(serving_broker.certificate),
        connect_timeout_s=60,
    )
    with KafkaLog(safe, clock=CLOCK) as log:
        position = log.append(numbered(1), partition_key=b"k")
        assert len(log.read(position.partition, position.offset, limit=1)) == 1


@pytest.mark.thorough
def test_what_keeps_tls_from_working_is_named(settings, serving_broker, tmp_path):
    def refusal(**changes):
        with pytest.raises(ParitasError) as caught:
            KafkaReader(replace(settings, connect_timeout_s=5, **changes), clock=CLOCK)
        return caught.value.render()

    tls, plain = serving_broker.tls_bootstrap, serving_broker.bootstrap
    safe = replace(settings, bootstrap=(tls,), tls=Tls(serving_broker.certificate))
    wait_for_first_tls(safe)
    assert refusal(bootstrap=(tls,), tls=Tls()) == (
        f"[usage] {tls}: its certificate is not trusted: self-signed certificate\n"
        "  hint: give its certificate authority as ca_file"
    )
    assert refusal(tls=Tls(serving_broker.certificate)) == (
        f"[usage] {plain}: no TLS there\n  hint: use the broker's TLS listener, or no TLS"
    )
    assert refusal(bootstrap=(tls,)) == (
        f"[transient] {tls} takes the connection but does not serve it\n"
        "  hint: it may want TLS or SASL, be overloaded, or be no Kafka broker"
    )
    assert refusal(tls=Tls(tmp_path / "none.pem")) == (
        f"[usage] {tmp_path / 'none.pem'}: No such file or directory\n  hint: expected PEM files"
    )


def wait_for_first_tls(settings):
    """A Java process takes long for its first handshake; those that are to be refused are given seconds."""
    describe_topic(replace(settings, connect_timeout_s=60))


def test_nobody_there(request):
    [port] = free_ports(1)
    settings = KafkaSettings((f"127.0.0.1:{port}", "no-such-host.invalid:1"), connect_timeout_s=0.5)
    with pytest.raises(TransientError) as caught:
        KafkaReader(settings, clock=CLOCK)
    assert caught.value.render() == (
        f"[transient] cannot connect to 127.0.0.1:{port}: Connection refused\n"
        "  hint: is the broker up, and the address right?"
    )
