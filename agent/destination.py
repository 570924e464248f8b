"""Where records go: an event log behind one small protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from paritas.agent.config import EmbeddedTarget, Target
from paritas.agent.eventlog import EmbeddedLog, EventLog, LogSettings
from paritas.agent.eventlog.kafka_shipper import KafkaShipper
from paritas.clock import Clock
from paritas.errors import ParitasError, PermanentError, TransientError
from paritas.wire import WireRecord

__all__ = ["Destination", "EventLogDestination", "KafkaDestination", "Shipped", "open_destination"]

CLOSE_S = 3.0


@dataclass(frozen=True, slots=True)
class Shipped:
    """What became of each record of one call; the indices in neither set are to be sent again.

    Attributes
    ----------
    acknowledged : frozenset of int
        Indices of records that are safe at the destination.
    refused : mapping of int to str
        Indices of records it will never take, and why.
    error : ParitasError or None
        Why the rest did not go: TransientError to try again; anything else needs a person, and
        is tried again all the same.
    """

    acknowledged: frozenset[int]
    refused: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    error: ParitasError | None = None


class Destination(Protocol):
    """Takes records from the one thread that ships."""

    def ship(self, records: Sequence[WireRecord]) -> Shipped:
        """Return when every record is acknowledged, refused or known to be late; never raise for one."""
        ...

    def close(self) -> None:
        """Let go; twice is fine."""
        ...


class EventLogDestination:
    """Any `EventLog`: append one by one, and one flush for all."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def ship(self, records: Sequence[WireRecord]) -> Shipped:
        """Append the records in order; see `Destination.ship`."""
        appended: list[int] = []
        refused: dict[int, str] = {}
        try:
            for index, record in enumerate(records):
                try:
                    self._log.append(record, partition_key=record.key)
                    appended.append(index)
                except PermanentError as error:
                    refused[index] = str(error)
            self._log.flush()
        except TransientError as error:
            return Shipped(self._flushed(appended), refused, error)
        return Shipped(frozenset(appended), refused)

    def _flushed(self, appended: Sequence[int]) -> frozenset[int]:
        try:
            self._log.flush()
        except TransientError:
            return frozenset()
        return frozenset(appended)

    def close(self) -> None:
        """Close the log; twice is fine."""
        self._log.close()


class KafkaDestination:
    """A topic, through the adapter that bounds, times and diagnoses the client library."""

    def __init__(self, shipper: KafkaShipper) -> None:
        self._shipper = shipper

    def ship(self, records: Sequence[WireRecord]) -> Shipped:
        """Deliver the records; see `Destination.ship`."""
        told = self._shipper.ship(records)
        refused = {place: str(problem) for place, problem in told.refused.items()}
        acknowledged = frozenset(range(told.settled)).difference(refused)
        return Shipped(acknowledged, refused, told.fault.error if told.fault else None)

    def close(self) -> None:
        """End the client, within a time; twice is fine."""
        self._shipper.close(timeout_s=CLOSE_S)


def open_destination(target: Target, *, clock: Clock) -> Destination:
    """Open what a configuration names.

    Raises
    ------
    TransientError
        It cannot be reached now.
    UsageError
        A person must act: it is in use, or was made otherwise.
    """
    if isinstance(target, EmbeddedTarget):
        settings = LogSettings(target.partitions, target.limit_bytes, target.segment_bytes)
        return EventLogDestination(EmbeddedLog(target.path, settings, clock=clock))
    return KafkaDestination(KafkaShipper(target))
