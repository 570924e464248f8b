"""What goes into an event log and comes out: positions, batches, gaps, and why records are missing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from google.protobuf.message import DecodeError

from paritas.errors import RecordError
from paritas.proto.v1.log_record_pb2 import LogGap, LogHeader, LogRecord
from paritas.wire import WireRecord

__all__ = [
    "Batch",
    "Gap",
    "GapReason",
    "Position",
    "SkipReason",
    "Stored",
    "pack",
    "pack_gap",
    "unpack",
    "unpack_gap",
]


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


def pack(record: WireRecord) -> bytes:
    """Return the payload of the record's frame.

    Examples
    --------
    >>> record = WireRecord(b"key", b"value", (("name", b"1"),))
    >>> unpack(pack(record)) == record
    True
    """
    headers = [LogHeader(name=name, value=value) for name, value in record.headers]
    return LogRecord(key=record.key, headers=headers, value=record.value).SerializeToString()


def unpack(payload: bytes) -> WireRecord:
    """Return the record of a payload; RecordError with reason ``not_a_record`` if it holds none."""
    try:
        stored = LogRecord.FromString(payload)
    except DecodeError as error:
        raise RecordError("a frame holds no log record", reason=SkipReason.NOT_A_RECORD) from error
    return WireRecord(stored.key, stored.value, tuple((h.name, h.value) for h in stored.headers))


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
