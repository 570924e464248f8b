"""The thread behind an emitter: encode, batch, post, try again, settle."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from paritas.clock import Clock
from paritas.collectors.emitter_queue import Batch, EmitterDrop, Offered, TraceQueue
from paritas.collectors.reentrant_event import ReentrantEvent
from paritas.collectors.settings import EmitterLimits
from paritas.errors import RecordError, TransientError
from paritas.otlp_http import OtlpClient
from paritas.records import TokenTrace

__all__ = ["Courier"]

NS_PER_S = 1_000_000_000
IDLE_S = 3600.0
OK = 200


@dataclass(frozen=True, slots=True)
class _Parcel:
    """One request: serialized trace requests, whose concatenation is one too, and whose they are."""

    values: tuple[bytes, ...]
    owners: tuple[int, ...]

    def singles(self) -> "Iterator[_Parcel]":
        """Each value as a request of its own."""
        for value, owner in zip(self.values, self.owners, strict=True):
            yield _Parcel((value,), (owner,))


class Courier:
    """Carries batches from the queue to the agent until it is told to stop.

    Parameters
    ----------
    queue : TraceQueue
    client : OtlpClient
    clock : Clock
    limits : EmitterLimits
    resource : mapping of str to str
        OpenTelemetry resource attributes of this process.

    Attributes
    ----------
    hurry : threading.Event
        Set: do not wait for a fuller batch.
    stop : threading.Event
        Set: carry nothing more.
    loaded : threading.Event
        Set: this thread imports nothing any more.
    """

    def __init__(
        self,
        queue: TraceQueue,
        client: OtlpClient,
        *,
        clock: Clock,
        limits: EmitterLimits,
        resource: Mapping[str, str],
    ) -> None:
        self._queue, self._client, self._clock, self._limits = queue, client, clock, limits
        self._resource = resource
        self._random = Random(clock.now_ns())  # noqa: S311 -- jitter, no secret
        self._failures = 0
        self.hurry, self.stop, self.loaded = ReentrantEvent(), ReentrantEvent(), ReentrantEvent()

    def run(self) -> None:
        """Work until stopped: the body of the thread."""
        self._load()
        while not self.stop.is_set():
            self._clock.wait(self._queue.filled, timeout_s=IDLE_S)
            if not self.stop.is_set():
                self._clock.wait(self.hurry, timeout_s=self._limits.linger_s)
                self.hurry.clear()
                self.carry_all()
        self._client.close()

    def _load(self) -> None:
        """Load protobuf, here and not with the host's import; what that fails with, every trace is lost to."""
        try:
            import paritas.wire  # noqa: F401
        except Exception:  # noqa: BLE001, S110 -- top of a thread; `_encoded` meets it again and counts it
            pass
        finally:
            self.loaded.set()

    def carry_all(self) -> None:
        """Carry what waits now, batch by batch."""
        while not self.stop.is_set() and (batch := self._queue.take(self._limits.batch_bytes)).traces:
            self._carry(batch)

    def _carry(self, batch: Batch) -> None:
        """Settle a batch, whatever happens: a batch that is lost to a fault is counted as such."""
        trip = _Trip(self._clock.monotonic_ns() + round(self._limits.retry_for_s * NS_PER_S))
        try:
            self._deliver(batch, trip)
        except Exception:  # noqa: BLE001 -- top of a thread inside somebody else's process
            for owner in range(len(batch.traces)):
                trip.lost.setdefault(owner, EmitterDrop.INTERNAL)
        self._queue.settle(batch, Counter(trip.lost.values()), retries=trip.retries)

    def _deliver(self, batch: Batch, trip: "_Trip") -> None:
        for parcel in _parcels(self._encoded(batch.traces, trip), self._limits.batch_bytes):
            self._send(parcel, trip)

    def _encoded(self, traces: Sequence[Offered], trip: "_Trip") -> Iterator[tuple[int, bytes]]:
        """Yield (owner, value) of every segment; what cannot be written is lost to that reason."""
        for owner, trace in enumerate(traces):
            try:
                values = _values(trace, self._resource)
            except RecordError:
                trip.lost[owner] = EmitterDrop.ENCODE
                continue
            except Exception:  # noqa: BLE001 -- a fault in one trace may not cost its neighbours
                trip.lost[owner] = EmitterDrop.INTERNAL
                continue
            yield from ((owner, value) for value in values)

    def _send(self, parcel: _Parcel, trip: "_Trip") -> None:
        """Send until it is taken, refused, or too late."""
        body = b"".join(parcel.values)
        while not self.stop.is_set():
            try:
                answer = self._client.post(body)
                if not _is_transient(answer.status):
                    self._failures = 0
                    return self._judge(parcel, answer.status, answer.body, trip)
            except TransientError:
                pass
            self._failures += 1
            if self._clock.monotonic_ns() >= trip.deadline_ns:
                return trip.lose(parcel.owners, EmitterDrop.GAVE_UP)
            trip.retries += 1
            self._clock.wait(self.stop, timeout_s=self._delay_s())
        return trip.lose(parcel.owners, EmitterDrop.CLOSED)

    def _judge(self, parcel: _Parcel, status: int, body: bytes, trip: "_Trip") -> None:
        """Take note of a final answer.  A refused request may hold one bad trace: each is tried alone."""
        if status != OK and len(parcel.values) > 1:
            for single in parcel.singles():
                self._send(single, trip)
        elif status != OK:
            trip.lose(parcel.owners, EmitterDrop.REFUSED)
        elif body and (rejected := _rejected_spans(body)):
            trip.lose(parcel.owners[-rejected:], EmitterDrop.REFUSED)

    def _delay_s(self) -> float:
        """Full jitter below a limit that doubles with each failure in a row."""
        grown = self._limits.retry_first_s * 2.0 ** min(self._failures - 1, 32)
        return self._random.uniform(0.0, min(grown, self._limits.retry_most_s))

    def abort(self) -> None:
        """Stop now, also in the middle of a request."""
        self.stop.set()
        self.hurry.set()
        self._queue.filled.set()
        self._client.abort()


