"""What goes into an event log and comes out: positions, batches, gaps, and why records are missing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from google.protobuf.message import DecodeError

from paritas.errors import RecordError
from paritas.proto.v1.log_record_pb2 import LogGap, LogHeader, LogRecord
from paritas.wire import WireRecord

__all__ = [
    "Batch",
    "Gap",
    "GapReason",
    "Packed",
    "Position",
    "SkipReason",
    "Stored",
    "pack",
    "pack_gap",
    "packed",
    "unpack",
    "unpack_gap",
]


VALUE_TAG = 0x1A  # of a LogRecord's last field


class SkipReason(StrEnum):
    """Why a reader was not given a record that had an offset."""

    EXPIRED = "expired"  # before the oldest record that is kept
    MISSING = "missing"  # a hole between records that are kept
    CORRUPT = "corrupt"  # its bytes are damaged
    NOT_A_RECORD = "not_a_record"  # its bytes are whole but hold no record


class GapReason(StrEnum):
    """Why a writer gave up records that it had accepted."""

    RETENTION = "retention"  # an event log keeps so many bytes
    OVERFLOW = "overflow"  # a spool was full before its records were delivered
    CORRUPT = "corrupt"  # damaged on disk; moved to quarantine


@dataclass(frozen=True, slots=True)
class Position:
    """Where a record is: `offset` rises by one a record within `partition`."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Stored:
    """One record as it was read back.

    Attributes
    ----------
    position : Position
        Where it is.
    record : WireRecord
        Key, headers and value as appended.
    appended_ns : int
        Unix ns of the append; a broker may keep only milliseconds.
    """

    position: Position
    record: WireRecord
    appended_ns: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What one read gave: ``len(batch) + sum(skipped.values()) == next_offset - offset``.

    Attributes
    ----------
    stored : tuple of Stored
        Records in the order of their offsets; iterating over the batch gives them.
    next_offset : int
        Where the next read goes on; what a cursor saves.
    skipped : mapping of SkipReason to int
        Offsets between the asked one and `next_offset` that gave no record.
    """

    stored: tuple[Stored, ...]
    next_offset: int
    skipped: Mapping[SkipReason, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Stored]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


@dataclass(frozen=True, slots=True)
class Gap:
    """Accepted records that were given up: `first_seq` to `last_seq`, both included."""

    partition: int
    first_seq: int
    last_seq: int
    reason: GapReason


class Packed(NamedTuple):
    """A record and the payload of its frame: `head`, and then the record's value, of which no copy is made."""

    record: WireRecord
    head: bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the payload."""
        return len(self.head) + len(self.record.value)


def packed(record: WireRecord) -> Packed:
    """Return the record ready to be written.

    Examples
    --------
    >>> record = WireRecord(b"key", b"value", (("name", b"1"),))
    >>> unpack(packed(record).head + record.value) == record
    True
    """
    headers = [LogHeader(name=name, value=value) for name, value in record.headers]
    head = LogRecord(key=record.key, headers=headers).SerializeToString()
    return Packed(record, head + b"%c%b" % (VALUE_TAG, _varint(len(record.value))))


def _varint(number: int) -> bytes:
    """Return a number as Protobuf writes it: seven bits a byte, the lowest first."""
    digits = []
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*digits, number))


def pack(record: WireRecord) -> bytes:
    """Return the payload of the record's frame.

    Examples
    --------
    >>> record = WireRecord(b"key", b"value", (("name", b"1"),))
    >>> unpack(pack(record)) == record
    True
    """
    return packed(record).head + record.value


def unpack(payload: bytes) -> WireRecord:
    """Return the record of a payload; RecordError with reason ``not_a_record`` if it holds none."""
    try:
        stored = LogRecord.FromString(payload)
    except DecodeError as error:
        raise RecordError("a frame holds no log record", reason=SkipReason.NOT_A_RECORD) from error
    return WireRecord(stored.key, stored.value, tuple([(h.name, h.value) for h in stored.headers]))


def pack_gap(gap: Gap) -> bytes:
    """Return the payload of the gap's frame."""
    return LogGap(
        partition=gap.partition, first_seq=gap.first_seq, last_seq=gap.last_seq, reason=gap.reason
    ).SerializeToString()


def unpack_gap(payload: bytes) -> Gap | None:
    """Return the gap of a payload; None if it holds none, or one of a reason this version does not know."""
    try:
        stored = LogGap.FromString(payload)
        return Gap(stored.partition, stored.first_seq, stored.last_seq, GapReason(stored.reason))
    except (DecodeError, ValueError):
        return None
