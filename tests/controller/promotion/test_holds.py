"""An open incident that asks for `block_promotion` holds every gate of its policy, and uses no evidence up."""

import asyncio

import pytest
from escalation_examples import drafts, escalation
from promotion_cases import CANDIDATE, DOCUMENT, KEYS, T0, signed

from paritas.clock import ManualClock
from paritas.contracts.model import Operator, Requirement
from paritas.controller.compaction import Retention
from paritas.controller.model import Draft, EventKind, Subject
from paritas.controller.promotion.ledger import Ledger
from paritas.controller.promotion.model import Block
from paritas.controller.silences import Silence
from paritas.controller.store import Store
from paritas.controller.store_thread import StoreThread
from paritas.controller.wire import silence_to
from paritas.records import Action, Phase

BLOCK = (Action("block_promotion"),)
MATCHER = Requirement("contract", Operator.IN, ("rollout",))


def incident(number=1, *, actions=BLOCK, **changes):
    return escalation(number, **{"contract": "rollout", "policy": "", "actions": actions, **changes})


def silence(*, ends_ns):
    told = Silence("s", (MATCHER,), 0, ends_ns, "ana", "known")
    payload = silence_to(told).SerializeToString()
    return [Draft(EventKind.SILENCE, "s/1", payload, Subject(), silence_id="s", ends_ns=ends_ns)]


def passed(tmp_path, *written):
    """Send good evidence after `written` is in the log; return the block, and the gate after a second try."""

    async def scene():
        clock = ManualClock(T0)
        async with StoreThread(tmp_path / "log.db", retention=Retention()) as store:
            for one in written:
                await store.run(Store.append, one, now_ns=T0)
            ledger = Ledger(store, clock=clock, keys=KEYS)
            await ledger.start("p1", DOCUMENT.encode(), CANDIDATE, actor="ann")
            promotion = (await ledger.whole("p1")).stored.promotion
            envelope = signed(promotion, clock.now_ns())
            first = (await ledger.submit("p1", envelope)).blocked
            await store.run(Store.append, drafts(incident(9, after=Phase.RESOLVED, actions=())), now_ns=T0)
            await ledger.submit("p1", envelope)
            return first, (await ledger.whole("p1")).stored.promotion.gate.stage.value

    return asyncio.run(scene())


def test_an_incident_that_fires_holds_and_its_end_lets_the_same_evidence_pass(tmp_path):
    blocked, stage = passed(tmp_path, drafts(incident()))
    assert (blocked.block, blocked.text) == (
        Block.HELD,
        "1 open incidents ask to block promotions: token-tv in all",
    )
    assert stage == "shadow"


def test_recovering_is_not_recovered(tmp_path):
    recovering = incident(2, after=Phase.RECOVERING, actions=())
    assert passed(tmp_path, drafts(incident(), recovering))[0].block is Block.HELD


@pytest.mark.parametrize(
    "written",
    [
        (),
        (drafts(incident(actions=(Action("notify"),))),),
        (drafts(incident(contract="another", policy="another")),),
        (drafts(incident(), incident(2, after=Phase.RESOLVED, actions=())),),
        (drafts(incident()), silence(ends_ns=T0 + 10**12)),
        (drafts(incident(actions=()), incident(2, after=Phase.RECOVERING, actions=())),),
    ],
    ids=["nothing", "asks else", "of another", "over", "silenced", "recovers from nothing asked"],
)
def test_what_does_not_ask_does_not_hold(tmp_path, written):
    assert passed(tmp_path, *written) == (None, "shadow")


def test_a_silence_that_ended_holds_no_more_back(tmp_path):
    assert passed(tmp_path, drafts(incident()), silence(ends_ns=T0 - 1))[0].block is Block.HELD
