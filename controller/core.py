"""The parts that the service and every stream share, made once by the server."""

from dataclasses import dataclass

from paritas.clock import Clock
from paritas.controller import tokens
from paritas.controller.config import ServerConfig
from paritas.controller.hub import Hub
from paritas.controller.journal import Journal
from paritas.controller.model import EventKind, LoggedEvent, Subject, Suppression
from paritas.controller.silences import SilenceBook
from paritas.controller.store_thread import StoreThread
from paritas.controller.tokens import Token
from paritas.controller.wire import suppress, suppression_to
from paritas.proto.v1 import escalation_pb2 as pb

__all__ = ["Core"]


@dataclass(frozen=True, slots=True)
class Core:
    """Store, fan-out, silences, clock and bounds of one server."""

    config: ServerConfig
    clock: Clock
    store: StoreThread
    hub: Hub
    journal: Journal
    silences: SilenceBook

    def token(self, seq: int) -> bytes:
        """Return the resume token after number `seq`."""
        return tokens.encode(Token(epoch=self.store.epoch, seq=seq))

    def suppression(self, subject: Subject) -> Suppression | None:
        """Return the silence that stops actions on `subject` now."""
        return self.silences.suppression(subject, now_ns=self.clock.now_ns())

    def event(self, logged: LoggedEvent) -> pb.Event:
        """Return the message of one entry, as of now: suppressed or not."""
        token = self.token(logged.seq)
        message = pb.Event(token=token, event_id=logged.event_id, received_ns=logged.received_ns)
        match logged.kind:
            case EventKind.ACKNOWLEDGEMENT:
                message.acknowledgement.MergeFromString(logged.payload)
            case EventKind.SILENCE:
                message.silence.MergeFromString(logged.payload)
            case EventKind.ESCALATION:
                self._fill(message, logged)
        return message

    def _fill(self, message: pb.Event, logged: LoggedEvent) -> None:
        message.escalation.MergeFromString(logged.payload)
        suppression = self.suppression(logged.subject)
        if suppression:
            message.suppressed.CopyFrom(suppression_to(suppression))
            suppress(message.escalation, suppressed=True)
