"""What people are told, as records: receivers, groups, notices.

Times are Unix nanoseconds (`*_ns`), durations seconds (`*_s`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from paritas.controller.filters import Filter
from paritas.controller.model import OPEN_PHASES, Subject, Suppression
from paritas.records import Escalation, Phase, Severity

__all__ = [
    "FIELDS",
    "TOLD_PHASES",
    "Entry",
    "GroupKey",
    "Grouping",
    "Inhibition",
    "Notice",
    "NoticeReason",
    "Receiver",
    "ReceiverKind",
]

FIELDS = ("contract", "contract_version", "policy", "clause", "slice", "weights_version", "severity")
# Pending may still come to nothing; recovering has not ended.
TOLD_PHASES = frozenset({Phase.FIRING, Phase.RECOVERING, Phase.NO_DATA, Phase.ERROR})
GroupKey = tuple[str, tuple[str, ...]]
"""The receiver's name and the values of the fields it groups by."""


class ReceiverKind(StrEnum):
    """How a receiver is spoken to."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    ALERTMANAGER = "alertmanager"


class NoticeReason(StrEnum):
    """Why a notice is sent; the names of the decision."""

    FIRST = "first"
    NEW_INCIDENTS = "new_incidents"
    SOME_RESOLVED = "some_resolved"
    ALL_RESOLVED = "all_resolved"
    REPEAT = "repeat"


@dataclass(frozen=True, slots=True)
class Grouping:
    """When a group of incidents becomes one message.

    Attributes
    ----------
    by : tuple of str
        Fields whose equal values make a group; see `FIELDS`.
    wait_s : float
        From the first incident of a group to its first notice.  What resolves sooner is never told.
    interval_s : float
        Least time between two notices of a group that changed.
    repeat_s : float
        After so long without change a group that still fires is told again.
    """

    by: tuple[str, ...] = ("contract", "policy")
    wait_s: float = 30.0
    interval_s: float = 300.0
    repeat_s: float = 14_400.0


@dataclass(frozen=True, slots=True)
class Receiver:
    """One place where people read.

    Attributes
    ----------
    url : str
        Where to post; of an Alertmanager its base URL.
    url_file, key_file : Path or None
        A file that holds the URL (a Slack URL is a secret), or the key that signs or authorises.
    only : Filter
        Which incidents it wants.
    """

    name: str
    kind: ReceiverKind
    url: str = ""
    url_file: Path | None = None
    key_file: Path | None = None
    only: Filter = field(default_factory=Filter)
    grouping: Grouping = Grouping()


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While an incident matches `source`, those that match `target` with equal fields are not told.

    `source` and `target` map a field of `FIELDS` to the values that match; an incident never
    inhibits itself.
    """

    source: Mapping[str, frozenset[str]]
    target: Mapping[str, frozenset[str]]
    equal: tuple[str, ...] = ("policy", "slice")


@dataclass(frozen=True, slots=True)
class Entry:
    """One incident.

    Attributes
    ----------
    current : Escalation
        Its newest transition.
    peak : Severity
        The worst it has been.
    suppression : Suppression or None
        The silence that it was delivered under.
    opened_ns : int
        When the controller first heard of it; 0 where nobody said.
    """

    current: Escalation
    peak: Severity
    suppression: Suppression | None = None
    opened_ns: int = 0

    @property
    def is_firing(self) -> bool:
        """Whether people should know of it."""
        return self.current.after in TOLD_PHASES

    @property
    def subject(self) -> Subject:
        """What filters and silences look at; the worst severity counts."""
        values = {name: getattr(self.current, name) for name in FIELDS}
        return Subject(self.current.incident_id, **{**values, "severity": self.peak})

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.current.after in OPEN_PHASES


@dataclass(frozen=True, slots=True)
class Notice:
    """One message to one receiver.

    Attributes
    ----------
    firing, resolved : tuple of Entry
        The incidents, worst first; `resolved` are those that ended since the last notice.
    outgrown : tuple of Entry
        Incidents that got worse since the last notice, as they were told then.
    inhibited, silenced : int
        Incidents of the group that fire and are not told, by why.
    """

    receiver: str
    group: tuple[tuple[str, str], ...]
    reason: NoticeReason
    firing: tuple[Entry, ...]
    resolved: tuple[Entry, ...]
    inhibited: int = 0
    silenced: int = 0
    outgrown: tuple[Entry, ...] = ()
