"""The generated tables of the pages, by name; each returns Markdown, or nothing where it cannot be made."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import measure_features
from markdown_table import markdown
from tables_collectors import answer_table, variable_table
from tables_counters import counter_table, reason_table
from tables_numbers import number_tables
from tables_rosetta import rosetta_table
from tables_routing import audit_kind_table, route_rpc_table, why_table
from tables_wire import (
    agent_attribute_table,
    attribute_table,
    block_table,
    enum_table,
    event_table,
    header_table,
    reading_attribute_table,
    roster_attribute_table,
    rpc_table,
)

from paritas.commands.agent_table import FILE as AGENT_FILE
from paritas.commands.routes_table import FILE as ROUTES_FILE
from paritas.contracts.bounds import __all__ as bound_names
from paritas.contracts.catalogue import CATALOGUE, Statistic, Test
from paritas.contracts.load import load_preset, preset_names
from paritas.contracts.model import Clause
from paritas.contracts.shapes import (
    Choice,
    Either,
    Field,
    Listing,
    Number,
    OneOrMany,
    Record,
    Shape,
    Tagged,
    Whole,
)
from paritas.contracts.table import DOCUMENT

__all__ = ["TABLES"]

ROOT = Path(__file__).resolve().parents[1]
JUDGED = {
    Test.BOUNDED_MEAN: "pass or fail",
    Test.CONDITIONAL_MEAN: "pass or fail",
    Test.NON_NEGATIVE_MEAN: "fail only",
    Test.SUPREMUM: "fail only",
    Test.STATE: "compared",
}


def catalogue() -> str:
    """Every statistic: unit, range, how one unit's value is made, and what can be decided about it."""
    head = ("statistic", "family", "unit, range", "one unit's value", "data can", "needs", "reference")
    return markdown(head, map(_catalogue_row, CATALOGUE.values()))


def _catalogue_row(entry: Statistic) -> Sequence[str]:
    high = "∞" if math.isinf(entry.hi) else f"{entry.hi:g}"
    unit = f"{entry.unit}, {entry.lo:g} to {high}" if entry.test is not Test.STATE else "–"
    options = "".join(f" `{name}`" for name in entry.options)
    name = f"[`{entry.name}`](#{entry.name})" + (f"; takes{options}" if options else "")
    needs = entry.need.replace("_", " ")
    return name, entry.family, unit, entry.estimator, _decidable(entry), needs, _reference(entry)


def _decidable(entry: Statistic) -> str:
    """A mean over an unbounded range passes through the share above a quantile's limit only."""
    is_bounded = entry.test is not Test.BOUNDED_MEAN or math.isfinite(entry.hi)
    return JUDGED[entry.test] if is_bounded else "fail; pass with `quantile`"


def _reference(entry: Statistic) -> str:
    """Numbers of the mathematics and public sources; design notes are not part of the repository."""
    return "–" if entry.reference.startswith(("architecture", "statistics")) else entry.reference


def statistics() -> str:
    """One section a statistic: what it says and what it cannot see."""
    return "\n\n".join(f"### {e.name}\n\n{e.says}\n\nBlind to: {e.blind}." for e in CATALOGUE.values())


def presets() -> str:
    """Every limit of every preset that is not its base's, with its source."""
    head = ("preset", "starts from", "clause", "limit", "where the limit comes from")
    return markdown(
        head, [row for name in sorted(preset_names(), key=_base_first) for row in _preset_rows(name)]
    )


def _base_first(name: str) -> tuple[bool, str]:
    return bool(load_preset(name).preset), name


def _preset_rows(name: str) -> Iterator[Sequence[str]]:
    contract = load_preset(name)
    base = {c.id: _limit_text(c) for c in load_preset(contract.preset).clauses} if contract.preset else {}
    own = [c for c in contract.clauses if base.get(c.id) != _limit_text(c)]
    for place, clause in enumerate(own):
        first = (f"`{name}`", f"`{contract.preset}`" if contract.preset else "–") if place == 0 else ("", "")
        yield (*first, f"`{clause.id}`", _limit_text(clause), " ".join(clause.source.split()))


def _limit_text(clause: Clause) -> str:
    side, limit = ("≤", clause.at_most) if clause.at_most is not None else ("≥", clause.at_least)
    options = {"above": clause.above, "cap": clause.cap, "clip": clause.clip, "quantile": clause.quantile}
    told = "".join(f", {name} {value:g}" for name, value in options.items() if value is not None)
    return f"`{clause.statistic}`{told} {side} {limit:g}"


