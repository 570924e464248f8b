"""The event log on a real Kafka broker: the contract of every event log, and records that cannot be had or given."""

from contextlib import closing

import pytest
from eventlog_contract import CHECKS, NAMES

pytest.importorskip("kafka", reason="kafka-python is not installed (pip install 'paritas[kafka]')")

from kafka import KafkaProducer, TopicPartition
from system.kafka_topics import (
    CLOCK,
    admin_of,
    fresh_topic,
    numbered,
    origins,
    read_topic,
    topic_name,
    wait_for_ends_of_transactions,
)

from paritas.agent.eventlog import SkipReason
from paritas.agent.eventlog.kafka_errors import KafkaProblem
from paritas.agent.eventlog.kafka_log import KafkaLog
from paritas.agent.eventlog.kafka_reader import KafkaReader
from paritas.agent.eventlog.kafka_settings import (
    Compression,
    KafkaSettings,
    TopicSettings,
)
from paritas.agent.eventlog.kafka_shipper import KafkaShipper
from paritas.agent.eventlog.kafka_topic import ensure_topic
from paritas.errors import PermanentError
from paritas.wire import Origin, WireRecord


@pytest.fixture
def settings(serving_broker, request):
    """A new topic of two partitions."""
    return fresh_topic(serving_broker, request)


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_contract(check, settings):
    check(lambda: KafkaLog(settings, clock=CLOCK))


def test_a_record_above_our_limit_is_refused_and_the_others_arrive(settings):
    records = [numbered(0), numbered(1, size=1_000_000), numbered(2)]
    with KafkaShipper(settings) as shipper:
        shipped = shipper.ship(records)
    assert (shipped.settled, shipped.acknowledged, shipped.fault) == (3, 2, None)
    assert shipped.refused == {1: KafkaProblem.TOO_LARGE}
    assert origins(read_topic(settings)[0]) == {Origin("agent-1", 1, n): 1 for n in (0, 2)}


def test_a_record_above_the_brokers_limit_hits_no_other(serving_broker, request):
    """The library fails every later record of a producer that had one refused: none of them may be dropped."""
    settings = KafkaSettings(
        (serving_broker.bootstrap,), topic=topic_name(request), compression=Compression.NONE
    )
    ensure_topic(settings, TopicSettings(partitions=2, max_message_bytes=100_000))
    todo = [numbered(n, size=200_000 if n % 4 == 1 else 100) for n in range(12)]
    refused = []
    with KafkaShipper(settings) as shipper:
        done = 0
        while done < len(todo):
            shipped = shipper.ship(todo[done:])
            assert shipped.settled > 0
            refused += [done + place for place in shipped.refused]
            done += shipped.settled
    assert refused == [1, 5, 9]
    assert set(origins(read_topic(settings)[0])) == {Origin("agent-1", 1, n) for n in range(12) if n % 4 != 1}


def test_a_record_above_the_brokers_limit_is_named(serving_broker, request):
    settings = KafkaSettings(
        (serving_broker.bootstrap,), topic=topic_name(request), compression=Compression.NONE
    )
    ensure_topic(settings, TopicSettings(max_message_bytes=100_000))
    with KafkaLog(settings, clock=CLOCK) as log:
        with pytest.raises(PermanentError) as caught:
            log.append(numbered(1, size=200_000), partition_key=b"k")
        assert caught.value.render() == (
            f"[permanent] {settings.place}: a record exceeds the limit of the broker\n"
            "  hint: raise the topic's max.message.bytes above record_limit_bytes"
        )
        log.append(numbered(2), partition_key=b"k")
    assert set(origins(read_topic(settings)[0])) == {Origin("agent-1", 1, 2)}


def test_expired_offsets_are_counted(serving_broker, request):
    settings = fresh_topic(serving_broker, request, partitions=1)
    with KafkaShipper(settings) as shipper:
        assert shipper.ship([numbered(n) for n in range(10)]).acknowledged == 10
    lost = {TopicPartition(settings.topic, 0): 7}
    with KafkaReader(settings, clock=CLOCK) as reader:
        assert len(reader.read(0, 0, limit=2)) == 2
        admin_of(serving_broker, lambda admin: admin.delete_records(lost))
        batch = reader.read(0, 3, limit=5)
        assert (batch.stored, batch.next_offset, batch.skipped) == ((), 7, {SkipReason.EXPIRED: 4})
        assert [s.position.offset for s in reader.read(0, 7, limit=5)] == [7, 8, 9]
        assert reader.start_offsets() == {0: 7}


def test_aborted_transactions_and_empty_records_are_counted(serving_broker, request):
    settings = fresh_topic(serving_broker, request, partitions=1)
    with closing(
        KafkaProducer(bootstrap_servers=serving_broker.bootstrap, transactional_id=settings.topic)
    ) as producer:
        producer.init_transactions()
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.send(settings.topic, value=b"told", headers=[("null", b"")])
            producer.send(settings.topic, key=b"gone")
            producer.flush()
            end()
    wait_for_ends_of_transactions(settings)
    records, skipped = read_topic(settings)
    assert records == [WireRecord(b"", b"told", (("null", b""),))]
    # Two aborted records and two markers have no record; one committed record has no value.
    assert skipped == {SkipReason.MISSING: 4, SkipReason.NOT_A_RECORD: 1}


def test_damaged_batches_are_skipped_and_counted(serving_broker, request):
    settings = fresh_topic(serving_broker, request, partitions=2, compression=Compression.NONE)
    with KafkaLog(settings, clock=CLOCK) as log:
        positions = [log.append(numbered(n), partition_key=b"%d" % n) for n in range(12)]
    victim = next(n for n in range(12) if positions[n].partition == 0 and positions[n].offset == 1)
    serving_broker.stop()
    damage(serving_broker.data / f"{settings.topic}-0", b"value-%d " % victim)
    serving_broker.start()
    records, skipped = read_topic(settings)
    assert skipped == {SkipReason.CORRUPT: 1}
    assert set(origins(records)) == {Origin("agent-1", 1, n) for n in range(12) if n != victim}


def damage(folder, text):
    [segment] = folder.glob("*.log")
    found = segment.read_bytes()
    assert found.count(text) == 1
    segment.write_bytes(found.replace(text, text.swapcase()))


def test_partitions_nobody_reads_are_bounded(settings, monkeypatch):
    """What waits for a partition that is not read is put back, and read all the same later."""
    monkeypatch.setattr("paritas.agent.eventlog.kafka_reader.WAITING_LIMIT_BYTES", 1000)
    with KafkaShipper(settings) as shipper:
        assert shipper.ship([numbered(n, size=500) for n in range(100)]).acknowledged == 100
    with KafkaReader(settings, clock=CLOCK) as reader:
        first = reader.read(1, 0, limit=1)
        seen = [stored.record for stored in first]
        for partition, start in ((0, 0), (1, first.next_offset)):
            offset = start
            while batch := reader.read(partition, offset, limit=7):
                assert (
                    sum(lane.waiting_bytes for lane in reader._lanes if lane.partition[1] != partition)
                    <= 1000
                )
                seen += [stored.record for stored in batch]
                offset = batch.next_offset
    assert sorted(origins(seen).items(), key=str) == sorted(
        ((Origin("agent-1", 1, n), 1) for n in range(100)), key=str
    )
