"""Tables of what is counted: the agent's metrics, and the closed lists of reasons behind their labels."""

import inspect
import re
from collections.abc import Iterator
from enum import StrEnum

from markdown_table import markdown

from paritas.agent.counters import SpoolCounters
from paritas.agent.eventlog import SkipReason
from paritas.agent.health import Health, Reading
from paritas.agent.intake import Answer
from paritas.agent.metrics import PREFIX, Extra, Metric, metrics
from paritas.agent.reasons import DropReason, NotReady
from paritas.agent.shipper import ShipperState
from paritas.wire import DecodeProblem

__all__ = ["agent_metrics", "counter_table", "reason_table"]

LISTS: tuple[tuple[str, type[StrEnum]], ...] = (
    ("`records_dropped_total{reason}`, and the reason of a gap span", DropReason),
    ("`requests_total{answer}`", Answer),
    ("`not_ready{reason}`", NotReady),
    ("offsets of the log that gave no record", SkipReason),
    ("records and spans of ours that cannot be read", DecodeProblem),
)
MEMBER = re.compile(
    r"^    [A-Z_]+ = \(?\s*\"(?P<value>\w+)\"\s*(?:#\s*(?P<own>.*?))?\s*\)?\s*(?:#\s*(?P<after>.*))?$",
    re.MULTILINE,
)


def counter_table() -> str:
    """Every metric of the agent."""
    rows = (
        (f"`{PREFIX}{m.name}{'{' + m.label + '}' if m.label else ''}`", m.kind, m.says)
        for m in agent_metrics()
    )
    return markdown(("metric", "type", "meaning"), rows)


def agent_metrics() -> tuple[Metric, ...]:
    """Metrics of an agent that has done nothing yet."""
    reading = Reading(SpoolCounters(), ShipperState(0, 0, 0, 0, "", is_refused=False), beat_ns=0, now_ns=0)
    return tuple(metrics(reading, Health(is_alive=True, reasons=()), Extra()))


def reason_table() -> str:
    """Every reason under which something is counted."""
    return markdown(
        ("counted", "reason", "meaning"), (row for where, kind in LISTS for row in _members(where, kind))
    )


def _members(where: str, kind: type[StrEnum]) -> Iterator[tuple[str, str, str]]:
    """Rows of one list; the meaning is the comment beside the member."""
    says = {m["value"]: m["own"] or m["after"] or "" for m in MEMBER.finditer(inspect.getsource(kind))}
    for place, member in enumerate(kind):
        yield (where if place == 0 else "", f"`{member.value}`", says[member.value])
