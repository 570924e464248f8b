"""What the escalation log holds and hands out, as records."""

from dataclasses import dataclass
from enum import StrEnum

from paritas.records import Escalation, Phase, Severity

__all__ = [
    "OPEN_PHASES",
    "SEVERITY_RANK",
    "Acknowledgement",
    "Appended",
    "Draft",
    "EventKind",
    "Incident",
    "IncidentRow",
    "LoggedEvent",
    "Subject",
    "Suppression",
]

# An incident in any other phase asks for nothing any more.
OPEN_PHASES = frozenset({Phase.PENDING, Phase.FIRING, Phase.RECOVERING, Phase.NO_DATA, Phase.ERROR})
SEVERITY_RANK = {severity: rank for rank, severity in enumerate(Severity)}


class EventKind(StrEnum):
    """What one entry of the log is."""

    ESCALATION = "escalation"
    ACKNOWLEDGEMENT = "acknowledgement"
    SILENCE = "silence"


@dataclass(frozen=True, slots=True)
class Subject:
    """What an event is about: the fields that filters and silences look at.

    `severity` is the worst the incident has reached, so that a filter that let an incident
    in also lets its end through.
    """

    incident_id: str = ""
    contract: str = ""
    contract_version: str = ""
    policy: str = ""
    clause: str = ""
    slice: str = ""
    weights_version: str = ""
    severity: Severity = Severity.INFO


@dataclass(frozen=True, slots=True)
class Draft:
    """One entry on its way into the log.

    Attributes
    ----------
    payload : bytes
        The serialized message of its kind.
    transition, open : int, bool
        Of an escalation: its number, and whether the incident is open after it.
    silence_id, ends_ns : str, int
        Of a silence: its identity, and the Unix ns at which it ends.
    """

    kind: EventKind
    event_id: str
    payload: bytes
    subject: Subject = Subject()
    transition: int = 0
    open: bool = True
    silence_id: str = ""
    ends_ns: int = 0


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One entry of the log; `seq` counts from 1 without holes."""

    seq: int
    kind: EventKind
    event_id: str
    received_ns: int
    payload: bytes
    subject: Subject


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append did: the new entries in order, and how many were known already."""

    events: tuple[LoggedEvent, ...]
    duplicates: int


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """An incident as stored; `payload` is its highest transition, `acknowledgement` may be empty."""

    subject: Subject
    open: bool
    opened_seq: int
    opened_ns: int
    payload: bytes
    acknowledgement: bytes


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A person has seen the incident; `transition` was its latest one then."""

    incident_id: str
    transition: int
    author: str
    comment: str
    acknowledged_ns: int


@dataclass(frozen=True, slots=True)
class Suppression:
    """Which silence stops an event's actions, whose it is, why, and until which Unix ns."""

    silence_id: str
    author: str
    comment: str
    ends_ns: int


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident as a client sees it.

    Attributes
    ----------
    current : Escalation
        Its highest transition.
    peak : Severity
        The worst severity so far.
    opened_ns : int
        Unix ns at which the service first heard of it.
    """

    current: Escalation
    open: bool
    peak: Severity
    opened_ns: int
    acknowledgement: Acknowledgement | None = None
    suppression: Suppression | None = None
