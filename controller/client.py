"""The client of the escalation service, for detectors, routers and people.

::

    with EscalationClient("127.0.0.1:4320") as client:
        client.publish(events)
        with client.subscribe("router-1") as deliveries:
            for delivery in deliveries:
                apply(delivery.actions)
                deliveries.ack(delivery)
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from weakref import WeakSet

import grpc

from paritas.clock import Clock, SystemClock
from paritas.closing import Closing
from paritas.contracts.model import Requirement
from paritas.controller.access.bearing import bearing
from paritas.controller.backoff import Backoff, delay_s
from paritas.controller.config import TlsFiles
from paritas.controller.connection import Connection
from paritas.controller.convert import escalation_to
from paritas.controller.deliveries import Delivery, DeliveryKind
from paritas.controller.filters import Filter
from paritas.controller.histories import History, history_of
from paritas.controller.listening import CLIENT_OPTIONS, client_credentials
from paritas.controller.model import Acknowledgement, Incident
from paritas.controller.silences import Silence
from paritas.controller.subscription import StartAt, Subscription, SubscriptionOptions
from paritas.controller.unreached import call_error
from paritas.controller.wire import acknowledgement_of, filter_to, incident_of, matchers_to, silence_of
from paritas.errors import TransientError
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.proto.v1 import escalation_pb2_grpc as pb_grpc
from paritas.records import Escalation

__all__ = [
    "Delivery",
    "DeliveryKind",
    "EscalationClient",
    "Filter",
    "Published",
    "StartAt",
    "Subscription",
    "SubscriptionOptions",
]

# Well below the server's bounds, so that a batch is never refused for its size.
_BATCH_EVENTS = 500
_BATCH_BYTES = 1024 * 1024
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Published:
    """How many events were new to the service, and how many it knew."""

    accepted: int = 0
    duplicates: int = 0


class EscalationClient(Closing):
    """One channel to one server; a context manager.

    Parameters
    ----------
    target : str
        ``host:port`` or ``unix:/path``.
    clock : Clock
        Waits between tries.
    tls : TlsFiles or None
        CA, and certificate and key where the server asks for them.
    token_file : Path or None
        Holds the token this client shows, where the server has an access file; read for every call.
    timeout_s : float
        Deadline of one call.
    backoff : Backoff
        Waits, and how often `publish` tries.

    Raises
    ------
    TransientError
        From any call: the server cannot be reached, or cannot do it now.
    RefusalError
        From any call, a PermanentError: the server will never take this request.
    """

    def __init__(
        self,
        target: str,
        *,
        clock: Clock | None = None,
        tls: TlsFiles | None = None,
        token_file: Path | None = None,
        timeout_s: float = 5.0,
        backoff: Backoff | None = None,
    ) -> None:
        self._target, self._tls = target, tls
        self._clock = clock or SystemClock()
        self._timeout_s = timeout_s
        self._backoff = backoff or Backoff()
        self._random = Random(target)  # noqa: S311  # spreads waits, keeps no secret
        self._closed = threading.Event()
        self._subscriptions: WeakSet[Subscription] = WeakSet()
        self._channel = _channel(target, tls)
        self._stub: Any = pb_grpc.EscalationServiceStub(bearing(self._channel, token_file))

    def close(self) -> None:
        """Give up waits, end subscriptions and close the channel; twice is fine."""
        self._closed.set()
        for subscription in list(self._subscriptions):
            subscription.close()
        self._channel.close()

    def publish(self, events: Iterable[Escalation]) -> Published:
        """Send `events` in order and return when they are in the log; safe to repeat.

        Raises
        ------
        TransientError
            After `Backoff.tries` tries; some batches may be in the log already.
        RefusalError
            An event cannot be sent or is not taken; nothing of its batch is in the log.
        """
        total = Published()
        for batch in batches([escalation_to(event) for event in events]):
            answer = self._persist(self._stub.Publish, pb.PublishRequest(events=batch))
            total = Published(total.accepted + answer.accepted, total.duplicates + answer.duplicates)
        return total

    def subscribe(self, subscriber_id: str, options: SubscriptionOptions | None = None) -> Subscription:
        """Return a subscription; it connects when it is iterated over."""
        subscription = Subscription(
            subscriber_id,
            options or SubscriptionOptions(),
            connect=partial(Connection, self._stub, clock=self._clock),
            clock=self._clock,
            backoff=self._backoff,
        )
        self._subscriptions.add(subscription)
        return subscription

    def incidents(self, only: Filter | None = None, *, include_closed: bool = False) -> Iterator[Incident]:
        """Yield the open incidents, oldest first; pages are fetched as needed."""
        request = pb.ListIncidentsRequest(filter=filter_to(only or Filter()), include_closed=include_closed)
        while True:
            answer = self._call(self._stub.List, request)
            yield from map(incident_of, answer.incidents)
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token

    def history(self, incident_id: str) -> History:
        """Return one incident with its transitions and acknowledgements."""
        return history_of(self._call(self._stub.Get, pb.GetIncidentRequest(incident_id=incident_id)))

    def acknowledge(self, incident_id: str, *, author: str, comment: str = "") -> Acknowledgement:
        """Record that `author` has seen the incident."""
        request = pb.AcknowledgeRequest(incident_id=incident_id, author=author, comment=comment)
        return acknowledgement_of(self._call(self._stub.Acknowledge, request).acknowledgement)

    def silence(
        self, matchers: Sequence[Requirement], *, author: str, comment: str, duration_s: float
    ) -> Silence:
        """Stop the actions of matching events for `duration_s` seconds from now."""
        request = pb.SilenceRequest(
            matchers=matchers_to(tuple(matchers)),
            ends_ns=self._clock.now_ns() + round(duration_s * _NS_PER_S),
            author=author,
            comment=comment,
        )
        return silence_of(self._call(self._stub.Silence, request).silence)

    def expire_silence(self, silence_id: str, *, author: str) -> Silence:
        """End a silence now."""
        request = pb.ExpireSilenceRequest(silence_id=silence_id, author=author)
        return silence_of(self._call(self._stub.ExpireSilence, request).silence)

    def silences(self, *, include_ended: bool = False) -> list[Silence]:
        """Return the silences by end."""
        request = pb.ListSilencesRequest(include_ended=include_ended)
        return [silence_of(s) for s in self._call(self._stub.ListSilences, request).silences]

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        try:
            return method(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise call_error(error, target=self._target, tls=self._tls) from error

    def _persist(self, method: Callable[..., Any], request: Any) -> Any:
        """Try again while the error is transient and tries are left."""
        for failures in range(1, self._backoff.tries):
            try:
                return self._call(method, request)
            except TransientError:
                wait_s = delay_s(self._backoff, failures, random=self._random)
                if self._clock.wait(self._closed, timeout_s=wait_s):
                    raise
        return self._call(method, request)


def batches(messages: Sequence[pb.Escalation]) -> Iterator[list[pb.Escalation]]:
    """Cut into batches that the server takes, in order."""
    batch: list[pb.Escalation] = []
    size_bytes = 0
    for message in messages:
        if batch and (len(batch) == _BATCH_EVENTS or size_bytes + message.ByteSize() > _BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(message)
        size_bytes += message.ByteSize()
    if batch:
        yield batch


def _channel(target: str, tls: TlsFiles | None) -> Any:
    if tls is None:
        return grpc.insecure_channel(target, options=CLIENT_OPTIONS)
    return grpc.secure_channel(target, client_credentials(tls), options=CLIENT_OPTIONS)
