"""The tables of the routing loop in the controller's log (since schema 2)."""

__all__ = ["TABLES"]

TABLES = (
    # What the loop remembers of each policy, and the number of the log it has seen.
    """CREATE TABLE IF NOT EXISTS routing (
    policy TEXT PRIMARY KEY, seq INTEGER NOT NULL, memory TEXT NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS overrides (
    override_id TEXT PRIMARY KEY, ends_ns INTEGER NOT NULL, payload TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS route_audit (
    entry INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL, policy TEXT NOT NULL,
    slice TEXT NOT NULL, kind TEXT NOT NULL, why TEXT NOT NULL, detail TEXT NOT NULL,
    revision INTEGER NOT NULL, incidents TEXT NOT NULL, dry_run INTEGER NOT NULL)""",
)
