"""Tables of the wire formats, from `attributes.yaml` and `escalation.proto`."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from markdown_table import markdown

__all__ = [
    "agent_attribute_table",
    "attribute_table",
    "block_table",
    "enum_table",
    "event_table",
    "header_table",
    "reading_attribute_table",
    "roster_attribute_table",
    "rpc_table",
]

ROOT = Path(__file__).resolve().parents[1]
PROTO = ROOT / "proto/v1/escalation.proto"
RPC = re.compile(
    r"(?P<comment>(?:  // .*\n)+)  rpc (?P<name>\w+)\((?P<takes>[^)]+)\) returns \((?P<gives>[^)]+)\);"
)
FIELD = re.compile(
    r"^\s*(?:repeated |optional )?(?:map<\w+, \w+>|\w+) (?P<name>\w+) = \d+;(?:\s*// (?P<comment>.*))?$"
)
VALUE = re.compile(r"^\s*REASON_(?P<name>\w+) = \d+;(?:\s*// (?P<comment>.*))?$")


def _registry() -> Any:
    return yaml.safe_load((files("paritas") / "attributes.yaml").read_text("utf-8"))


def attribute_table() -> str:
    """Every span attribute."""
    rows = (
        (f"`{a['name']}`", a["type"], a["unit"], a["side"], a["description"])
        for a in _registry()["attributes"]
    )
    return markdown(("attribute", "type", "unit", "side", "meaning"), rows)


def agent_attribute_table() -> str:
    """Every attribute of the spans an agent writes about itself."""
    rows = (
        (f"`{a['side']}`", f"`{a['name']}`", a["type"], a["unit"], a["description"])
        for a in _registry()["agent_attributes"]
    )
    return markdown(("span", "attribute", "type", "unit", "meaning"), rows)


def reading_attribute_table() -> str:
    """Every attribute of the spans a collector writes beside its traces."""
    rows = (
        (f"`{a['side']}`", f"`{a['name']}`", a["type"], a["unit"], a["description"])
        for a in _registry()["reading_attributes"]
    )
    return markdown(("span", "attribute", "type", "unit", "meaning"), rows)


def roster_attribute_table() -> str:
    """Every attribute of the span that says who is expected to report."""
    rows = (
        (f"`{a['name']}`", a["type"], a["unit"], a["description"]) for a in _registry()["roster_attributes"]
    )
    return markdown(("attribute", "type", "unit", "meaning"), rows)


def header_table() -> str:
    """Every header of an event-log record."""
    rows = ((f"`{h['name']}`", h["type"], h["description"]) for h in _registry()["headers"])
    return markdown(("header", "type", "meaning"), rows)


def block_table() -> str:
    """Every field of `TokenBlock`."""
    rows = ((f"`{b['name']}`", b["shape"], b["unit"], b["description"]) for b in _registry()["token_block"])
    return markdown(("field", "shape", "unit", "meaning"), rows)


def rpc_table() -> str:
    """Every method of the escalation service."""
    found = RPC.finditer(PROTO.read_text("utf-8"))
    rows = ((f"`{r['name']}`", f"`{r['takes']}`", f"`{r['gives']}`", _joined(r["comment"])) for r in found)
    return markdown(("method", "request", "response", "meaning"), rows)


def _joined(comment: str) -> str:
    return " ".join(line.strip().removeprefix("// ") for line in comment.strip().splitlines())


def _body(message: str) -> list[str]:
    """Lines of one message or enum."""
    found = re.search(
        rf"^ *(?:message|enum) {message} \{{\n(.*?)^ *\}}", PROTO.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found is not None, message
    return found[1].splitlines()


def event_table() -> str:
    """Every field of an escalation."""
    rows = (
        (f"`{f['name']}`", f["comment"] or "") for line in _body("Escalation") if (f := FIELD.match(line))
    )
    return markdown(("field", "note"), rows)


def enum_table() -> str:
    """Why the server ends a stream."""
    found = (v for line in _body("Reason") if (v := VALUE.match(line)))
    rows = ((f"`{v['name']}`", v["comment"] or "") for v in found if v["name"] != "UNSPECIFIED")
    return markdown(("reason", "meaning"), rows)
