"""Whether a controller does its work, and the numbers of its page.  Pure.

Not ready means: nobody should be sent here.  A topic or a router that is away is no reason for that, since
publishing and subscribing go on; it is told beside it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from paritas.agent.health import Health
from paritas.commands.exposition import Family, counter, gauge, health_families, labelled
from paritas.controller.hub import EndReason
from paritas.controller.promotion.model import Standing
from paritas.controller.routing.audit import AuditKind
from paritas.controller.vitals import RouterVitals, Vitals
from paritas.records import Severity

__all__ = ["ControlNote", "ControlReading", "ControlTrouble", "FeedReading", "control_families", "judge"]

NS = 1_000_000_000
STALL_S = 30.0
DEAD_S = 120.0
DECIDED = (AuditKind.DECIDED, AuditKind.WITHHELD)


class ControlTrouble(StrEnum):
    """Why a controller does not do its work."""

    STARTING = "starting"
    DRAINING = "draining"
    STALLED = "stalled"  # event loop or store have not answered for half a minute
    STORE_REFUSES_WRITES = "store_refuses_writes"  # escalations cannot be taken: a full disk, an I/O error


class ControlNote(StrEnum):
    """What a controller does its work in spite of."""

    TOPIC_WAITS = "topic_waits"  # escalations of the topic have not been looked at for half a minute
    ROUTER_UNREACHABLE = "router_unreachable"  # a router did not answer; its leases run out
    ROUTING_FAILS = "routing_fails"  # rounds of the routing loop fail


@dataclass(frozen=True, slots=True)
class FeedReading:
    """What the feed from the topic has done (`escalation_feed.EscalationFeed`); `turn_ns` is monotonic."""

    published: int
    refused: int
    lost: int
    turn_ns: int


@dataclass(frozen=True, slots=True)
class ControlReading:
    """Everything health and page are made of.

    Attributes
    ----------
    vitals : Vitals or None
        The newest; None before the first.
    answered_ns : int
        Monotonic ns at which it came; before the first, when the process started.
    has_started, is_draining : bool
    fails : bool
        Whether rounds of the routing loop failed between the two newest.
    feed : FeedReading or None
        None without a topic.
    """

    vitals: Vitals | None
    answered_ns: int
    has_started: bool = True
    is_draining: bool = False
    fails: bool = False
    feed: FeedReading | None = None


def judge(
    reading: ControlReading, now_ns: int, *, stall_s: float = STALL_S, dead_s: float = DEAD_S
) -> Health:
    """Return the health; `now_ns` is monotonic.

    Examples
    --------
    >>> judge(ControlReading(None, 0, has_started=False), 1).text()
    'not ready: starting'
    """
    quiet_s = 0.0 if reading.is_draining else (now_ns - reading.answered_ns) / NS
    vitals = reading.vitals
    found = {
        ControlTrouble.STARTING: not reading.has_started or vitals is None,
        ControlTrouble.DRAINING: reading.is_draining,
        ControlTrouble.STALLED: vitals is not None and quiet_s > stall_s,
        ControlTrouble.STORE_REFUSES_WRITES: vitals is not None and not vitals.is_writable,
    }
    reasons = tuple(reason for reason, holds in found.items() if holds)
    return Health(quiet_s <= dead_s, reasons, tuple(_notes(reading, now_ns, stall_s)))


def _notes(reading: ControlReading, now_ns: int, stall_s: float) -> Iterator[ControlNote]:
    if reading.feed is not None and (now_ns - reading.feed.turn_ns) / NS > stall_s:
        yield ControlNote.TOPIC_WAITS
    if reading.vitals is not None and not all(r.is_reachable for r in reading.vitals.routers):
        yield ControlNote.ROUTER_UNREACHABLE
    if reading.fails:
        yield ControlNote.ROUTING_FAILS


def control_families(reading: ControlReading, health: Health, *, started_s: float) -> Iterator[Family]:
    """Yield every family; `started_s` is when the process started, Unix seconds."""
    yield from health_families("paritas_control", health, ControlTrouble)
    says = "1 for each trouble that does not stop it, by reason"
    notes = labelled("reason", {note.value: float(note in health.notes) for note in ControlNote})
    yield Family("paritas_control_degraded", "gauge", says, *notes)
    yield gauge("paritas_control_process_start_time_seconds", "time the process started", started_s)
    if reading.vitals is not None:
        yield from _log(reading.vitals)
        yield from _kept(reading.vitals)
        yield from _streams(reading.vitals)
        yield from _routes(reading.vitals)
    if reading.feed is not None:
        yield from _feed(reading.feed)


def _log(told: Vitals) -> Iterator[Family]:
    yield gauge(
        "paritas_control_writable", "1 if the last write to the log went well", float(told.is_writable)
    )
    yield gauge("paritas_control_disk_free_bytes", "room on the log's disk", told.census.free_bytes)
    yield gauge("paritas_control_log_head", "number of the newest event in the log", told.census.head)
    oldest = "number of the last event that the log no longer has"
    yield gauge("paritas_control_log_compacted_through", oldest, told.census.oldest)
    events = "events added to the log since the start"
    yield counter("paritas_control_events_total", events, told.appended)
    yield counter("paritas_control_duplicates_total", "escalations published again", told.duplicates)
    yield counter("paritas_control_refused_total", "batches of escalations that were refused", told.refused)
    reasons = {reason: told.turned_away.get(reason, 0) for reason in ("unknown", "forbidden")}
    says = "calls that access control refused, by reason"
    yield Family("paritas_control_turned_away_total", "counter", says, *labelled("reason", reasons))


def _kept(told: Vitals) -> Iterator[Family]:
    severe: Counter[str] = Counter()
    for (_, _, severity, _), n in told.census.incidents.items():
        severe[severity] += n
    by_severity = labelled("severity", {s.value: float(severe[s.value]) for s in Severity})
    yield Family("paritas_control_open_incidents", "gauge", "open incidents, by worst severity", *by_severity)
    labels = ("contract", "clause", "severity", "state")
    found: Mapping[tuple[str, ...], float] = {
        (*rest, "acknowledged" if seen else "open"): n for (*rest, seen), n in told.census.incidents.items()
    }
    yield Family("paritas_control_incidents", "gauge", "open incidents, by clause", labels, found)
    promotions = {s.value: float(told.census.promotions.by_standing.get(s.value, 0)) for s in Standing}
    says = "promotions, by standing"
    yield Family("paritas_control_promotions", "gauge", says, *labelled("standing", promotions))


def _streams(told: Vitals) -> Iterator[Family]:
    yield gauge("paritas_control_subscribers", "streams of subscribers that are open", len(told.subscribers))
    waiting = "events that wait to be sent to the slowest subscriber"
    yield gauge("paritas_control_deliveries_waiting", waiting, max(told.subscribers, default=0))
    ended = labelled("reason", {reason.value: told.ended.get(reason.value, 0) for reason in EndReason})
    says = "streams that ended, by reason; overflow: cut off because too slow"
    yield Family("paritas_control_streams_ended_total", "counter", says, *ended)


def _routes(told: Vitals) -> Iterator[Family]:
    rounds = "rounds of the routing loop that failed"
    yield counter("paritas_control_route_failed_rounds_total", rounds, told.failed_rounds)
    driven = [r for r in told.routers if r.driver]
    for name, says in (
        ("reachable", "1 if the router answered the last question"),
        ("confirmed", "1 if every route that it can serve was read back"),
    ):
        samples = {_router(r): float(getattr(r, f"is_{name}")) for r in driven}
        yield Family(f"paritas_control_router_{name}", "gauge", says, ("policy", "driver"), samples)
    changes = {(*_router(r), outcome): n for r in driven for outcome, n in r.changes.items()}
    labels = ("policy", "driver", "outcome")
    says = "changes of routes told to routers, by what became of them"
    yield Family("paritas_control_route_changes_total", "counter", says, labels, changes)
    says = "times a router showed something else than it had confirmed"
    drifts = {_router(r): r.drifts for r in driven}
    yield Family("paritas_control_router_drifts_total", "counter", says, ("policy", "driver"), drifts)
    yield _decisions(told)


def _router(told: RouterVitals) -> tuple[str, ...]:
    return told.policy, told.driver


def _decisions(told: Vitals) -> Family:
    samples: dict[tuple[str, ...], float] = {
        (r.policy, str(r.is_dry_run).lower(), kind.value): r.decided.get(kind.value, 0)
        for r in told.routers
        for kind in DECIDED
    }
    says = "changes of routes that were decided, and that were asked for and withheld"
    labels = ("policy", "dry_run", "kind")
    return Family("paritas_control_route_decisions_total", "counter", says, labels, samples)


def _feed(feed: FeedReading) -> Iterator[Family]:
    counts = (
        ("published", "escalations of the topic handed on", feed.published),
        ("refused", "records of the topic that hold no escalation, or one that is never taken", feed.refused),
        ("lost", "offsets of the topic that were gone before they were read", feed.lost),
    )
    for name, says, n in counts:
        yield counter(f"paritas_control_topic_{name}_total", says, n)
