"""Records to and from rows of the escalation log; rows are read by column name."""

import sqlite3

from paritas.controller.model import Draft, EventKind, IncidentRow, LoggedEvent, Subject
from paritas.records import Severity

__all__ = ["event_of", "incident_of", "insert_event", "subject_values"]

_INSERT = "INSERT INTO events VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def subject_values(subject: Subject) -> tuple[str, ...]:
    """Return the eight subject columns in the order of the tables."""
    return (
        subject.incident_id,
        subject.contract,
        subject.contract_version,
        subject.policy,
        subject.clause,
        subject.slice,
        subject.weights_version,
        subject.severity.value,
    )


def _subject_of(row: sqlite3.Row) -> Subject:
    return Subject(
        incident_id=row["incident_id"],
        contract=row["contract"],
        contract_version=row["contract_version"],
        policy=row["policy"],
        clause=row["clause"],
        slice=row["slice"],
        weights_version=row["weights_version"],
        severity=Severity(row["severity"]),
    )


def event_of(row: sqlite3.Row) -> LoggedEvent:
    """Return the event of a row of `events`."""
    return LoggedEvent(
        seq=row["seq"],
        kind=EventKind(row["kind"]),
        event_id=row["event_id"],
        received_ns=row["received_ns"],
        payload=row["payload"],
        subject=_subject_of(row),
    )


def incident_of(row: sqlite3.Row) -> IncidentRow:
    """Return the incident of a row of `incidents`."""
    return IncidentRow(
        subject=_subject_of(row),
        open=bool(row["open"]),
        opened_seq=row["opened_seq"],
        opened_ns=row["opened_ns"],
        payload=row["payload"],
        acknowledgement=row["acknowledgement"],
    )


def insert_event(db: sqlite3.Connection, draft: Draft, subject: Subject, *, received_ns: int) -> LoggedEvent:
    """Append one row to `events` and return it with its number."""
    head = (draft.kind.value, draft.event_id, received_ns, draft.payload)
    seq = int(db.execute(_INSERT, (*head, *subject_values(subject))).lastrowid or 0)
    return LoggedEvent(seq, draft.kind, draft.event_id, received_ns, draft.payload, subject)
