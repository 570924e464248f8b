"""The event log on Apache Kafka: one topic, the same contract as the embedded one."""

from collections.abc import Mapping

from paritas.agent.eventlog.kafka_producing import Producing
from paritas.agent.eventlog.kafka_reader import KafkaReader
from paritas.agent.eventlog.kafka_settings import KafkaSettings
from paritas.agent.eventlog.records import Batch, Position
from paritas.clock import Clock
from paritas.closing import Closing
from paritas.errors import TransientError
from paritas.wire import WireRecord

__all__ = ["KafkaLog"]


class KafkaLog(Closing):
    """A topic that is read and appended to; threads may share `append`, one may read.

    An append returns when all in-sync replicas have the record: exact, and one round trip each.  Who
    has many records sends them with `KafkaShipper`.

    Parameters
    ----------
    settings : KafkaSettings
        Cluster and topic; the topic must be there (`ensure_topic`).
    clock : Clock
        Bounds waiting.

    Raises
    ------
    UsageError
        There is no such topic, or the settings cannot work.
    TransientError
        No broker serves this client now.
    """

    def __init__(self, settings: KafkaSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._reader = KafkaReader(settings, clock=clock)
        self._producing = Producing(settings)

    @property
    def log_id(self) -> str:
        """Identity of the cluster's topic, 32 hex characters."""
        return self._reader.log_id

    @property
    def partitions(self) -> int:
        """Number of partitions when this log was opened."""
        return self._reader.partitions

    def append(self, record: WireRecord, *, partition_key: bytes) -> Position:
        """Append one record; see `EventLog.append`.

        After a TransientError the record may be there after all: readers deduplicate by its origin.
        """
        self._producing.check(record)
        with self._producing.faults() as faults:
            told = self._producing.wait(self._producing.send(record, partition_key))
        if faults:
            raise faults[0].error
        if told.offset < 0:  # a retry found the record there, and the broker no longer knows where
            raise TransientError(f"{self._settings.place}: acknowledged, but not where")
        return Position(told.partition, told.offset)

    def read(self, partition: int, offset: int, *, limit: int) -> Batch:
        """Return at most `limit` records from `offset` on; see `KafkaReader.read`."""
        return self._reader.read(partition, offset, limit=limit)

    def start_offsets(self) -> Mapping[int, int]:
        """Return the offset of the oldest record kept, by partition."""
        return self._reader.start_offsets()

    def end_offsets(self) -> Mapping[int, int]:
        """Return one more than the offset of the newest record, by partition."""
        return self._reader.end_offsets()

    def flush(self) -> None:
        """Return at once: an append has returned only when the replicas had it."""

    def close(self) -> None:
        """Disconnect; twice is fine."""
        self._producing.close(timeout_s=self._settings.request_timeout_s)
        self._reader.close()
