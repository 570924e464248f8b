"""One draft into the log, inside a transaction: known already, or a new row and what it changes."""

import sqlite3
from dataclasses import replace

from paritas.controller.model import SEVERITY_RANK, Draft, EventKind, LoggedEvent, Subject
from paritas.controller.rows import insert_event, subject_values
from paritas.records import Severity

__all__ = ["append_one"]

_UPSERT = """
INSERT INTO incidents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, x'')
ON CONFLICT (incident_id) DO UPDATE SET
    contract = excluded.contract, contract_version = excluded.contract_version,
    policy = excluded.policy, clause = excluded.clause, slice = excluded.slice,
    weights_version = excluded.weights_version, transition = excluded.transition,
    open = excluded.open, payload = excluded.payload
    WHERE excluded.transition >= incidents.transition
"""


def append_one(db: sqlite3.Connection, draft: Draft, *, now_ns: int) -> LoggedEvent | None:
    """Return the new entry, or None when its `event_id` is known."""
    known = db.execute("SELECT 1 FROM event_ids WHERE event_id = ?", (draft.event_id,)).fetchone()
    if known:
        return None
    subject = _at_peak(db, draft.subject)
    event = insert_event(db, draft, subject, received_ns=now_ns)
    db.execute("INSERT INTO event_ids VALUES (?, ?)", (draft.event_id, event.seq))
    _change_state(db, draft, event)
    return event


def _at_peak(db: sqlite3.Connection, subject: Subject) -> Subject:
    """Raise the severity to the worst that the incident has reached."""
    query = "SELECT severity FROM incidents WHERE incident_id = ?"
    row = db.execute(query, (subject.incident_id,)).fetchone()
    if row is None:
        return subject
    worst = max(Severity(row["severity"]), subject.severity, key=SEVERITY_RANK.__getitem__)
    return replace(subject, severity=worst)


def _change_state(db: sqlite3.Connection, draft: Draft, event: LoggedEvent) -> None:
    match draft.kind:
        case EventKind.ESCALATION:
            _put_incident(db, draft, event)
        case EventKind.ACKNOWLEDGEMENT:
            change = "UPDATE incidents SET acknowledgement = ?, last_seq = ? WHERE incident_id = ?"
            db.execute(change, (draft.payload, event.seq, event.subject.incident_id))
        case EventKind.SILENCE:
            change = "INSERT OR REPLACE INTO silences VALUES (?, ?, ?)"
            db.execute(change, (draft.silence_id, draft.ends_ns, draft.payload))


def _put_incident(db: sqlite3.Connection, draft: Draft, event: LoggedEvent) -> None:
    """Make it the current transition, unless a higher one has come before it; a renewal has the same number."""
    state = (draft.transition, draft.open, event.seq, event.seq, event.received_ns, draft.payload)
    db.execute(_UPSERT, (*subject_values(event.subject), *state))
    always = "UPDATE incidents SET severity = ?, last_seq = ? WHERE incident_id = ?"
    db.execute(always, (event.subject.severity.value, event.seq, event.subject.incident_id))
