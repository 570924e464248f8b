"""A subscription that survives its connections: resumes, tells gaps, drops repeats."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from types import TracebackType
from typing import Self

import grpc

from paritas.clock import Clock
from paritas.controller.backoff import Backoff, delay_s
from paritas.controller.connection import Connection
from paritas.controller.deliveries import Delivery, delivery_of
from paritas.controller.filters import Filter
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.starts import PROTOCOL_VERSION
from paritas.controller.statuses import error_of
from paritas.controller.wire import filter_to
from paritas.errors import ParitasError, TransientError, UsageError
from paritas.proto.v1 import escalation_pb2 as pb

__all__ = ["StartAt", "Subscription", "SubscriptionOptions"]

_REMEMBERED = 4096  # event ids; far more than one reconnection can repeat

log = logging.getLogger(__name__)


class StartAt(StrEnum):
    """Where a subscription starts."""

    NOW = "now"
    SNAPSHOT = "snapshot_then_follow"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class SubscriptionOptions:
    """What to subscribe to.

    Attributes
    ----------
    start : StartAt or bytes
        RESUME: after this subscriber's last ack, or a snapshot if it never acked.  Bytes are
        the token of a delivery: everything after it.
    max_outstanding : int
        Events that may be delivered and not acked; 0 is no limit.
    auto_ack : bool
        Ack a delivery when the next one is asked for.
    """

    only: Filter = field(default_factory=Filter)
    start: StartAt | bytes = StartAt.RESUME
    max_outstanding: int = 0
    auto_ack: bool = False


class Subscription:
    """Iterate over it to receive; a context manager.  `close` and `ack` may come from any thread.

    Parameters
    ----------
    subscriber_id : str
        The name acks are kept under, for whoever shows this token or certificate.
    options : SubscriptionOptions
    connect : callable
        Opens a connection for a first message.
    clock : Clock
        Waits between connections.

    Raises
    ------
    RefusalError
        While iterating: the server will never take this subscription (its reason says why).
    """

    def __init__(
        self,
        subscriber_id: str,
        options: SubscriptionOptions,
        *,
        connect: Callable[[pb.ClientMsg.Start], Connection],
        clock: Clock,
        backoff: Backoff,
    ) -> None:
        self._subscriber_id = subscriber_id
        self._options = options
        self._connect = connect
        self._clock = clock
        self._backoff = backoff
        self._random = Random(subscriber_id)  # noqa: S311  # spreads waits, keeps no secret
        self._closed = threading.Event()
        self._connection: Connection | None = None
        self._token: StartAt | bytes = options.start
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._delivered = self._acknowledged = b""
        self._snapshot_connection = 0  # acks of what came before a snapshot mean nothing after it
        self._failures = 0
        self.connections = 0
        self.skipped = 0
        self._deliveries = self._run()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Delivery]:
        """Return the iterator over deliveries; there is one."""
        return self

    def __next__(self) -> Delivery:
        """Wait for the next delivery; ends when the subscription is closed."""
        return next(self._deliveries)

    @property
    def token(self) -> bytes:
        """Where to go on (`SubscriptionOptions.start`); empty before the first token came."""
        return self._token if isinstance(self._token, bytes) else b""

    def close(self) -> None:
        """Let the server keep the acks, and end; twice is fine."""
        self._closed.set()
        if self._connection:
            self._connection.close()

    def ack(self, delivery: Delivery) -> None:
        """Say that `delivery` and all before it were handled; never asked for again."""
        if delivery.token and delivery.connection >= self._snapshot_connection:
            self._send_ack(delivery.token)

    def nack(self, delivery: Delivery, *, error: str) -> None:
        """Say that `delivery` was seen and could not be applied; it is recorded, not sent again."""
        self._send_nack(delivery.event_id, error)

    def _send_ack(self, token: bytes) -> None:
        self._acknowledged = token
        if self._connection:
            self._connection.send(pb.ClientMsg(ack=pb.ClientMsg.Ack(token=token)))

    def _send_nack(self, event_id: str, error: str) -> None:
        if self._connection:
            self._connection.send(pb.ClientMsg(nack=pb.ClientMsg.Nack(event_id=event_id, error=error)))

    def _run(self) -> Generator[Delivery, None, None]:
        while not self._closed.is_set():
            try:
                with self._connect(self._first()) as connection:
                    self._connection = connection
                    yield from self._receive(connection)
                ended: ParitasError = TransientError("the server ended the stream")
            except grpc.RpcError as error:
                ended = error_of(error, target="subscribe")
            except UsageError as error:  # of the token file: it was there at the start, it may be in renewal
                ended = TransientError(str(error), hint=error.hint)
            except ValueError:  # gRPC's word for a channel that another thread has closed a moment ago
                if not self._closed.is_set():
                    raise
                return
            self._settle(ended)

    def _first(self) -> pb.ClientMsg.Start:
        start = pb.ClientMsg.Start(
            subscriber_id=self._subscriber_id,
            protocol_version=PROTOCOL_VERSION,
            filter=filter_to(self._options.only),
            max_outstanding=self._options.max_outstanding,
        )
        if isinstance(self._token, bytes):
            start.token = self._token
        else:
            getattr(start, self._token.value).SetInParent()
        self.connections += 1
        return start

    def _settle(self, error: ParitasError) -> None:
        """Decide how to go on after a connection: snapshot, wait, or give up."""
        if self._closed.is_set():
            return
        if not isinstance(error, RefusalError):
            self._wait(error)
        elif error.reason is Refused.OUT_OF_RANGE:
            log.warning("Events were missed, a snapshot is taken.", extra={"detail": str(error)})
            self._token = StartAt.SNAPSHOT
        else:
            raise error

    def _wait(self, error: ParitasError) -> None:
        self._failures += 1
        wait_s = delay_s(self._backoff, self._failures, random=self._random)
        fields = {"subscriber_id": self._subscriber_id, "error": str(error), "wait_s": wait_s}
        log.warning("Subscription was interrupted, it resumes.", extra=fields)
        self._clock.wait(self._closed, timeout_s=wait_s)

    def _receive(self, connection: Connection) -> Iterator[Delivery]:
        if self._closed.is_set():  # in between, by another thread that did not see this connection
            return
        for message in connection:
            # A server that greets, and then cannot go on, is left longer each time.
            if not message.HasField("created"):
                self._failures = 0
            self._note(message)
            delivery = self._delivery(message)
            if delivery is not None:
                yield delivery
                if self._options.auto_ack:
                    self.ack(delivery)

    def _note(self, message: pb.ServerMsg) -> None:
        """Keep what a message says about where to go on."""
        match message.WhichOneof("body"):
            case "created" if message.created.snapshot:
                self._snapshot_connection, self._acknowledged = self.connections, b""
                self._seen.clear()  # what follows a snapshot is news to it, though another log told it before
            case "created":
                if self._token is StartAt.NOW:
                    self._token = message.created.head
                if self._acknowledged:  # it may have been lost with the last connection
                    self._send_ack(self._acknowledged)
            case "heartbeat" if message.heartbeat.token:
                self._pass(message.heartbeat.token)

    def _delivery(self, message: pb.ServerMsg) -> Delivery | None:
        try:
            delivery = delivery_of(message, connection=self.connections)
        except RefusalError as error:  # a newer server's word; the rest of the stream is fine
            self._skip(message, error)
            return None
        if delivery is None or not delivery.token:
            return delivery
        if delivery.event_id in self._seen:
            self._skip(message, None)
            return None
        self._token = self._delivered = delivery.token
        self._remember(delivery.event_id)
        return delivery

    def _skip(self, message: pb.ServerMsg, error: RefusalError | None) -> None:
        """Pass over an event: a repeat, or one that this version cannot read."""
        self.skipped += 1
        if error is not None:
            event_id = message.event.event_id or message.snapshot_item.incident.current.event_id
            log.warning("Event cannot be read.", extra={"event_id": event_id, "error": str(error)})
            self._send_nack(event_id, str(error))
        if message.event.token:
            self._pass(message.event.token)

    def _pass(self, token: bytes) -> None:
        """Go on after `token`, with nothing to deliver there.

        When all before it is acked, so is this: a reader whose filter hides much would else fall
        out of the log, and a repeat would hold a place of `max_outstanding`.
        """
        if self._acknowledged == self._delivered and self._acknowledged not in (b"", token):
            self._delivered = token
            self._send_ack(token)
        self._token = token

    def _remember(self, event_id: str) -> None:
        if event_id:
            self._seen[event_id] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
