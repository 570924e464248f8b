"""One line of the audit log: what was decided or done about a route, and why."""

from dataclasses import dataclass
from enum import StrEnum

from paritas.controller.routing.model import RouteKey, Why

__all__ = ["AuditEntry", "AuditKind"]


class AuditKind(StrEnum):
    """What one line tells."""

    DECIDED = "decided"  # the desired state changed
    WITHHELD = "withheld"  # something was asked for and not done, or kept on
    APPLIED = "applied"  # a router was told, and what it answered
    DRIFTED = "drifted"  # a router shows something else than what it had confirmed
    OVERRIDDEN = "overridden"  # a person began or ended an override


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line; `entry` counts from 1 and is 0 before it is in the log.

    Attributes
    ----------
    why : Why or None
        The reason of a decision; None where no reason of ours decided (what a router answered).
    dry_run : bool
        It was only computed.
    """

    at_ns: int
    key: RouteKey
    kind: AuditKind
    why: Why | None
    detail: str
    revision: int = 0
    incidents: tuple[str, ...] = ()
    dry_run: bool = True
    entry: int = 0
