"""One transition of one incident, as subscribers receive it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from paritas.records.verdict import Finding, Verdict

__all__ = ["Action", "Escalation", "Phase", "Severity"]


class Severity(StrEnum):
    """How urgent an escalation is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Phase(StrEnum):
    """Where an incident stands."""

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"
    RECOVERING = "recovering"
    RESOLVED = "resolved"
    SUPERSEDED = "superseded"
    NO_DATA = "no_data"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing the contract asks for, such as ``reroute`` with ``{"to": "reference"}``."""

    kind: str
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Escalation:
    """One transition of one incident, as a subscriber receives it.

    Attributes
    ----------
    event_id : str
        Identity for deduplication: equal inputs give equal ids.
    incident_id : str
        Identity of the incident; constant over its transitions.
    transition : int
        Number of this transition within the incident, from 1.
    level : int
        Escalation level, from 0.
    trace_ids : tuple of str
        Exemplar traces, worst first.
    issued_ns, valid_until_ns : int
        Unix ns; after `valid_until_ns` an unrefreshed event no longer asks for anything.
    """

    event_id: str
    incident_id: str
    transition: int
    contract: str
    contract_version: str
    policy: str
    clause: str
    slice: str
    weights_version: str
    before: Phase
    after: Phase
    severity: Severity
    level: int
    verdict: Verdict
    diagnosis: tuple[Finding, ...]
    actions: tuple[Action, ...]
    trace_ids: tuple[str, ...]
    issued_ns: int
    valid_until_ns: int
    summary: str

    def as_dict(self) -> dict[str, object]:
        """Return plain JSON-ready values."""
        return asdict(self)
