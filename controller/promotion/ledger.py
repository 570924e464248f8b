"""The promotions of one controller: one change at a time, kept before it is told.

Verbs load a promotion, let the pure machine answer, keep what it did, and wake who watches.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from paritas.clock import Clock
from paritas.contracts.dump import canonical_json
from paritas.contracts.model import Contract
from paritas.controller.promotion import store as rows
from paritas.controller.promotion.events import (
    Aborted,
    Event,
    Judged,
    Outcome,
    Rebound,
    Resumed,
    Start,
    Ticked,
)
from paritas.controller.promotion.evidence import Keys, read_evidence
from paritas.controller.promotion.holds import holding
from paritas.controller.promotion.machine import begin, step
from paritas.controller.promotion.model import Block, Blocked, Candidate, Cause, Transition
from paritas.controller.promotion.proof import Kept, unproven
from paritas.controller.promotion.requests import check_start, check_text, contract_of, same_start
from paritas.controller.promotion.statement import candidate_digest
from paritas.controller.promotion.store import Stored
from paritas.controller.promotion.whole import Whole
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.store_thread import StoreThread

__all__ = ["Change", "Ledger"]

PAGE = 100
_OF_ANOTHER = frozenset(
    {
        Block.REPLAYED,
        Block.ANOTHER_PROMOTION,
        Block.ANOTHER_CONTRACT,
        Block.CHANGED_CONTRACT,
        Block.ANOTHER_CANDIDATE,
        Block.ANOTHER_STAGE,
        Block.ANOTHER_ATTEMPT,
        Block.EXPIRED,
        Block.NOT_YET_VALID,
        Block.OVER,
    }
)
KEY_HINT = "start the controller with --promotion-keys FILE, the public keys it is to trust"


@dataclass(frozen=True, slots=True)
class Change:
    """What a verb did."""

    stored: Stored
    transitions: tuple[Transition, ...] = ()
    blocked: Blocked | None = None


class Ledger:
    """Every verb on promotions.

    Parameters
    ----------
    store : StoreThread
        Where they are kept.
    clock : Clock
        Deadlines, bakes, expiry.
    keys : mapping of str to Ed25519PublicKey
        Who is believed; empty: nobody, so nothing ever passes.
    """

    def __init__(self, store: StoreThread, *, clock: Clock, keys: Keys) -> None:
        self._store = store
        self.clock = clock
        self.keys = keys
        self._order = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._keeping: set[asyncio.Task[Stored]] = set()
        self._closed = False

    async def start(self, promotion_id: str, document: bytes, candidate: Candidate, *, actor: str) -> Stored:
        """Begin a promotion; the same one again is answered with what it is now.

        Raises
        ------
        RefusalError
            INVALID for what cannot be promoted; PRECONDITION when the id is taken, or the candidate
            is being promoted already.
        """
        contract = contract_of(document)
        check_start(promotion_id, contract, candidate)
        check_text("actor", actor)
        async with self._order:
            found = await self._store.run(rows.stored, promotion_id) if promotion_id else None
            if found is not None:
                return same_start(found, contract, candidate)
            await self._refuse_twin(contract, candidate)
            return await self._begin(promotion_id, contract, candidate, actor)

    async def _begin(self, promotion_id: str, contract: Contract, candidate: Candidate, actor: str) -> Stored:
        tried = await self._store.run(rows.attempts, contract.name, candidate_digest(candidate))
        start = Start(
            promotion_id or f"{contract.name}-{secrets.token_hex(4)}",
            candidate,
            secrets.token_hex(16),
            tried + 1,
            actor,
        )
        outcome = begin(start, now_ns=self.clock.now_ns(), contract=contract)
        new = Stored(outcome.promotion, canonical_json(contract))
        return await self._keep(new, [Kept(t) for t in outcome.transitions])

    async def _refuse_twin(self, contract: Contract, candidate: Candidate) -> None:
        """Two promotions of one candidate at once would spend alpha twice."""
        wanted = candidate_digest(candidate)
        for row in await self._store.run(rows.of_candidate, contract.name, wanted):
            if not row.promotion.standing.is_over:
                message = f"candidate {wanted[:8]} is being promoted already: {row.promotion.promotion_id}"
                raise RefusalError(message, reason=Refused.PRECONDITION, hint="abort that one first")

    async def whole(self, promotion_id: str) -> Whole:
        """Return one promotion with its transitions and evidence, as of now.

        Raises
        ------
        RefusalError
            NOT_FOUND.
        """
        await self._apply(promotion_id, Ticked(), b"")
        return await self._whole(promotion_id)

    async def _whole(self, promotion_id: str) -> Whole:
        stored = await self._stored(promotion_id)
        kept = await self._store.run(rows.kept, promotion_id)
        return Whole(stored, contract_of(stored.document.encode()), tuple(kept))

    async def _stored(self, promotion_id: str) -> Stored:
        found = await self._store.run(rows.stored, promotion_id)
        if found is None:
            raise RefusalError(f"promotion {promotion_id!r} is not known", reason=Refused.NOT_FOUND)
        return found

    async def of_candidate(self, contract: str, candidate: str) -> Whole | None:
        """Return the latest promotion of a candidate under a contract, both by name or digest; None without."""
        found = await self._store.run(rows.of_candidate, contract, candidate)
        return await self.whole(found[0].promotion.promotion_id) if found else None

    async def page(self, contract: str, *, include_over: bool, before: int, limit: int) -> list[Stored]:
        """Return one page, latest change first."""
        return await self._store.run(
            rows.listed, contract, include_over=include_over, before=before or rows.END, limit=limit
        )

    async def submit(self, promotion_id: str, envelope: bytes) -> Change:
        """Take evidence: verify, judge, keep, move."""
        found = read_evidence(envelope, self.keys)
        if isinstance(found, Blocked):
            stored = await self._stored(promotion_id)
            text = f"{found.text}; {KEY_HINT}" if not self.keys else found.text
            return Change(stored, (), Blocked(found.block, text))
        return await self._apply(promotion_id, Judged(found.statement, found.digest), envelope)

    async def advance(self, promotion_id: str, document: bytes, *, actor: str) -> Change:
        """Go on after a pause, or under another version of the contract."""
        check_text("actor", actor)
        event = Rebound(contract_of(document), actor) if document else Resumed(actor)
        return await self._apply(promotion_id, event, b"")

    async def abort(self, promotion_id: str, *, actor: str, text: str) -> Change:
        """Stop for good."""
        check_text("actor", actor)
        check_text("text", text)
        return await self._apply(promotion_id, Aborted(actor, text), b"")

    async def tick(self) -> None:
        """Let the time move what it moves."""
        for promotion_id in await self._store.run(rows.running):
            await self._apply(promotion_id, Ticked(), b"")

    async def grant(self, promotion_id: str, run: str, *, at_most: int) -> bool:
        """Tell whether a run of a rollout controller may increase its traffic once more, and count it."""
        return await self._store.run(rows.add_grant, promotion_id, run, at_most=at_most)

    async def _apply(self, promotion_id: str, event: Event, envelope: bytes) -> Change:
        async with self._order:
            whole = await self._whole(promotion_id)
            before = whole.stored.promotion
            outcome = step(before, event, now_ns=self.clock.now_ns(), contract=whole.contract)
            blocked = self._unproven(whole, outcome) or self._overtaken(whole.stored, event, outcome)
            if (blocked := blocked or await self._held(whole, outcome)) is not None:
                return Change(whole.stored, (), blocked)
            latest = _latest(whole.stored, event, outcome, envelope)
            if outcome.promotion == before and latest == (whole.stored.latest, whole.stored.blocked):
                return Change(whole.stored, (), outcome.blocked)
            document = _document(whole.stored, event, outcome)
            moved = [Kept(t, envelope if t.envelope else b"") for t in outcome.transitions]
            kept = await self._keep(Stored(outcome.promotion, document, *latest), moved)
            return Change(kept, outcome.transitions, outcome.blocked)

    def _unproven(self, whole: Whole, outcome: Outcome) -> Blocked | None:
        """A gate is passed only over gates whose kept evidence still verifies."""
        if not any(t.cause is Cause.GATE_PASSED for t in outcome.transitions):
            return None
        return unproven(whole.stored.promotion, whole.contract, whole.kept, self.keys)

    def _overtaken(self, stored: Stored, event: Event, outcome: Outcome) -> Blocked | None:
        """Of the verdicts at one gate the latest counts: an older one that moves nothing does not take its place."""
        if not isinstance(event, Judged) or outcome.transitions or not stored.latest:
            return None
        latest, told = read_evidence(stored.latest, self.keys), event.statement
        if isinstance(latest, Blocked) or latest.statement.nonce != told.nonce:
            return None
        if latest.statement.issued_ns <= told.issued_ns:
            return None
        return outcome.blocked or Blocked(Block.REPLAYED, "a later verdict of this gate is kept already")

    async def _held(self, whole: Whole, outcome: Outcome) -> Blocked | None:
        """No gate is passed while an open incident asks to block promotions; the evidence is not used up."""
        if not any(t.cause is Cause.GATE_PASSED for t in outcome.transitions):
            return None
        bound = whole.contract
        return await self._store.run(holding, bound.name, bound.policy, now_ns=self.clock.now_ns())

    async def _keep(self, stored: Stored, moved: Sequence[Kept]) -> Stored:
        """Keep, then tell; a caller that gives up does not stop it half-way."""
        task = asyncio.ensure_future(self._kept(stored, moved))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)
        return await asyncio.shield(task)

    async def _kept(self, stored: Stored, moved: Sequence[Kept]) -> Stored:
        kept = await self._store.run(rows.put, stored, moved)
        async with self._changed:
            self._changed.notify_all()
        return kept

    async def changes(self, contract: str, *, after: int) -> AsyncIterator[Stored]:
        """Yield promotions that changed after a revision, then each change, until the ledger closes."""
        while not self._closed:
            seen = await self._store.run(rows.revision)
            page = await self._store.run(rows.changed, contract, after=after, limit=PAGE)
            for row in page:
                yield row
                after = row.revision
            if not page:
                await self._wait(seen)

    async def _wait(self, seen: int) -> None:
        """Wait for a change after revision `seen`."""
        async with self._changed:
            if not self._closed and await self._store.run(rows.revision) == seen:
                await self._changed.wait()

    async def close(self) -> None:
        """End every watch; twice is fine."""
        self._closed = True
        async with self._changed:
            self._changed.notify_all()


def _latest(stored: Stored, event: Event, outcome: Outcome, envelope: bytes) -> tuple[bytes, Blocked | None]:
    """The latest evidence that is about this gate, and what it was answered."""
    is_its = outcome.blocked is None or outcome.blocked.block not in _OF_ANOTHER
    if isinstance(event, Judged) and is_its:
        return envelope, outcome.blocked
    return stored.latest, stored.blocked


def _document(stored: Stored, event: Event, outcome: Outcome) -> str:
    """The contract that the promotion is bound to now."""
    if isinstance(event, Rebound) and event.contract.digest == outcome.promotion.contract_digest:
        return canonical_json(event.contract)
    return stored.document
