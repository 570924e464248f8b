"""The event log without a broker: a directory that one process writes and any number read.

::

    log.json           format, identity, number of partitions
    lock               held by the writer
    partition-0000/    segments of one partition; an offset is a frame's number
    gaps/              segments that tell which records were given up, kept apart from the bulk
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from crc32c import crc32c

from paritas.agent.eventlog.durable import opening, reading
from paritas.agent.eventlog.layout import Layout, create_layout, read_layout
from paritas.agent.eventlog.ledger import SegmentCounters
from paritas.agent.eventlog.lock import WriterLock
from paritas.agent.eventlog.reader import Frames, SegmentReader
from paritas.agent.eventlog.records import (
    Batch,
    Gap,
    GapReason,
    Position,
    SkipReason,
    Stored,
    pack,
    pack_gap,
    unpack,
    unpack_gap,
)
from paritas.agent.eventlog.settings import LogSettings, SegmentLimits, SyncMode, WriterSettings
from paritas.agent.eventlog.sync import GroupSync
from paritas.agent.eventlog.writer import SegmentWriter
from paritas.clock import Clock
from paritas.closing import Closing
from paritas.errors import RecordError, UsageError
from paritas.wire import WireRecord

__all__ = ["EmbeddedLog", "EmbeddedReader", "partition_of"]

# A gap is 60 bytes with its frame: the last seventeen thousand are kept.
GAP_LIMITS = SegmentLimits(segment_bytes=256 * 1024, total_bytes=1024 * 1024)
MANY = 1_000_000


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key: CRC-32C modulo their number, the same on every machine.

    Examples
    --------
    >>> partition_of(b"123456789", 16)  # CRC-32C of this text is E3069283, the published check value
    3
    """
    checksum: int = crc32c(key)
    return checksum % partitions


class EmbeddedReader(Closing):
    """Reads a log of this or another process; writes nothing and takes no lock.

    Not to be shared between threads.

    Parameters
    ----------
    root : Path
        Directory of the log.

    Raises
    ------
    UsageError
        There is no log, or none this version can read.
    """

    def __init__(self, root: Path) -> None:
        self._layout = read_layout(root)
        folders = [self._layout.partition(number) for number in range(self._layout.partitions)]
        self._readers = [SegmentReader(folder) for folder in folders]

    @property
    def log_id(self) -> str:
        """Identity of the log, 32 hex characters."""
        return self._layout.log_id

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return self._layout.partitions

    def read(self, partition: int, offset: int, *, limit: int) -> Batch:
        """Return at most `limit` records from `offset` on; see `LogReader.read`."""
        if not 0 <= partition < self.partitions:
            raise UsageError(
                f"{self._layout.root}: no partition {partition}, the log has 0 to {self.partitions - 1}"
            )
        if offset < 0:
            raise UsageError(f"{self._layout.root}: offset {offset} is below 0")
        with reading(self._layout.root):
            frames = self._readers[partition].read(offset, limit=limit)
        return _batch(partition, frames)

    def start_offsets(self) -> Mapping[int, int]:
        """Return the offset of the oldest record kept, by partition."""
        with reading(self._layout.root):
            return {number: reader.first_seq() for number, reader in enumerate(self._readers)}

    def end_offsets(self) -> Mapping[int, int]:
        """Return one more than the offset of the newest whole record, by partition."""
        with reading(self._layout.root):
            return {number: reader.end_seq() for number, reader in enumerate(self._readers)}

    def gaps(self) -> tuple[Gap, ...]:
        """Return which records were given up and why, oldest first, as far as it is remembered."""
        with reading(self._layout.gaps), SegmentReader(self._layout.gaps) as reader:
            frames = reader.read(0, limit=MANY).frames
        return tuple(gap for _, frame in frames if (gap := unpack_gap(frame.payload)) is not None)

    def flush(self) -> None:
        """Return when everything read so far survives a power loss, whoever wrote it."""
        with reading(self._layout.root):
            for reader in self._readers:
                reader.sync()

    def close(self) -> None:
        """Close the files; twice is fine."""
        for reader in self._readers:
            reader.close()


def _batch(partition: int, frames: Frames) -> Batch:
    stored: list[Stored] = []
    skipped = Counter(frames.skipped)
    for _, frame in frames.frames:
        try:
            record = unpack(frame.payload)
        except RecordError:
            skipped[SkipReason.NOT_A_RECORD] += 1
            continue
        stored.append(Stored(Position(partition, frame.seq), record, frame.wall_ns))
    return Batch(tuple(stored), frames.next_seq, dict(skipped))


