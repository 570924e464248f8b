"""The promotions in the controller's SQLite file: tables and verbs, each one transaction.

Run by `controller.store_thread` like the verbs of `Store`.  Nothing here is ever deleted: what was
promoted, and on which evidence, is asked for long after.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paritas.controller.promotion.model import Block, Blocked, Promotion
from paritas.controller.promotion.proof import Kept
from paritas.controller.promotion.wire import promotion_of, promotion_to, transition_of, transition_to
from paritas.controller.store import LAST, Store
from paritas.proto.v1 import promotion_pb2 as pb

__all__ = [
    "END",
    "Stored",
    "add_grant",
    "attempts",
    "changed",
    "kept",
    "listed",
    "of_candidate",
    "put",
    "revision",
    "running",
    "stored",
]

_PUT = """
INSERT OR REPLACE INTO promotions VALUES (:promotion_id, :contract, :candidate, :attempt, :is_over,
    :revision, :started, :seed, :digest, :payload, :latest, :block, :text)
"""
_NEXT = "UPDATE promotion_revision SET revision = revision + 1 RETURNING revision"
_PAGE = """
SELECT * FROM promotions NATURAL JOIN promotion_contracts
WHERE (:contract = '' OR contract = :contract) AND (:over OR NOT is_over) AND revision > :after
    AND revision < :before ORDER BY revision {order} LIMIT :limit
"""
END = LAST


@dataclass(frozen=True, slots=True)
class Stored:
    """A promotion as it is kept.

    Attributes
    ----------
    document : str
        The contract it is bound to, canonical JSON.
    latest : bytes
        Envelope of the latest verified evidence, also where it moved nothing.
    blocked : Blocked or None
        What that evidence was answered.
    revision : int
        Grows with every change of any promotion.
    """

    promotion: Promotion
    document: str
    latest: bytes = b""
    blocked: Blocked | None = None
    revision: int = 0


def put(store: Store, row: Stored, transitions: Sequence[Kept]) -> Stored:
    """Keep a promotion and what moved it, all or nothing; return it with its revision."""
    with store.transaction() as db:
        number = int(db.execute(_NEXT).fetchone()[0])
        row = replace(row, revision=number)
        promotion = row.promotion
        db.execute(
            "INSERT OR IGNORE INTO promotion_contracts VALUES (?, ?)",
            (promotion.contract_digest, row.document),
        )
        db.execute(_PUT, _values(row, _started(db, promotion.promotion_id, number)))
        for entry in transitions:
            told = transition_to(entry.transition).SerializeToString()
            key = (promotion.promotion_id, entry.transition.number)
            db.execute("INSERT INTO promotion_transitions VALUES (?, ?, ?, ?)", (*key, told, entry.envelope))
    return row


def _started(db: sqlite3.Connection, promotion_id: str, number: int) -> int:
    row = db.execute("SELECT started FROM promotions WHERE promotion_id = ?", (promotion_id,)).fetchone()
    return number if row is None else int(row["started"])


def _values(row: Stored, started: int) -> dict[str, object]:
    promotion, blocked = row.promotion, row.blocked
    return {
        "promotion_id": promotion.promotion_id,
        "contract": promotion.contract,
        "candidate": promotion.candidate_digest,
        "attempt": promotion.attempt,
        "is_over": promotion.standing.is_over,
        "revision": row.revision,
        "started": started,
        "seed": promotion.seed,
        "digest": promotion.contract_digest,
        "payload": promotion_to(promotion).SerializeToString(),
        "latest": row.latest,
        "block": "" if blocked is None else str(blocked.block),
        "text": "" if blocked is None else blocked.text,
    }


def stored(store: Store, promotion_id: str) -> Stored | None:
    """Return one promotion."""
    query = "SELECT * FROM promotions NATURAL JOIN promotion_contracts WHERE promotion_id = ?"
    with store.transaction() as db:
        row = db.execute(query, (promotion_id,)).fetchone()
        return None if row is None else _row(row)


def kept(store: Store, promotion_id: str) -> list[Kept]:
    """Return the transitions of one promotion with their envelopes, in order."""
    query = "SELECT payload, envelope FROM promotion_transitions WHERE promotion_id = ? ORDER BY number"
    with store.transaction() as db:
        rows = db.execute(query, (promotion_id,)).fetchall()
    return [
        Kept(
            transition_of(pb.PromotionTransition.FromString(row["payload"]), promotion_id=promotion_id),
            row["envelope"],
        )
        for row in rows
    ]


def listed(
    store: Store, contract: str, *, include_over: bool, before: int = END, limit: int = 100
) -> list[Stored]:
    """Return promotions, latest change first; of every contract if `contract` is empty."""
    last = min(before, END)
    return _page(store, "DESC", contract=contract, over=include_over, after=-1, before=last, limit=limit)


def changed(store: Store, contract: str, *, after: int, limit: int = 100) -> list[Stored]:
    """Return promotions that changed after a revision, in the order of their latest change."""
    first = min(after, END)
    return _page(store, "ASC", contract=contract, over=True, after=first, before=END, limit=limit)


def _page(store: Store, order: str, **values: object) -> list[Stored]:
    with store.transaction() as db:
        return [_row(row) for row in db.execute(_PAGE.format(order=order), values)]


def of_candidate(store: Store, contract: str, candidate: str) -> list[Stored]:
    """Return the promotions of a candidate under a contract, latest first; the contract by name or digest."""
    query = """SELECT * FROM promotions NATURAL JOIN promotion_contracts
        WHERE candidate_digest = ? AND ? IN (contract, contract_digest) ORDER BY started DESC"""
    with store.transaction() as db:
        return [_row(row) for row in db.execute(query, (candidate, contract))]


def running(store: Store) -> list[str]:
    """Return the ids of the promotions that time can move."""
    with store.transaction() as db:
        rows = db.execute("SELECT promotion_id FROM promotions WHERE NOT is_over ORDER BY started")
        return [row["promotion_id"] for row in rows]


def attempts(store: Store, contract: str, candidate_digest: str) -> int:
    """Return how many attempts of a candidate under contracts of this name there were."""
    query = "SELECT max(attempt) FROM promotions WHERE contract = ? AND candidate_digest = ?"
    with store.transaction() as db:
        return int(db.execute(query, (contract, candidate_digest)).fetchone()[0] or 0)


def revision(store: Store) -> int:
    """Return the latest revision."""
    with store.transaction() as db:
        return int(db.execute("SELECT revision FROM promotion_revision").fetchone()[0])


def add_grant(store: Store, promotion_id: str, run: str, *, at_most: int) -> bool:
    """Count one more increase of traffic in `run`, if no more than `at_most` were counted then."""
    key = (promotion_id, run)
    with store.transaction() as db:
        db.execute("INSERT OR IGNORE INTO promotion_grants VALUES (?, ?, 0)", key)
        told = "UPDATE promotion_grants SET granted = granted + 1 WHERE promotion_id = ? AND run = ? AND granted < ?"
        return db.execute(told, (*key, at_most)).rowcount == 1


def _row(row: sqlite3.Row) -> Stored:
    blocked = Blocked(Block(row["latest_block"]), row["latest_text"]) if row["latest_block"] else None
    promotion = promotion_of(pb.Promotion.FromString(row["payload"]))
    told = replace(promotion, seed=row["seed"])
    return Stored(told, row["document"], row["latest"], blocked, row["revision"])
