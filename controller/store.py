"""The durable escalation log: one SQLite file, one writer, every verb one transaction.

Not thread-safe: `controller.store_thread` runs it in its own thread.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from paritas.closing import Closing
from paritas.controller.appends import append_one
from paritas.controller.compaction import Retention, compact, is_due
from paritas.controller.model import Appended, Draft, IncidentRow, LoggedEvent
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.rows import event_of, incident_of
from paritas.controller.schema import open_log
from paritas.errors import TransientError

__all__ = ["LAST", "Store"]

LAST = 2**63 - 1  # SQLite's integers are signed; a client's may be larger

_BY_INCIDENT = "SELECT * FROM events WHERE incident_id = ? ORDER BY seq DESC LIMIT ?"
_BY_ID = "SELECT * FROM events WHERE seq = (SELECT seq FROM event_ids WHERE event_id = ?)"
_PAGE = "SELECT * FROM incidents WHERE opened_seq > ? AND (open OR ?) ORDER BY opened_seq LIMIT ?"
_ACK = """
INSERT INTO subscribers (subscriber_id, acked_seq, seen_ns) VALUES (?, ?, ?)
ON CONFLICT (subscriber_id) DO UPDATE SET
    acked_seq = max(coalesce(acked_seq, 0), excluded.acked_seq), seen_ns = excluded.seen_ns
"""
_NACK = """
INSERT INTO subscribers VALUES (?, NULL, ?, 1, ?, ?)
ON CONFLICT (subscriber_id) DO UPDATE SET
    nacks = nacks + 1, seen_ns = excluded.seen_ns,
    nacked_event_id = excluded.nacked_event_id, nack_error = excluded.nack_error
