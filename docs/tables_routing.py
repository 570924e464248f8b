"""Tables of the page on routing: reasons and kinds from their comments, methods from `route.proto`."""

import re
from pathlib import Path

from markdown_table import markdown
from tables_wire import RPC

__all__ = ["audit_kind_table", "route_rpc_table", "why_table"]

ROOT = Path(__file__).resolve().parents[1]
ROUTING = ROOT / "controller/routing"
MEMBER = re.compile(r'^    [A-Z_]+ = "(?P<name>\w+)"  # (?P<meaning>.+)$', re.MULTILINE)


def why_table() -> str:
    """Every reason of a route."""
    return markdown(("reason", "meaning"), _members("model.py", "Why"))


def audit_kind_table() -> str:
    """Every kind of line in the audit log."""
    return markdown(("kind", "meaning"), _members("audit.py", "AuditKind"))


def route_rpc_table() -> str:
    """Every method of the route service."""
    found = RPC.finditer((ROOT / "proto/v1/route.proto").read_text("utf-8"))
    rows = ((f"`{r['name']}`", f"`{r['gives']}`", _joined(r["comment"])) for r in found)
    return markdown(("method", "response", "meaning"), rows)


def _members(file: str, enum: str) -> list[tuple[str, str]]:
    """Members of one enum with the comments beside them."""
    text = (ROUTING / file).read_text("utf-8").split(f"class {enum}(StrEnum):")[1].split("\n\n\n")[0]
    return [(f"`{m['name']}`", m["meaning"]) for m in MEMBER.finditer(text)]


def _joined(comment: str) -> str:
    return " ".join(line.strip().removeprefix("// ") for line in comment.strip().splitlines())
