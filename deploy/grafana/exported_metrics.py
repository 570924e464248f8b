"""Every metric that a process of ours exports, and what the code and numbers.yaml say of it."""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))

from tables_numbers import helped, shown, told_by_code

from paritas.commands.live_reading import Reading, RefitReading, prometheus_text
from paritas.commands.numbers import groups

__all__ = ["BASE", "Told", "metrics_in", "registry"]

BASE = frozenset({"up"})  # Prometheus's own, of every target
PREFIXES = {"agent-metrics": "paritas_agent_", "proxy-metrics": "paritas_proxy_"}
METRIC = re.compile(r"\b(?:paritas_[a-z0-9_]+|up)\b(?=[\s{\[)]|$)")
SUMMARY = ("_sum", "_count")


@dataclass(frozen=True, slots=True)
class Told:
    """What is said of a metric."""

    name: str
    says: str
    unit: str = ""
    blind: str = ""

    @property
    def text(self) -> str:
        """One line for people."""
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.says}{unit}." + (f" It cannot see {self.blind}." if self.blind else "")


def registry() -> Mapping[str, Told]:
    """Return every metric under its whole name."""
    found = {told.name: told for told in _told()}
    # A detector shows some only if its contract has a refit gate.
    gated = helped(prometheus_text(Reading("c", refit=RefitReading())))
    return {**{name: Told(name, says) for name, says in gated.items()}, **found}


def _told() -> Iterator[Told]:
    coded = told_by_code()
    for group in groups().values():
        if group.key in coded and group.key.endswith("-metrics"):
            for number in shown(group):
                name = PREFIXES.get(group.key, "") + number.name
                yield Told(name, number.says, number.unit, number.blind)


def metrics_in(query: str) -> Iterator[str]:
    """Yield the metrics that a query asks for; the parts of a summary under its own name.

    Examples
    --------
    >>> list(metrics_in('sum(rate(paritas_agent_fsync_seconds_sum[1m])) + up{job="up"}'))
    ['paritas_agent_fsync_seconds', 'up']
    """
    for name in METRIC.findall(query):
        whole = [name.removesuffix(end) for end in SUMMARY if name.endswith(end)]
        yield whole[0] if whole else name
