"""Table of every number that is shown: definition, unit, source, and what it cannot see."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from markdown_table import markdown
from tables_counters import agent_metrics
from tables_rosetta import ENTRIES

from paritas.agent.health import Health
from paritas.collectors.emitter_queue import EmitterReading
from paritas.collectors.openai.tally import Tally
from paritas.collectors.openai.tally import page as proxy_page
from paritas.commands.contract_watch import ContractCounts
from paritas.commands.control_health import ControlReading, FeedReading, control_families
from paritas.commands.exposition import Family, exposition
from paritas.commands.live_reading import Reading, prometheus_text
from paritas.commands.loop_reading import LoopReading, loop_families
from paritas.commands.numbers import Group, Number, groups
from paritas.commands.roster_page import RosterReading, roster_families
from paritas.contracts.catalogue import CATALOGUE, Statistic, Test
from paritas.controller.census import Census, Promotions
from paritas.controller.operator.counts import Counts
from paritas.controller.operator.counts import prometheus_text as operator_page
from paritas.controller.vitals import Vitals

__all__ = ["helped", "number_of", "number_tables", "shown", "told_by_code"]

HELP = "# HELP "


def helped(page: str) -> dict[str, str]:
    """Metrics of a Prometheus page, by name, and their help texts."""
    lines = (line.removeprefix(HELP).partition(" ") for line in page.splitlines() if line.startswith(HELP))
    return {name: says for name, _, says in lines}


def told_by_code() -> Mapping[str, Mapping[str, tuple[str, str]]]:
    """Group → number → (definition, source; empty for that of the group), where the code itself says them."""
    agent = {metric.name: metric.says for metric in agent_metrics()}
    emitted = EmitterReading(0, 0, {}, 0, 0, 0, 0)
    proxy = {
        name.removeprefix("paritas_proxy_"): says
        for name, says in helped(proxy_page(Tally(), emitted, None)).items()
    }
    pages = {
        "agent-metrics": agent,
        "proxy-metrics": proxy,
        "detect-metrics": helped(prometheus_text(Reading("c")) + exposition(_detect_families())),
        "control-metrics": helped(exposition(_control_families())),
        "operator-metrics": helped(operator_page(Counts())),
        "roster-metrics": helped(exposition(roster_families(RosterReading(), Health(True, ())))),
    }
    told = {key: {name: (says, "") for name, says in page.items()} for key, page in pages.items()}
    return {**told, "rosetta": {name: (e.formula, e.source) for name, e in ENTRIES.items()}}


def _detect_families() -> Iterator[Family]:
    """What `paritas detect` tells of its loop."""
    return loop_families(LoopReading(), ContractCounts(), Health(True, ()), started_s=0.0)


def _control_families() -> Iterator[Family]:
    """What `paritas control` tells when everything is there."""
    told = Vitals(True, Census(0, 0, {}, Promotions()))
    reading = ControlReading(told, 0, feed=FeedReading(0, 0, 0, 0))
    return control_families(reading, Health(True, ()), started_s=0.0)


def shown(group: Group) -> Iterator[Number]:
    """Every number of a group; where the code names them, one by one instead of by patterns."""
    coded = told_by_code().get(group.key)
    if coded is None:
        yield from group.numbers
        return
    for name, (says, source) in coded.items():
        found = group.find(name) or Number(name, "", "", "", "")
        yield replace(found, name=name, says=says, source=source or found.source)


def number_of(entry: Statistic) -> Number:
    """A statistic of the catalogue, as the other numbers are told."""
    unit = entry.unit or ("compared, not estimated" if entry.test is Test.STATE else "")
    return Number(entry.name, f"{entry.says} {entry.estimator}".strip(), unit, entry.reference, entry.blind)


def number_tables() -> str:
    """One section a group."""
    told = groups()
    statistics = f"## Statistics\n\nShown as `estimate`, `lower`, `upper` and `limit` of verdicts: {len(CATALOGUE)} of them, told one by one in [statistics.md](statistics.md) and by `paritas contract explain NAME`."
    return "\n\n".join([statistics, *map(_section, told.values())])


def _section(group: Group) -> str:
    head = ("number", "what it is", "unit", "source", "cannot see")
    rows = ((f"`{n.name}`", n.says, n.unit, _linked(n.source), n.blind) for n in shown(group))
    return f"## {group.title}\n\n{group.where}.\n\n{markdown(head, rows)}"


def _linked(source: str) -> str:
    """Pages of this folder become links."""
    page, _, rest = source.removeprefix("docs/").partition(" ")
    if not source.startswith("docs/"):
        return source
    name = page.rstrip(";:,")
    return f"[{name}]({name}){page[len(name) :]} {rest}".strip()