"""


class Store(Closing):
    """The log, the incidents, the silences and the subscribers' acks.

    Parameters
    ----------
    path : Path
        The SQLite file; created when there is none.
    retention : Retention
        How much of the log is kept; the current transition of an open incident always is.

    Raises
    ------
    UsageError
        From the constructor, as `schema.open_log`.
    TransientError
        From any verb, when SQLite cannot (disk full, I/O error).
    RefusalError
        DAMAGED from any verb, when the file is.
    """

    def __init__(self, path: Path, *, retention: Retention) -> None:
        self._path = path
        self._retention = retention
        self._db = open_log(path)
        self._db.row_factory = sqlite3.Row
        self.epoch = int(self._db.execute("SELECT epoch FROM log").fetchone()[0])

    def close(self) -> None:
        """Close the file; twice is fine."""
        self._db.close()

    def append(self, drafts: Sequence[Draft], *, now_ns: int) -> Appended:
        """Add what is new, in order, all or nothing; then compact when that is due."""
        with self.transaction() as db:
            events = tuple(e for draft in drafts if (e := append_one(db, draft, now_ns=now_ns)))
            if events and is_due(self._retention, head=events[-1].seq, oldest=self._oldest()):
                compact(db, self._retention, now_ns=now_ns)
        return Appended(events, duplicates=len(drafts) - len(events))

    def compact(self, *, now_ns: int) -> int:
        """Forget what retention no longer covers; return the last number forgotten."""
        with self.transaction() as db:
            return compact(db, self._retention, now_ns=now_ns)

    def bounds(self) -> tuple[int, int]:
        """Return (last number compacted away, last number given)."""
        with self.transaction():
            return self._oldest(), self._head()

    def read(self, *, after: int, limit: int) -> list[LoggedEvent]:
        """Return up to `limit` entries after number `after`, in order.

        Raises
        ------
        RefusalError
            OUT_OF_RANGE when entries after `after` were compacted away, or `after` is ahead.
        """
        with self.transaction() as db:
            oldest, head = self._oldest(), self._head()
            if not oldest <= after <= head:
                raise _out_of_range(after, oldest=oldest, head=head)
            rows = db.execute("SELECT * FROM events WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit))
            return [event_of(row) for row in rows]

    def snapshot(self) -> tuple[int, list[IncidentRow]]:
        """Return the last number given, and the incidents open at it, oldest first."""
        with self.transaction() as db:
            rows = db.execute("SELECT * FROM incidents WHERE open ORDER BY opened_seq")
            return self._head(), [incident_of(row) for row in rows]

    def incidents(self, *, after: int, limit: int, include_closed: bool) -> list[IncidentRow]:
        """Return up to `limit` incidents opened after number `after`, oldest first."""
        with self.transaction() as db:
            return [incident_of(row) for row in db.execute(_PAGE, (after, include_closed, limit))]

    def incident(self, incident_id: str) -> IncidentRow | None:
        """Return one incident; None when it is not known (any more)."""
        with self.transaction() as db:
            row = db.execute("SELECT * FROM incidents WHERE incident_id = ?", (incident_id,)).fetchone()
            return incident_of(row) if row else None

    def incident_events(self, incident_id: str, *, limit: int) -> list[LoggedEvent]:
        """Return the latest `limit` retained entries of one incident, in order."""
        with self.transaction() as db:
            rows = db.execute(_BY_INCIDENT, (incident_id, limit)).fetchall()
            return [event_of(row) for row in reversed(rows)]

    def event(self, event_id: str) -> LoggedEvent | None:
        """Return one retained entry."""
        with self.transaction() as db:
            row = db.execute(_BY_ID, (event_id,)).fetchone()
            return event_of(row) if row else None

    def silences(self) -> list[bytes]:
        """Return the serialized silences that are kept, by end."""
        with self.transaction() as db:
            return [
                row["payload"] for row in db.execute("SELECT * FROM silences ORDER BY ends_ns, silence_id")
            ]

    def silence(self, silence_id: str) -> bytes | None:
        """Return one serialized silence."""
        with self.transaction() as db:
            row = db.execute("SELECT payload FROM silences WHERE silence_id = ?", (silence_id,)).fetchone()
            return row["payload"] if row else None

    def ack(self, subscriber_id: str, *, seq: int, now_ns: int) -> None:
        """Keep that `subscriber_id` has handled everything through `seq`; never goes back."""
        with self.transaction() as db:
            db.execute(_ACK, (subscriber_id, seq, now_ns))

    def nack(self, subscriber_id: str, *, event_id: str, error: str, now_ns: int) -> None:
        """Keep the last entry that `subscriber_id` could not apply, and how many there were."""
        with self.transaction() as db:
            db.execute(_NACK, (subscriber_id, now_ns, event_id, error))

    def acked(self, subscriber_id: str) -> int | None:
        """Return the number through which `subscriber_id` acked; None if it never did."""
        query = "SELECT acked_seq FROM subscribers WHERE subscriber_id = ?"
        with self.transaction() as db:
            row = db.execute(query, (subscriber_id,)).fetchone()
            return row["acked_seq"] if row else None

    def _oldest(self) -> int:
        return int(self._db.execute("SELECT compacted_through FROM log").fetchone()[0])

    def _head(self) -> int:
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return int(row[0]) if row else 0

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction on the log's file; SQLite's errors become ours."""
        try:
            self._db.execute("BEGIN")
            try:
                yield self._db
                self._db.execute("COMMIT")
            finally:
                # Also after a failed COMMIT; a full disk has rolled back on its own already.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            message = f"escalation log {str(self._path)!r}: {error}"
            raise TransientError(message, hint="free disk space, or check the disk") from error
        except sqlite3.DatabaseError as error:
            message = f"escalation log {str(self._path)!r} is damaged: {error}"
            raise RefusalError(
                message, reason=Refused.DAMAGED, hint="restore a copy, or start an empty log"
            ) from error


def _out_of_range(after: int, *, oldest: int, head: int) -> RefusalError:
    message = f"token: {after} is outside the log, which holds {oldest} to {head}"
    return RefusalError(message, reason=Refused.OUT_OF_RANGE, hint="take a snapshot")
