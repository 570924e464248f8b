"""How many there are of what is kept: open incidents by clause, promotions by standing."""

import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite3 import Connection

    from paritas.controller.store import Store

__all__ = ["TABLES", "Census", "Promotions", "census"]

# Open incidents are few among all that are kept: counting them reads this index only.
TABLES = (
    """CREATE INDEX IF NOT EXISTS incidents_open
    ON incidents (contract, clause, severity, acknowledgement, open) WHERE open""",
)
MOST_CLAUSES = 1000  # the rest is counted together
MOST_PROMOTIONS = 1000
_OPEN = """
SELECT contract, clause, severity, acknowledgement != x'' AS seen, count(*) AS n FROM incidents WHERE open
GROUP BY contract, clause, severity, seen ORDER BY contract, clause, severity, seen
"""
_PROMOTIONS = "SELECT payload FROM promotions ORDER BY revision DESC LIMIT ?"


@dataclass(frozen=True, slots=True)
class Promotions:
    """Promotions by standing, as of a revision of their tables: read again only when that has changed."""

    revision: int = -1
    by_standing: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Census:
    """What one look at the store found.

    Attributes
    ----------
    oldest, head : int
        Last number of the log compacted away; last number given.
    incidents : mapping of (contract, clause, severity, is acknowledged) to int
        Open ones; what goes beyond `MOST_CLAUSES` stands under contract and clause ``other``.
    promotions : Promotions
    free_bytes : int
        Room on the log's disk.
    """

    oldest: int
    head: int
    incidents: Mapping[tuple[str, str, str, bool], int]
    promotions: Promotions
    free_bytes: int = 0


def census(store: "Store", known: Promotions, *, folder: Path) -> Census:
    """Count; a verb for `controller.store_thread`.

    Parameters
    ----------
    known : Promotions
        What was counted before.
    folder : Path
        Where the log is.
    """
    oldest, head = store.bounds()
    free_bytes = shutil.disk_usage(folder).free
    with store.transaction() as db:
        found: Counter[tuple[str, str, str, bool]] = Counter()
        for row in db.execute(_OPEN):
            clause = (row["contract"], row["clause"]) if len(found) < MOST_CLAUSES else ("other", "other")
            found[*clause, row["severity"], bool(row["seen"])] += row["n"]
        return Census(oldest, head, found, _promotions(db, known), free_bytes)


def _promotions(db: "Connection", known: Promotions) -> Promotions:
    from paritas.controller.promotion.wire import promotion_of
    from paritas.proto.v1 import promotion_pb2 as pb

    revision = int(db.execute("SELECT revision FROM promotion_revision").fetchone()[0])
    if revision == known.revision:
        return known
    rows = db.execute(_PROMOTIONS, (MOST_PROMOTIONS,))
    standings = Counter(promotion_of(pb.Promotion.FromString(row[0])).standing.value for row in rows)
    return Promotions(revision, standings)
