"""What every event log can do, embedded or Kafka; the rooms behind know nothing more."""

from collections.abc import Mapping
from typing import Protocol, Self

from paritas.agent.eventlog.records import Batch, Position
from paritas.wire import WireRecord

__all__ = ["EventLog", "LogReader"]


class LogReader(Protocol):
    """The side that detectors see."""

    @property
    def log_id(self) -> str:
        """Identity of the log: offsets of one log mean nothing in another."""
        ...

    @property
    def partitions(self) -> int:
        """Number of partitions; they are numbered from 0."""
        ...

    def read(self, partition: int, offset: int, *, limit: int) -> Batch:
        """Return at most `limit` records from `offset` on.

        What is there is returned at once, which may be nothing; an offset at or beyond the end
        gives an empty batch with ``next_offset == offset``.  A batch that is empty but has moved
        says in `skipped` why.

        Raises
        ------
        UsageError
            There is no such partition.
        """
        ...

    def start_offsets(self) -> Mapping[int, int]:
        """Return the offset of the oldest record kept, by partition."""
        ...

    def end_offsets(self) -> Mapping[int, int]:
        """Return one more than the offset of the newest record, by partition."""
        ...

    def flush(self) -> None:
        """Return when everything appended or read so far survives a power loss.

        Raises
        ------
        TransientError
            It may not survive.
        """
        ...

    def close(self) -> None:
        """Close; twice is fine."""
        ...

    def __enter__(self) -> Self:
        """Open what needs opening."""
        ...

    def __exit__(self, *exc: object) -> None:
        """Close."""
        ...


class EventLog(LogReader, Protocol):
    """The side that the agent sees: it may append too."""

    def append(self, record: WireRecord, *, partition_key: bytes) -> Position:
        """Append one record; records of equal keys get the same partition, in the order of the calls.

        Raises
        ------
        PermanentError
            The record is too large for this log.
        TransientError
            The log cannot take it now; it was not appended.
        """
        ...
