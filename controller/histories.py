"""One incident with everything that is retained of it, as records."""

from dataclasses import dataclass

from paritas.controller.convert import escalation_of
from paritas.controller.model import Acknowledgement, Incident
from paritas.controller.wire import acknowledgement_of, incident_of
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Escalation

__all__ = ["History", "history_of"]


@dataclass(frozen=True, slots=True)
class History:
    """What was logged of `incident`, as it came.

    Attributes
    ----------
    complete : bool
        False when older entries were left out or compacted away.
    """

    incident: Incident
    transitions: tuple[Escalation, ...]
    acknowledgements: tuple[Acknowledgement, ...]
    complete: bool


def history_of(message: pb.GetIncidentResponse) -> History:
    """Return the record of `message`."""
    events = message.events
    return History(
        incident=incident_of(message.incident),
        transitions=tuple(escalation_of(e.escalation) for e in events if e.HasField("escalation")),
        acknowledgements=tuple(
            acknowledgement_of(e.acknowledgement) for e in events if e.HasField("acknowledgement")
        ),
        complete=message.complete,
    )
