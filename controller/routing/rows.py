"""The routing tables of the controller's log: memory, overrides, audit; verbs of the store's thread."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paritas.controller.model import IncidentRow
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.routing.audit import AuditEntry, AuditKind
from paritas.controller.routing.memory import Memory, memory_from, memory_text
from paritas.controller.routing.model import Hold, RouteKey, Why
from paritas.controller.routing.override import Override
from paritas.controller.rows import incident_of
from paritas.controller.store import LAST, Store

__all__ = [
    "AUDIT_ENTRIES",
    "View",
    "audit_before",
    "keep",
    "keep_override",
    "load_memory",
    "overrides",
    "view",
    "write_audit",
]

AUDIT_ENTRIES = 100_000  # older ones are forgotten
_INSERT = "INSERT INTO route_audit VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class View:
    """One look at the log: its last number, open incidents and those named, and the overrides."""

    seq: int
    incidents: tuple[IncidentRow, ...]
    overrides: tuple[Override, ...]


def view(store: Store, named: Iterable[str]) -> View:
    """Return everything a decision looks at, as of one moment."""
    with store.transaction() as db:
        rows = db.execute("SELECT * FROM incidents WHERE open ORDER BY opened_seq").fetchall()
        known = {row["incident_id"] for row in rows}
        closed = "SELECT * FROM incidents WHERE incident_id = ?"
        for incident_id in sorted(set(named) - known):
            rows += db.execute(closed, (incident_id,)).fetchall()
        head = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return View(int(head[0]) if head else 0, tuple(incident_of(row) for row in rows), _overrides(db))


def load_memory(store: Store, policy: str) -> tuple[int, Memory]:
    """Return what was kept of `policy`, and the number of the log it covers.

    Raises
    ------
    RefusalError
        DAMAGED when it cannot be read.
    """
    with store.transaction() as db:
        row = db.execute("SELECT seq, memory FROM routing WHERE policy = ?", (policy,)).fetchone()
    if row is None:
        return 0, Memory()
    try:
        return int(row["seq"]), memory_from(row["memory"])
    except (KeyError, TypeError, ValueError) as error:
        message = f"what the routing loop remembers of policy {policy!r} cannot be read: {error!r}"
        hint = "restore a copy of the log, or start an empty one"
        raise RefusalError(message, reason=Refused.DAMAGED, hint=hint) from error


def keep(store: Store, policy: str, seq: int, memory: Memory, audit: Sequence[AuditEntry]) -> None:
    """Keep a decision: what to remember and what it wrote down, together or not at all."""
    with store.transaction() as db:
        db.execute("INSERT OR REPLACE INTO routing VALUES (?, ?, ?)", (policy, seq, memory_text(memory)))
        _write(db, audit)


def write_audit(store: Store, audit: Sequence[AuditEntry]) -> None:
    """Add lines to the audit log."""
    with store.transaction() as db:
        _write(db, audit)


def audit_before(store: Store, policy: str, *, before: int, limit: int) -> list[AuditEntry]:
    """Return up to `limit` lines before number `before` (0: the newest), newest first; "" is every policy."""
    query = (
        "SELECT * FROM route_audit WHERE (policy = ? OR ? = '') AND (entry < ? OR ? = 0) "
        "ORDER BY entry DESC LIMIT ?"
    )
    last = min(before, LAST)
    with store.transaction() as db:
        return [_entry_of(row) for row in db.execute(query, (policy, policy, last, last, limit))]


def keep_override(store: Store, override: Override, audit: Sequence[AuditEntry]) -> None:
    """Add an override, or replace the one of its identity; forget those that ended long ago."""
    payload = json.dumps(asdict(override), sort_keys=True, default=sorted)
    with store.transaction() as db:
        db.execute(
            "INSERT OR REPLACE INTO overrides VALUES (?, ?, ?)",
            (override.override_id, override.ends_ns, payload),
        )
        kept = "SELECT override_id FROM overrides ORDER BY ends_ns DESC LIMIT 1000"
        db.execute(f"DELETE FROM overrides WHERE override_id NOT IN ({kept})")  # noqa: S608  # our own text
        _write(db, audit)


def overrides(store: Store) -> tuple[Override, ...]:
    """Return the overrides that are kept, by end."""
    with store.transaction() as db:
        return _overrides(db)


def _overrides(db: sqlite3.Connection) -> tuple[Override, ...]:
    rows = db.execute("SELECT payload FROM overrides ORDER BY ends_ns, override_id")
    return tuple(_override_of(json.loads(row["payload"])) for row in rows)


def _override_of(found: dict[str, Any]) -> Override:
    sets = {name: frozenset(found[name]) for name in ("drain", "admit")}
    release = frozenset(Hold(name) for name in found["release"])
    return Override(**{**found, **sets, "release": release, "key": RouteKey(**found["key"])})


def _write(db: sqlite3.Connection, audit: Sequence[AuditEntry]) -> None:
    for e in audit:
        about = (e.at_ns, e.key.policy, e.key.slice, e.kind.value, e.why.value if e.why else "")
        db.execute(_INSERT, (*about, e.detail, e.revision, json.dumps(e.incidents), e.dry_run))
    if audit:
        oldest = "DELETE FROM route_audit WHERE entry <= (SELECT max(entry) FROM route_audit) - ?"
        db.execute(oldest, (AUDIT_ENTRIES,))


def _entry_of(row: sqlite3.Row) -> AuditEntry:
    return AuditEntry(
        at_ns=row["at_ns"],
        key=RouteKey(row["policy"], row["slice"]),
        kind=AuditKind(row["kind"]),
        why=Why(row["why"]) if row["why"] else None,
        detail=row["detail"],
        revision=row["revision"],
        incidents=tuple(json.loads(row["incidents"])),
        dry_run=bool(row["dry_run"]),
        entry=row["entry"],
    )
