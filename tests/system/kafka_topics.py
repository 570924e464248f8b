"""Small helpers of the tests with a real Kafka: a topic for a test, records with an origin, everything a topic holds."""

from collections import Counter
from contextlib import closing

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from system.flink_cluster import until

from paritas.agent.eventlog.kafka_reader import KafkaReader
from paritas.agent.eventlog.kafka_settings import KafkaSettings, TopicSettings
from paritas.agent.eventlog.kafka_topic import ensure_topic
from paritas.clock import SystemClock
from paritas.wire import Origin, WireRecord, origin_of, stamp

CLOCK = SystemClock()


def topic_name(request):
    """A name from a test's own, as Kafka allows it."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]


def fresh_topic(broker, request, partitions=2, **settings):
    """Settings of a new topic on the broker."""
    chosen = KafkaSettings((broker.bootstrap,), topic=topic_name(request), **settings)
    ensure_topic(chosen, TopicSettings(partitions=partitions))
    return chosen


def numbered(number, size=100, epoch=1):
    """A record as an agent ships it."""
    record = WireRecord(b"%032x" % number, b"value-%d " % number + bytes(size))
    return stamp(record, Origin("agent-1", epoch, number))


def read_topic(settings):
    """All records of a topic and what was skipped, through the reader that detectors use."""
    records, skipped = [], Counter()
    with KafkaReader(settings, clock=CLOCK) as reader:
        for partition, start in reader.start_offsets().items():
            for batch in batches_from(reader, partition, start):
                records += [stored.record for stored in batch]
                skipped.update(batch.skipped)
    return records, skipped


def wait_for_ends_of_transactions(settings):
    """Wait until committed records can be read: a broker ends a transaction a moment after it has said so."""
    until(
        lambda: _ends(settings, "read_committed") == _ends(settings, "read_uncommitted"),
        timeout_s=90,
        what=lambda: str(_ends(settings, "read_committed")),
    )


def _ends(settings, isolation_level):
    """Up to where readers of this kind may read, by partition."""
    with closing(
        KafkaConsumer(bootstrap_servers=settings.bootstrap[0], isolation_level=isolation_level)
    ) as consumer:
        numbers = consumer.partitions_for_topic(settings.topic)
        return consumer.end_offsets([TopicPartition(settings.topic, number) for number in numbers])


def batches_from(reader, partition, offset, limit=1000):
    """Every batch from an offset to the end."""
    while (batch := reader.read(partition, offset, limit=limit)).next_offset != offset:
        yield batch
        offset = batch.next_offset


def origins(records):
    """How often each origin is there."""
    return Counter(origin_of(record.headers) for record in records)


def admin_of(broker, use):
    """What an administrator does with the broker."""
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        return use(admin)
