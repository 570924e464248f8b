"""What `paritas roster` says of itself: whether it does its work, and the numbers of its page.  Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from paritas.agent.health import Health
from paritas.commands.exposition import Family, counter, gauge, health_families, labelled

__all__ = ["NamespaceReading", "RosterReading", "RosterTrouble", "judge", "roster_families"]

NS = 1_000_000_000
DEAD_S = 30.0  # an event loop that did not turn round for so long is dead
NOBODY = ""  # stands for a namespace where there is none yet


class RosterTrouble(StrEnum):
    """Why who must report is not told."""

    STARTING = "starting"  # the pods were not listed yet
    CLUSTER = "cluster"  # the API server cannot be asked, or says no
    LOG = "log"  # the event log does not take the roster
    STUCK = "stuck"  # the process does not turn round


@dataclass(frozen=True, slots=True)
class NamespaceReading:
    """One namespace at one moment.

    Attributes
    ----------
    pods, expected, without_sidecar, left_out : int
        Pods that have not ended; of these, that have started, that lack the agent's container, for which there is no room.
    lists, failures : int
        Times that all were listed; that the API server could not be asked or said no.
    is_synced : bool
        Whether what is known is what the cluster has.
    problem : str
        Why not; empty before the first try.
    """

    pods: int = 0
    expected: int = 0
    without_sidecar: int = 0
    left_out: int = 0
    lists: int = 0
    failures: int = 0
    is_synced: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RosterReading:
    """Everything health and page are made of.

    Attributes
    ----------
    namespaces : mapping of str to NamespaceReading
    records, write_failures : int
        Rosters that the log took; tries that failed.
    problem : str
        Why the last try failed; empty if it did not.
    written_ns : int
        Unix ns at which the log took the last; 0 for never.
    idle_ns : int
        How long ago the event loop turned round.
    """

    namespaces: Mapping[str, NamespaceReading] = field(default_factory=lambda: {NOBODY: NamespaceReading()})
    records: int = 0
    write_failures: int = 0
    problem: str = ""
    written_ns: int = 0
    idle_ns: int = 0


def judge(reading: RosterReading) -> Health:
    """Return the health.

    Examples
    --------
    >>> judge(RosterReading()).text()
    'not ready: starting'
    """
    blind = [one for one in reading.namespaces.values() if not one.is_synced]
    is_alive = reading.idle_ns <= DEAD_S * NS
    found = {
        RosterTrouble.STARTING: any(not one.problem for one in blind),
        RosterTrouble.CLUSTER: any(one.problem for one in blind),
        RosterTrouble.LOG: bool(reading.problem),
        RosterTrouble.STUCK: not is_alive,
    }
    return Health(is_alive, tuple(reason for reason, holds in found.items() if holds))


def roster_families(reading: RosterReading, health: Health) -> Iterator[Family]:
    """Yield every family."""
    yield from health_families("paritas_roster", health, RosterTrouble)
    yield from _spaces(reading.namespaces)
    yield counter("paritas_roster_records_total", "rosters that the event log took", reading.records)
    says = "tries to write one that failed"
    yield counter("paritas_roster_write_failures_total", says, reading.write_failures)
    says = "time at which the log took the last"
    yield gauge("paritas_roster_last_write_timestamp_seconds", says, reading.written_ns / NS)


def _spaces(spaces: Mapping[str, NamespaceReading]) -> Iterator[Family]:
    told = {
        "pods": ("gauge", "pods that the selector names and that have not ended"),
        "expected": ("gauge", "of these, pods that have started and must report"),
        "without_sidecar": ("gauge", "of these, pods without the container of the agent"),
        "left_out": ("gauge", "pods for which the roster has no room"),
        "lists_total": ("counter", "times that all pods were listed"),
        "api_failures_total": ("counter", "times that the API server could not be asked or said no"),
        "synced": ("gauge", "1 while what is known is what the cluster has"),
    }
    for name, (kind, says) in told.items():
        samples = {space: _numbers(one)[name] for space, one in spaces.items()}
        yield Family(f"paritas_roster_{name}", kind, says, *labelled("namespace", samples))


def _numbers(one: NamespaceReading) -> dict[str, float]:
    return {
        "pods": one.pods,
        "expected": one.expected,
        "without_sidecar": one.without_sidecar,
        "left_out": one.left_out,
        "lists_total": one.lists,
        "api_failures_total": one.failures,
        "synced": float(one.is_synced),
    }