def _values(offered: Offered, resource: Mapping[str, str]) -> list[bytes]:
    """Return the requests of one trace or reading; RecordError for what the wire format cannot hold."""
    from paritas.wire import encode, encode_reading  # as `_load`: protobuf comes with no import of the host's

    if isinstance(offered, TokenTrace):
        return [record.value for record in encode([offered], resource=resource)]
    return [encode_reading(offered, resource=resource).value]


class _Trip:
    """What became of one batch: `lost` maps the number of a trace to why it is lost."""

    def __init__(self, deadline_ns: int) -> None:
        self.deadline_ns, self.retries = deadline_ns, 0
        self.lost: dict[int, EmitterDrop] = {}

    def lose(self, owners: Sequence[int], reason: EmitterDrop) -> None:
        """A trace of which one segment is lost is lost; the first reason stays."""
        for owner in owners:
            self.lost.setdefault(owner, reason)


def _is_transient(status: int) -> bool:
    """Whether the same request may be taken later (OTLP names 429, 502, 503, 504; 500 often heals too)."""
    return status == 429 or status >= 500 or status < OK


def _parcels(values: Iterator[tuple[int, bytes]], limit_bytes: int) -> Iterator[_Parcel]:
    """Gather values into requests of about `limit_bytes` at most."""
    gathered: list[tuple[int, bytes]] = []
    size = 0
    for owner, value in values:
        if gathered and size + len(value) > limit_bytes:
            yield _parcel(gathered)
            gathered, size = [], 0
        gathered.append((owner, value))
        size += len(value)
    if gathered:
        yield _parcel(gathered)


def _parcel(gathered: Sequence[tuple[int, bytes]]) -> _Parcel:
    return _Parcel(tuple(value for _, value in gathered), tuple(owner for owner, _ in gathered))


def _rejected_spans(body: bytes) -> int:
    """Return how many spans a partial success says were not taken; 0 for any other body."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        told = ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans
    except DecodeError:
        return 0
    return max(0, told)
