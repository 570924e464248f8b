"""How much of the escalation log is kept.

Compaction cuts a prefix of the log, so that "everything after token t" is whole or refused.
What an open incident last said lives in its own table and stays, whatever its age.
"""

import sqlite3
from dataclasses import dataclass

from paritas.errors import UsageError

__all__ = ["Retention", "compact", "is_due"]

NS_PER_S = 1_000_000_000
# Identities outlive their events, so that a publisher that replays its spool is still recognised.
IDS_PER_EVENT = 4


@dataclass(frozen=True, slots=True)
class Retention:
    """Keep at most `events` entries, none older than `age_s` seconds."""

    events: int = 100_000
    age_s: float = 7 * 86_400.0

    def __post_init__(self) -> None:
        """Refuse a log that keeps nothing."""
        for name in ("events", "age_s"):
            if not getattr(self, name) > 0:
                raise UsageError(f"retention.{name}: must be positive, got {getattr(self, name)!r}")


def is_due(retention: Retention, *, head: int, oldest: int) -> bool:
    """Tell whether the count is a tenth over, so that each cut is worth its cost."""
    return head - oldest > retention.events + max(1, retention.events // 10)


def compact(db: sqlite3.Connection, retention: Retention, *, now_ns: int) -> int:
    """Cut the log inside the caller's transaction; return the last number cut."""
    horizon_ns = now_ns - round(retention.age_s * NS_PER_S)
    cut = _cut(db, retention, horizon_ns=horizon_ns)
    db.execute("DELETE FROM events WHERE seq <= ?", (cut,))
    db.execute("DELETE FROM event_ids WHERE seq <= ?", (cut - (IDS_PER_EVENT - 1) * retention.events,))
    db.execute("DELETE FROM incidents WHERE NOT open AND last_seq <= ?", (cut,))
    db.execute("DELETE FROM silences WHERE ends_ns < ?", (horizon_ns,))
    forgotten = "DELETE FROM subscribers WHERE seen_ns < ? AND coalesce(acked_seq, 0) < ?"
    db.execute(forgotten, (horizon_ns, cut))
    db.execute("UPDATE log SET compacted_through = ?", (cut,))
    return cut


def _cut(db: sqlite3.Connection, retention: Retention, *, horizon_ns: int) -> int:
    """Return the last number that count or age no longer covers; never less than before."""
    oldest = int(db.execute("SELECT compacted_through FROM log").fetchone()[0])
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    head = int(row[0]) if row else 0
    young = db.execute("SELECT seq FROM events WHERE received_ns >= ? ORDER BY seq LIMIT 1", (horizon_ns,))
    first_young = young.fetchone()
    too_old = int(first_young[0]) - 1 if first_young else head
    return max(oldest, head - retention.events, too_old)
