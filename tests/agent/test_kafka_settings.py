"""What the Kafka settings refuse, in exact words, and the pure parts beside them; no broker."""

from pathlib import Path

import pytest

from paritas.agent.eventlog import SkipReason
from paritas.agent.eventlog.kafka_errors import KafkaProblem, diagnose
from paritas.agent.eventlog.kafka_lane import Lane
from paritas.agent.eventlog.kafka_outbox import KafkaOutbox
from paritas.agent.eventlog.kafka_producing import Producing
from paritas.agent.eventlog.kafka_settings import (
    KafkaSettings,
    Sasl,
    SaslMechanism,
    Tls,
    TopicSettings,
    host_and_port,
)
from paritas.agent.eventlog.kafka_shipper import KafkaShipper, Shipped
from paritas.agent.eventlog.kafka_topic import murmur2, partition_of_key
from paritas.clock import SystemClock
from paritas.errors import PermanentError, TransientError, UsageError
from paritas.wire import WireRecord

HERE = ("127.0.0.1:9092",)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: KafkaSettings(()), "[usage] no bootstrap address\n  hint: give host:port of a broker"),
        (
            lambda: KafkaSettings(("kafka",)),
            "[usage] bootstrap address 'kafka' is not host:port\n  hint: e.g. kafka-0.kafka:9092",
        ),
        (
            lambda: KafkaSettings(("kafka:99999",)),
            "[usage] bootstrap address 'kafka:99999' is not host:port\n  hint: e.g. kafka-0.kafka:9092",
        ),
        (
            lambda: KafkaSettings(HERE, in_flight_bytes=1000),
            "[usage] in_flight_bytes is 1000, less than one record of 1000000 bytes",
        ),
        (
            lambda: KafkaSettings(HERE, delivery_timeout_s=1),
            "[usage] delivery_timeout_s is 1, less than request_timeout_s (10)",
        ),
        (
            lambda: Tls(certificate_file=Path("c.pem")),
            "[usage] a TLS client certificate needs both certificate_file and key_file",
        ),
        (
            lambda: Sasl(SaslMechanism.PLAIN, username="me"),
            "[usage] SASL PLAIN needs username and password",
        ),
        (
            lambda: Sasl(SaslMechanism.SCRAM_SHA_512, password="p"),
            "[usage] SASL SCRAM-SHA-512 needs username and password",
        ),
        (lambda: Sasl(SaslMechanism.OAUTHBEARER), "[usage] SASL OAUTHBEARER needs token_file"),
        (lambda: TopicSettings(partitions=0), "[usage] partitions is 0, expected at least 1"),
        (
            lambda: TopicSettings(min_insync_replicas=2),
            "[usage] min_insync_replicas is 2, expected 1 to replication_factor (1)",
        ),
    ],
)
def test_what_cannot_work_is_refused_at_once(make, text):
    with pytest.raises(UsageError) as caught:
        make()
    assert caught.value.render() == text


def test_a_password_is_not_printed():
    assert "secret" not in repr(KafkaSettings(HERE, sasl=Sasl(SaslMechanism.PLAIN, "me", "secret")))


def test_addresses():
    assert host_and_port("kafka-0.kafka:9092") == ("kafka-0.kafka", 9092)
    assert host_and_port("[::1]:1") == ("::1", 1)


def test_partitions_are_those_of_kafkas_own_clients():
    default = pytest.importorskip("kafka.partitioner.default")
    keys = [b"", b"a", b"ab", b"abc", b"abcd", bytes(range(256)), *(b"%032x" % (7**n) for n in range(40))]
    assert [murmur2(key) for key in keys] == [default.murmur2(key) & 0xFFFFFFFF for key in keys]
    assert {partition_of_key(b"%032x" % n, 4) for n in range(64)} == {0, 1, 2, 3}


class KafkaTimeoutError(Exception):
    """Named as the library's."""


class MessageSizeTooLargeError(Exception):
    """Named as the library's."""


class SomethingNewError(Exception):
    """An error nobody foresaw."""


@pytest.mark.parametrize(
    ("error", "problem", "kind"),
    [
        (KafkaTimeoutError(), KafkaProblem.TIMEOUT, TransientError),
        (MessageSizeTooLargeError(), KafkaProblem.TOO_LARGE, PermanentError),
        (SomethingNewError("x\ny"), KafkaProblem.BROKER, TransientError),
        (UsageError("x"), KafkaProblem.SETTINGS, UsageError),
    ],
)
def test_only_a_known_refusal_gives_a_record_up(error, problem, kind):
    fault = diagnose(error, "there")
    assert fault.problem == problem
    assert isinstance(fault.error, kind)