def fields() -> str:
    """Every field of the DSL; the kernels and the clause families share their fields and stand once."""
    return markdown(("field", "value", "meaning"), _field_rows(DOCUMENT, ""))


def agent_fields() -> str:
    """Every field of the agent's configuration file."""
    return markdown(("field", "value", "meaning"), _field_rows(AGENT_FILE, ""))


def route_fields() -> str:
    """Every field of the operator's file of routes."""
    return markdown(("field", "value", "meaning"), _field_rows(ROUTES_FILE, ""))


def _field_rows(record: Record, path: str) -> Iterator[Sequence[str]]:
    for field in record.fields:
        if path == "spec.clauses." and field.name != "numerical":
            continue
        if path == "spec.kernels." and field.name != "train":
            continue
        yield _field_row(field, path)
        inner = field.shape.item if isinstance(field.shape, Listing) else field.shape
        if isinstance(inner, Record):
            yield from _field_rows(inner, f"{path}{field.name}.")
        if isinstance(inner, Tagged) and record is AGENT_FILE:
            for choice in inner.records:
                yield from _field_rows(choice, f"{path}{field.name}.{choice.name}.")


def _field_row(field: Field, path: str) -> Sequence[str]:
    shown = {"spec.clauses.": "FAMILY", "spec.kernels.": "ROLE"}.get(path, field.name)
    name = f"{path}{shown}".replace("spec.clauses.numerical", "spec.clauses.FAMILY")
    name = name.replace("spec.kernels.train", "spec.kernels.ROLE")
    needed = " (required)" if field.is_required else ""
    says = field.says.replace("numerical clauses", "clauses of one of the four families")
    return f"`{name}`{needed}", _value_text(field.shape), says.replace("the train kernel", "one kernel")


def _value_text(shape: Shape) -> str:
    """Say in a few words what may be written."""
    match shape:
        case Choice(names=names):
            return ", ".join(f"`{name}`" for name in names)
        case Number(low=low, high=high):
            return f"number from {low:g}" + ("" if high is None else f" to {high:g}")
        case Whole(low=low):
            return f"whole number from {low}"
        case Listing(item=item):
            return f"list of {_value_text(item)}"
        case OneOrMany(item=item):
            return f"one or a list of {_value_text(item)}"
        case Tagged(records=records):
            return ", ".join(f"`{record.name}`" for record in records)
        case Either(says=says):
            return says
        case _:
            return {"Record": "mapping", "Flag": "true or false", "FreeKeys": "free keys"}.get(
                type(shape).__name__, type(shape).__name__.lower()
            )


def features() -> str:
    """Features of the shipped recordings."""
    rows = list(measure_features.measure(ROOT / "src/paritas/data", load_preset("dense-bf16")))
    return measure_features.table(rows)


def features_full() -> str:
    """Features of the longer recordings; nothing where they are not at hand."""
    folder = Path(os.environ.get("PARITAS_SHARED_DATA", "")) / "smollm2"
    if not folder.is_dir():
        return ""
    return measure_features.table(list(measure_features.measure(folder, load_preset("dense-bf16"))))


def bounds() -> str:
    """The functions of `contracts.bounds`, for the page on the mathematics."""
    return ", ".join(f"`{name}`" for name in bound_names if name[0].islower())


TABLES: Mapping[str, Callable[[], str]] = {
    "catalogue": catalogue,
    "statistics": statistics,
    "presets": presets,
    "fields": fields,
    "features": features,
    "features-full": features_full,
    "bounds": bounds,
    "rosetta": rosetta_table,
    "numbers": number_tables,
    "agent-fields": agent_fields,
    "agent-attributes": agent_attribute_table,
    "reading-attributes": reading_attribute_table,
    "roster-attributes": roster_attribute_table,
    "attributes": attribute_table,
    "answers": answer_table,
    "counters": counter_table,
    "variables": variable_table,
    "reasons": reason_table,
    "headers": header_table,
    "token-block": block_table,
    "rpcs": rpc_table,
    "route-fields": route_fields,
    "route-rpcs": route_rpc_table,
    "route-reasons": why_table,
    "route-audit": audit_kind_table,
    "escalation": event_table,
    "stream-ends": enum_table,
}
