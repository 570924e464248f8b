"""What a subscription hands to its reader, as records."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from paritas.controller.convert import escalation_of
from paritas.controller.model import Acknowledgement, Incident, Suppression
from paritas.controller.silences import Silence
from paritas.controller.wire import acknowledgement_of, incident_of, silence_of, suppression_of
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Action, Escalation

__all__ = ["Delivery", "DeliveryKind", "delivery_of"]


class DeliveryKind(StrEnum):
    """What one delivery is.

    A snapshot is SNAPSHOT_START, any number of INCIDENT, SNAPSHOT_END; it replaces
    everything known so far, so incidents that are not in it are over.
    """

    ESCALATION = "escalation"
    ACKNOWLEDGEMENT = "acknowledgement"
    SILENCE = "silence"
    SNAPSHOT_START = "snapshot_start"
    INCIDENT = "incident"
    SNAPSHOT_END = "snapshot_end"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One thing that arrived; of the records, the one that its kind names is set.

    Attributes
    ----------
    token : bytes
        Where to go on after it; empty within a snapshot.
    received_ns : int
        Unix ns at which the service received the event.
    suppression : Suppression or None
        The silence that stops its actions; state is told all the same.
    connection : int
        Which connection of the subscription it came over, from 1.
    """

    kind: DeliveryKind
    event_id: str = ""
    token: bytes = b""
    received_ns: int = 0
    escalation: Escalation | None = None
    acknowledgement: Acknowledgement | None = None
    silence: Silence | None = None
    incident: Incident | None = None
    suppression: Suppression | None = None
    connection: int = 0

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions to take: none when a silence stops them."""
        current = self.incident.current if self.incident else self.escalation
        return () if current is None or self.suppression else current.actions


def delivery_of(message: pb.ServerMsg, *, connection: int) -> Delivery | None:
    """Return what `message` hands to the reader; None when it only concerns the stream.

    Raises
    ------
    RefusalError
        INVALID when it holds a name this version does not know.
    """
    make = _MAKERS.get(message.WhichOneof("body") or "")
    return make(message, connection) if make else None


def _created(message: pb.ServerMsg, connection: int) -> Delivery | None:
    if not message.created.snapshot:
        return None
    return Delivery(DeliveryKind.SNAPSHOT_START, connection=connection)


def _item(message: pb.ServerMsg, connection: int) -> Delivery:
    incident = incident_of(message.snapshot_item.incident)
    return Delivery(
        DeliveryKind.INCIDENT,
        event_id=incident.current.event_id,
        incident=incident,
        suppression=incident.suppression,
        connection=connection,
    )


def _end(message: pb.ServerMsg, connection: int) -> Delivery:
    return Delivery(DeliveryKind.SNAPSHOT_END, token=message.snapshot_end.token, connection=connection)


def _event(message: pb.ServerMsg, connection: int) -> Delivery | None:
    event = message.event
    body = event.WhichOneof("body")
    if body is None:
        return None  # of a kind that this version does not know
    return Delivery(
        DeliveryKind(body),
        event_id=event.event_id,
        token=event.token,
        received_ns=event.received_ns,
        escalation=escalation_of(event.escalation) if body == "escalation" else None,
        acknowledgement=acknowledgement_of(event.acknowledgement) if body == "acknowledgement" else None,
        silence=silence_of(event.silence) if body == "silence" else None,
        suppression=suppression_of(event.suppressed) if event.HasField("suppressed") else None,
        connection=connection,
    )


_MAKERS: dict[str, Callable[[pb.ServerMsg, int], Delivery | None]] = {
    "created": _created,
    "snapshot_item": _item,
    "snapshot_end": _end,
    "event": _event,
}