class EmbeddedLog(Closing):
    """The log's one writer; it reads too.  Threads may share `append` and `flush_appends`, one may read.

    Parameters
    ----------
    root : Path
        Directory of the log; made if it is not there.
    settings : LogSettings
        Layout, sizes, durability.
    clock : Clock
        Stamps records; waits on the sync thread in mode ``interval``.

    Raises
    ------
    UsageError
        Another process writes here, or the log was made otherwise.
    TransientError
        The disk refused.

    Examples
    --------
    >>> import tempfile
    >>> from paritas.clock import SystemClock
    >>> with tempfile.TemporaryDirectory() as folder, EmbeddedLog(Path(folder), clock=SystemClock()) as log:
    ...     position = log.append(WireRecord(b"key", b"value"), partition_key=b"key")
    ...     [stored] = log.read(position.partition, position.offset, limit=10)
    >>> stored.record.value
    b'value'
    """

    def __init__(self, root: Path, settings: LogSettings | None = None, *, clock: Clock) -> None:
        settings = settings or LogSettings()
        limits = settings.partition_limits  # checked before anything is made on disk
        with opening(root), ExitStack() as stack:
            layout = create_layout(root, partitions=settings.partitions)
            stack.enter_context(WriterLock(root))
            gaps = WriterSettings(layout.log_id, GAP_LIMITS, settings.sync, GapReason.RETENTION)
            self._gaps = stack.enter_context(SegmentWriter(layout.gaps, gaps, clock=clock))
            bulk = WriterSettings(layout.log_id, limits, settings.sync, GapReason.RETENTION)
            self._writers = [stack.enter_context(writer) for writer in self._open(layout, bulk, clock)]
            self._reader = stack.enter_context(EmbeddedReader(root))
            self._sync = GroupSync(self.flush_appends, interval_s=settings.sync_interval_s, clock=clock)
            if settings.sync is SyncMode.INTERVAL:
                stack.enter_context(self._sync)
            self._settings, self._stack = settings, stack.pop_all()

    def _open(self, layout: Layout, bulk: WriterSettings, clock: Clock) -> Iterator[SegmentWriter]:
        """One after the other: each is entered, and so closed if a later one cannot be opened."""
        for n in range(layout.partitions):
            yield SegmentWriter(layout.partition(n), bulk, clock=clock, on_gap=partial(self._remember, n))

    def _remember(self, partition: int, seqs: range, reason: GapReason) -> None:
        self._gaps.append(pack_gap(Gap(partition, seqs.start, seqs.stop - 1, reason)))

    @property
    def log_id(self) -> str:
        """Identity of the log, 32 hex characters."""
        return self._reader.log_id

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return self._reader.partitions

    @property
    def sync_failures(self) -> int:
        """Background syncs that failed: each may have cost the durability of what was appended before."""
        return self._sync.failures

    def append(self, record: WireRecord, *, partition_key: bytes) -> Position:
        """Append one record; see `EventLog.append`."""
        partition = partition_of(partition_key, self.partitions)
        writer = self._writers[partition]
        offset = writer.append(pack(record))
        if writer.unsynced_bytes >= self._settings.sync_bytes:
            self._sync.wake()
        return Position(partition, offset)

    def read(self, partition: int, offset: int, *, limit: int) -> Batch:
        """Return at most `limit` records from `offset` on; see `LogReader.read`."""
        return self._reader.read(partition, offset, limit=limit)

    def start_offsets(self) -> Mapping[int, int]:
        """Return the offset of the oldest record kept, by partition."""
        return {number: writer.first_seq for number, writer in enumerate(self._writers)}

    def end_offsets(self) -> Mapping[int, int]:
        """Return the offset the next record will get, by partition."""
        return {number: writer.next_seq for number, writer in enumerate(self._writers)}

    def gaps(self) -> tuple[Gap, ...]:
        """Return which records were given up and why, oldest first, as far as it is remembered."""
        return self._reader.gaps()

    def counters(self) -> Mapping[int, SegmentCounters]:
        """Return the writers' counters, by partition."""
        return {number: writer.counters() for number, writer in enumerate(self._writers)}

    def flush(self) -> None:
        """Return when everything appended or read so far survives a power loss."""
        self.flush_appends()
        self._reader.flush()

    def flush_appends(self) -> None:
        """Return when everything appended so far survives a power loss."""
        for writer in (*self._writers, self._gaps):
            writer.flush()

    def close(self) -> None:
        """Sync (unless the mode is ``none``) and close; twice is fine."""
        self._stack.close()