class Scripted:
    """A shipper without a broker: does what the script says, then delivers everything.  Real ones are in tests/system."""

    def __init__(self, *script):
        self.script, self.delivered = list(script), []

    def ship(self, records):
        shipped = self.script.pop(0) if self.script else Shipped(len(records))
        self.delivered += [
            record for n, record in enumerate(records[: shipped.settled]) if n not in shipped.refused
        ]
        return shipped

    def close(self, *, timeout_s):
        pass


def records(number):
    return [WireRecord(b"k", b"%d" % n) for n in range(number)]


FAULT = diagnose(KafkaTimeoutError(), "there")


def test_an_outbox_keeps_order_through_faults_and_counts_refusals():
    shipper = Scripted(Shipped(0, {}, FAULT), Shipped(2, {1: KafkaProblem.TOO_LARGE}, FAULT))
    outbox = KafkaOutbox(shipper, limit_bytes=1000, clock=SystemClock())
    assert all(outbox.offer(record, units=10) for record in records(5))
    with outbox:
        assert outbox.flush(timeout_s=30)
        counters = outbox.counters()
    assert shipper.delivered == [record for n, record in enumerate(records(5)) if n != 1]
    assert (counters.accepted, counters.delivered, counters.queued) == (50, 40, 0)
    assert (counters.dropped, counters.faults) == ({"too_large": 10}, {KafkaProblem.TIMEOUT: 2})


def test_a_full_outbox_refuses_the_newest_and_a_closed_one_everything():
    outbox = KafkaOutbox(Scripted(), limit_bytes=6, clock=SystemClock())
    assert [outbox.offer(record) for record in records(5)] == [True, True, True, False, False]
    with outbox:
        assert outbox.flush(timeout_s=30)
    assert not outbox.offer(records(1)[0])
    counters = outbox.counters()
    assert (counters.accepted, counters.delivered, counters.queued) == (6, 3, 0)
    assert counters.dropped == {"queue_full": 2, "shutdown": 1}


def test_what_cannot_be_delivered_before_the_end_is_counted():
    outbox = KafkaOutbox(Scripted(*[Shipped(0, {}, FAULT)] * 1000), limit_bytes=1000, clock=SystemClock())
    with outbox:
        assert [outbox.offer(record) for record in records(3)] == [True] * 3
        outbox.close(timeout_s=0)
        outbox.close(timeout_s=0)
    counters = outbox.counters()
    assert (counters.accepted, counters.dropped, counters.queued) == (3, {"shutdown": 3}, 0)


class Poisoned(Producing):
    """A producer that refuses one record and, until it is thrown away, every record beside it.

    A broker does this too, but not at will to a record before the one it means.
    """

    def __init__(self, settings, bad):
        super().__init__(settings)
        self.bad, self.sent, self.arrived = bad, [], []

    def send(self, record, partition_key):
        self.sent.append(record)
        return record

    def wait(self, future):
        if self.bad in self.sent:
            raise MessageSizeTooLargeError
        self.arrived.append(future)

    def discard(self, *, timeout_s=0.0):
        self.sent.clear()


def test_a_record_beside_a_refused_one_is_not_given_up():
    todo = records(5)
    shipper = KafkaShipper(KafkaSettings(HERE))
    shipper._producing = Poisoned(KafkaSettings(HERE), todo[3])
    refused, done = [], 0
    while done < len(todo):
        shipped = shipper.ship(todo[done:])
        assert shipped.settled > 0
        refused += [done + place for place in shipped.refused]
        done += shipped.settled
    assert refused == [3]
    assert shipper._producing.arrived == [*todo[:3], todo[4]]


def test_lanes_account_for_every_offset():
    """A hole, a tombstone and an expired start, as the reader counts them."""
    found = _Found(7, b"v"), _Found(9, None)
    lane = Lane("p")
    lane.move(5)
    lane.add(list(found))
    lane.fetched_to = 12
    batch = lane.take(10)
    assert (batch.next_offset, [s.position.offset for s in batch]) == (12, [7])
    assert batch.skipped == {SkipReason.NOT_A_RECORD: 1, SkipReason.MISSING: 5}
    lane.jump(20, SkipReason.EXPIRED)
    assert (lane.take(10).skipped, lane.next_offset) == ({SkipReason.EXPIRED: 8}, 20)


class _Found:
    """What kafka-python gives, as far as it is used."""

    partition, key, headers, timestamp = 0, None, (), 1

    def __init__(self, offset, value):
        self.offset, self.value = offset, value
        self.serialized_value_size = -1 if value is None else len(value)
