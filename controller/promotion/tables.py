"""What the promotions need in the controller's SQLite file; `controller.schema` creates it where it is missing."""

__all__ = ["TABLES"]

TABLES = (
    "CREATE TABLE IF NOT EXISTS promotion_revision (revision INTEGER NOT NULL)",
    "INSERT INTO promotion_revision SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM promotion_revision)",
    """CREATE TABLE IF NOT EXISTS promotion_contracts (
    contract_digest TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS promotions (
    promotion_id TEXT PRIMARY KEY, contract TEXT NOT NULL, candidate_digest TEXT NOT NULL,
    attempt INTEGER NOT NULL, is_over INTEGER NOT NULL, revision INTEGER NOT NULL UNIQUE,
    started INTEGER NOT NULL, seed TEXT NOT NULL, contract_digest TEXT NOT NULL, payload BLOB NOT NULL,
    latest BLOB NOT NULL, latest_block TEXT NOT NULL, latest_text TEXT NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS promotions_by_candidate ON promotions (contract, candidate_digest)",
    """CREATE TABLE IF NOT EXISTS promotion_transitions (
    promotion_id TEXT NOT NULL, number INTEGER NOT NULL, payload BLOB NOT NULL, envelope BLOB NOT NULL,
    PRIMARY KEY (promotion_id, number)) WITHOUT ROWID""",
    # How many increases of traffic a run of a rollout controller was granted.
    """CREATE TABLE IF NOT EXISTS promotion_grants (
    promotion_id TEXT NOT NULL, run TEXT NOT NULL, granted INTEGER NOT NULL,
    PRIMARY KEY (promotion_id, run)) WITHOUT ROWID""",
)
