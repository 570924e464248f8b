"""Open the SQLite file of the escalation log: ours, whole, and not in use elsewhere.

One process owns the file (an exclusive lock that dies with it): two controllers on one log
would each miss what the other appends.
"""

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from paritas.controller.census import TABLES as CENSUS_TABLES
from paritas.controller.promotion.tables import TABLES as PROMOTION_TABLES
from paritas.controller.routing.tables import TABLES as ROUTING_TABLES
from paritas.errors import UsageError

__all__ = ["APPLICATION_ID", "VERSION", "open_log"]

APPLICATION_ID = 0x50415249  # "PARI", so that another program's database is never taken for ours
VERSION = 2
_LOCK_WAIT_S = 0.5  # a predecessor that is just closing needs no more

_SUBJECT = """
    incident_id TEXT NOT NULL, contract TEXT NOT NULL, contract_version TEXT NOT NULL,
    policy TEXT NOT NULL, clause TEXT NOT NULL, slice TEXT NOT NULL,
    weights_version TEXT NOT NULL, severity TEXT NOT NULL"""

_TABLES = (
    "CREATE TABLE log (epoch INTEGER NOT NULL, compacted_through INTEGER NOT NULL)",
    # AUTOINCREMENT: a number is never used again, also after its row was compacted away.
    f"""CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, event_id TEXT NOT NULL,
    received_ns INTEGER NOT NULL, payload BLOB NOT NULL, {_SUBJECT})""",
    "CREATE INDEX events_by_incident ON events (incident_id, seq)",
    # Outlives the events, so that a late repeat is still known.
    "CREATE TABLE event_ids (event_id TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX event_ids_by_seq ON event_ids (seq)",
    f"""CREATE TABLE incidents (
    {_SUBJECT}, transition INTEGER NOT NULL, open INTEGER NOT NULL, last_seq INTEGER NOT NULL,
    opened_seq INTEGER NOT NULL, opened_ns INTEGER NOT NULL, payload BLOB NOT NULL,
    acknowledgement BLOB NOT NULL DEFAULT x'', PRIMARY KEY (incident_id))""",
    "CREATE UNIQUE INDEX incidents_by_opened ON incidents (opened_seq)",
    "CREATE TABLE silences (silence_id TEXT PRIMARY KEY, ends_ns INTEGER NOT NULL, payload BLOB NOT NULL)",
    """CREATE TABLE subscribers (
    subscriber_id TEXT PRIMARY KEY, acked_seq INTEGER, seen_ns INTEGER NOT NULL,
    nacks INTEGER NOT NULL DEFAULT 0, nacked_event_id TEXT NOT NULL DEFAULT '',
    nack_error TEXT NOT NULL DEFAULT '')""",
)

# Tables of the other parts of the controller, each list its own: created wherever they are missing, so that
# a log of this VERSION that is older than a part gains what the part needs.
_REGISTERED = (PROMOTION_TABLES, ROUTING_TABLES, CENSUS_TABLES)


def open_log(path: Path) -> sqlite3.Connection:
    """Return a connection that owns the log at `path`; create it when there is none.

    Raises
    ------
    UsageError
        The file is not ours, is damaged, is newer, is in use, or cannot be opened.
    """
    with _explained(path):
        _touch_private(path)
        db = sqlite3.connect(path, isolation_level=None, timeout=_LOCK_WAIT_S)
    try:
        with _explained(path):
            _prepare(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _touch_private(path: Path) -> None:
    """Create the file for its owner only; SQLite gives its side files the same mode."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    version = _checked_version(db, path)
    db.execute("PRAGMA journal_mode = WAL")
    # FULL: what was acknowledged to a publisher survives a power cut, not only a crash.
    db.execute("PRAGMA synchronous = FULL")
    found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(" ".join(found.split()))  # it comes in lines
    db.execute("BEGIN IMMEDIATE")
    if version == 0:
        _create(db)
    for statement in chain.from_iterable(_REGISTERED):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("COMMIT")


def _checked_version(db: sqlite3.Connection, path: Path) -> int:
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    owner = int(db.execute("PRAGMA application_id").fetchone()[0])
    empty = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if not empty and owner != APPLICATION_ID:
        message = f"escalation log {str(path)!r} is the database of another program"
        raise UsageError(message, hint="choose another file")
    if version > VERSION:
        message = f"escalation log {str(path)!r} has schema {version}, this version reads up to {VERSION}"
        raise UsageError(message, hint="upgrade paritas, or choose another file")
    return 0 if empty else version


def _create(db: sqlite3.Connection) -> None:
    for statement in _TABLES:
        db.execute(statement)
    db.execute("INSERT INTO log VALUES (?, 0)", (secrets.randbits(62) + 1,))
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system say into one clear error."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _cannot_open(path, error) from error
    except sqlite3.DatabaseError as error:
        message = f"escalation log {str(path)!r} is damaged or not a database: {error}"
        hint = "restore a copy, or move the file away to start an empty log"
        raise UsageError(message, hint=hint) from error
    except OSError as error:
        message = f"cannot open escalation log {str(path)!r}: {error.strerror}"
        raise UsageError(message, hint="the folder must exist and be writable") from error


def _cannot_open(path: Path, error: sqlite3.OperationalError) -> UsageError:
    if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:  # the low byte is the error's family
        message = f"escalation log {str(path)!r} is in use by another process"
        return UsageError(message, hint="only one controller may own a log; stop the other one")
    message = f"cannot open escalation log {str(path)!r}: {error}"
    return UsageError(message, hint="the folder must exist and be writable")
