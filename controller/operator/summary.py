"""Open incidents of one contract → the counts and the worst of them.  Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from paritas.controller.model import SEVERITY_RANK, Incident
from paritas.records import State

__all__ = ["Summary", "rfc3339", "summary_of"]

_NS_PER_S = 1_000_000_000
_COUNTS = {
    State.VIOLATED: "violated",
    State.UNDECIDED: "undecided",
    State.NO_DATA: "noData",
    State.CONFORMING: "conforming",
}


@dataclass(frozen=True, slots=True)
class Summary:
    """The open incidents of one contract: how many in each state, the worst, and since when (Unix ns; 0 for none)."""

    counts: dict[State, int]
    worst: Incident | None = None
    since_ns: int = 0

    @property
    def open(self) -> int:
        """How many there are."""
        return sum(self.counts.values())

    def as_dict(self) -> dict[str, Any]:
        """Return ``status.verdicts``."""
        told: dict[str, Any] = {"openIncidents": self.open}
        told |= {name: self.counts.get(state, 0) for state, name in _COUNTS.items()}
        if self.worst is not None:
            told |= {"since": rfc3339(self.since_ns), "worst": _worst(self.worst)}
        return told


def summary_of(incidents: Iterable[Incident]) -> Summary:
    """Count incidents and find the worst: by severity, then state, then distance beyond the limit."""
    counts: dict[State, int] = {}
    found = sorted(incidents, key=_badness)
    for incident in found:
        state = incident.current.verdict.state
        counts[state] = counts.get(state, 0) + 1
    since_ns = min((incident.opened_ns for incident in found), default=0)
    return Summary(counts, found[0] if found else None, since_ns)


def rfc3339(time_ns: int) -> str:
    """Return Unix ns as the API writes times, to the second.

    Examples
    --------
    >>> rfc3339(1_700_000_000_000_000_000)
    '2023-11-14T22:13:20Z'
    """
    return datetime.fromtimestamp(time_ns // _NS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _badness(incident: Incident) -> tuple[float, int, float, str, str]:
    verdict = incident.current.verdict
    is_violated = verdict.state is State.VIOLATED
    scale = abs(verdict.limit) or 1.0
    beyond = abs(verdict.estimate - verdict.limit) / scale if isfinite(verdict.estimate) else 0.0
    rank = SEVERITY_RANK[incident.current.severity]
    return (-rank, -int(is_violated), -beyond, verdict.clause, verdict.slice)


def _worst(incident: Incident) -> dict[str, Any]:
    event, verdict = incident.current, incident.current.verdict
    told = {
        "clause": event.clause,
        "slice": event.slice,
        "state": str(verdict.state),
        "severity": str(event.severity),
        "statistic": verdict.statistic,
    }
    numbers = {"estimate": verdict.estimate, "limit": verdict.limit}
    return told | {name: value for name, value in numbers.items() if isfinite(value)}
