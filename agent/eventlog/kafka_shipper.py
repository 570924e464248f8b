"""Shipping many records at once: what stands between a spool and the topic."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from paritas.agent.eventlog.kafka_errors import Fault, KafkaProblem
from paritas.agent.eventlog.kafka_producing import Producing
from paritas.agent.eventlog.kafka_settings import KafkaSettings
from paritas.errors import PermanentError
from paritas.wire import WireRecord

__all__ = ["KafkaShipper", "Shipped", "Shipper"]


@dataclass(frozen=True, slots=True)
class Shipped:
    """What became of the records of one call.

    Attributes
    ----------
    settled : int
        So many leading records are done with; the rest must be shipped again, and may have arrived.
    refused : mapping of int to KafkaProblem
        Which of the settled ones will never be taken, by their place in the call, and why.
    fault : Fault, optional
        Why not all are settled.
    """

    settled: int
    refused: Mapping[int, KafkaProblem] = field(default_factory=dict)
    fault: Fault | None = None

    @property
    def acknowledged(self) -> int:
        """How many of the settled records the log has."""
        return self.settled - len(self.refused)


class Shipper(Protocol):
    """Takes records in order and says how many leading ones are done with; one thread at a time."""

    def ship(self, records: Sequence[WireRecord]) -> Shipped:
        """Deliver the records; returns, never raises, when no more can be done about them now."""
        ...

    def close(self, *, timeout_s: float) -> None:
        """End within the time; a `ship` that still runs in another thread returns unsettled."""
        ...


@dataclass(slots=True)
class _Flight:
    """One call of `ship` on its way."""

    sent: deque[tuple[int, int, Any]] = field(default_factory=deque)  # place, bytes, future
    in_flight_bytes: int = 0
    settled: int = 0
    refused: dict[int, KafkaProblem] = field(default_factory=dict)

    def push(self, place: int, size_bytes: int, future: Any) -> None:
        self.sent.append((place, size_bytes, future))
        self.in_flight_bytes += size_bytes

    def refuse(self, place: int, problem: KafkaProblem) -> None:
        """Note a record that was never sent; it is settled when those before it are."""
        self.refused[place] = problem
        self.push(place, 0, None)


class KafkaShipper:
    """A `Shipper` to one topic; connects at the first call, again after each failure, also after a fork.

    Bytes in flight are bounded by ``settings.in_flight_bytes``; a call ends at the latest when the
    delivery timeout of its last record does.

    Parameters
    ----------
    settings : KafkaSettings
        Cluster, topic and limits.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._producing = Producing(settings)

    def ship(self, records: Sequence[WireRecord]) -> Shipped:
        """Deliver the records; see `Shipper.ship`."""
        flight = _Flight()
        with self._producing.faults() as faults:
            for place, record in enumerate(records):
                self._launch(flight, place, record)
            self._land(flight, down_to_bytes=-1)
        fault = faults[0] if faults else None
        if fault is not None and isinstance(fault.error, PermanentError):
            fault = self._ship_alone(flight, records[flight.settled])
        return Shipped(flight.settled, _below(flight.refused, flight.settled), fault)

    def _launch(self, flight: _Flight, place: int, record: WireRecord) -> None:
        try:
            size_bytes = self._producing.check(record)
        except PermanentError:
            flight.refuse(place, KafkaProblem.TOO_LARGE)
            return
        self._land(flight, down_to_bytes=self._settings.in_flight_bytes - size_bytes)
        flight.push(place, size_bytes, self._producing.send(record, record.key))

    def _land(self, flight: _Flight, *, down_to_bytes: int) -> None:
        """Wait for the oldest records until no more bytes than that are on their way."""
        while flight.sent and flight.in_flight_bytes > down_to_bytes:
            _, size_bytes, future = flight.sent[0]
            if future is not None:
                self._producing.wait(future)
            flight.sent.popleft()
            flight.in_flight_bytes -= size_bytes
            flight.settled += 1

    def _ship_alone(self, flight: _Flight, record: WireRecord) -> Fault | None:
        """Send the first unsettled record by itself: a refusal also hits records beside the one it means."""
        with self._producing.faults() as faults:
            self._producing.wait(self._producing.send(record, record.key))
        if faults and not isinstance(faults[0].error, PermanentError):
            return faults[0]
        if faults:
            flight.refused[flight.settled] = faults[0].problem
        flight.settled += 1
        return None

    def close(self, *, timeout_s: float) -> None:
        """End within the time; twice is fine."""
        self._producing.close(timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(timeout_s=self._settings.request_timeout_s)


def _below(refused: Mapping[int, KafkaProblem], settled: int) -> dict[int, KafkaProblem]:
    return {place: problem for place, problem in refused.items() if place < settled}
