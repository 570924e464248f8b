"""The ledger: what it keeps is what the machine said, and a restart between any two verbs changes nothing."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from promotion_cases import CANDIDATE, DOCUMENT, KEYS, T0, clauses, contract, signed

from paritas.clock import ManualClock
from paritas.contracts.dump import canonical_json
from paritas.controller.compaction import Retention
from paritas.controller.promotion.ledger import Ledger
from paritas.controller.promotion.model import Block
from paritas.controller.refusals import RefusalError
from paritas.controller.store_thread import StoreThread
from paritas.records import State

TIGHTER = canonical_json(contract(0.29, "1.0.1")).encode()
LOOSER = canonical_json(contract(0.4, "1.1.0")).encode()
VERBS = st.sampled_from(
    [
        "pass",
        "pass",
        "pass",
        "undecided",
        "violated",
        "replay",
        "tick",
        "advance",
        "tighten",
        "loosen",
        "abort",
    ]
)
STREAMS = st.lists(st.tuples(st.sampled_from([60, 1801, 4000, 90_000]), VERBS), min_size=1, max_size=10)


@asynccontextmanager
async def opened(path, clock):
    async with StoreThread(path, retention=Retention()) as store:
        yield Ledger(store, clock=clock, keys=KEYS)


async def act(ledger, verb, clock, seen):
    """One verb of a random stream, made for where the promotion is."""
    promotion = (await ledger.whole("p1")).stored.promotion
    states = {
        "pass": {},
        "undecided": {"token_tv": State.UNDECIDED},
        "violated": {"token_tv": State.VIOLATED},
    }
    match verb:
        case "pass" | "undecided" | "violated":
            seen.append(signed(promotion, clock.now_ns(), clauses=clauses(**states[verb])))
            await ledger.submit("p1", seen[-1])
        case "replay" if seen:
            await ledger.submit("p1", seen[0])
        case "advance":
            await ledger.advance("p1", b"", actor="ann")
        case "tighten" | "loosen":
            await ledger.advance("p1", TIGHTER if verb == "tighten" else LOOSER, actor="ann")
        case "abort":
            await ledger.abort("p1", actor="ann", text="")
        case _:
            await ledger.tick()


async def begin(ledger):
    await ledger.start("p1", DOCUMENT.encode(), CANDIDATE, actor="ann")


async def told(ledger):
    """Everything but what a seed decides: nonces, and with them the digests of envelopes."""
    whole = await ledger.whole("p1")
    moved = [replace(k.transition, envelope=bool(k.transition.envelope)) for k in whole.kept]
    blocked = whole.stored.blocked
    promotion = replace(whole.stored.promotion, nonce="", seed="", used=len(whole.stored.promotion.used))
    return promotion, moved, blocked, whole.stored.document


async def straight(path, stream):
    clock, seen = ManualClock(T0), []
    async with opened(path, clock) as ledger:
        await begin(ledger)
        for wait_s, verb in stream:
            clock.advance(seconds=wait_s)
            await act(ledger, verb, clock, seen)
        return await told(ledger)


async def restarted(path, stream):
    clock, seen = ManualClock(T0), []
    async with opened(path, clock) as ledger:
        await begin(ledger)
    for wait_s, verb in stream:
        clock.advance(seconds=wait_s)
        async with opened(path, clock) as ledger:
            await act(ledger, verb, clock, seen)
    async with opened(path, clock) as ledger:
        return await told(ledger)


@settings(max_examples=12)
@given(STREAMS)
def test_a_restart_between_any_two_verbs_changes_nothing(stream):
    with TemporaryDirectory() as folder:
        first = asyncio.run(straight(Path(folder) / "one.sqlite", stream))
        second = asyncio.run(restarted(Path(folder) / "two.sqlite", stream))
    assert first == second


def on(tmp_path, use):
    async def run():
        clock = ManualClock(T0)
        async with opened(tmp_path / "log.sqlite", clock) as ledger:
            return await use(ledger, clock)

    return asyncio.run(run())


def test_the_same_evidence_twice_is_kept_once(tmp_path):
    async def use(ledger, clock):
        await begin(ledger)
        promotion = (await ledger.whole("p1")).stored.promotion
        envelope = signed(promotion, clock.now_ns(), clauses=clauses(token_tv=State.UNDECIDED))
        first = await ledger.submit("p1", envelope)
        second = await ledger.submit("p1", envelope)
        return first, second

    first, second = on(tmp_path, use)
    assert first.blocked.block is Block.UNDECIDED
    assert first == second  # also in revision: nothing was written


def test_evidence_of_another_promotion_is_not_kept_as_its_latest(tmp_path):
    async def use(ledger, clock):
        await begin(ledger)
        promotion = (await ledger.whole("p1")).stored.promotion
        await ledger.submit("p1", signed(replace(promotion, promotion_id="p2"), clock.now_ns()))
        return (await ledger.whole("p1")).stored

    assert on(tmp_path, use).latest == b""


def test_a_verb_on_a_promotion_that_is_not_known_is_refused(tmp_path):
    async def use(ledger, _clock):
        for verb in (
            ledger.submit("p9", b""),
            ledger.advance("p9", b"", actor=""),
            ledger.abort("p9", actor="", text=""),
        ):
            with pytest.raises(RefusalError, match=r"^promotion 'p9' is not known$"):
                await verb

    on(tmp_path, use)


def test_verbs_that_come_at_once_are_answered_one_after_the_other(tmp_path):
    async def use(ledger, clock):
        await begin(ledger)
        promotion = (await ledger.whole("p1")).stored.promotion
        envelope = signed(promotion, clock.now_ns())
        return await asyncio.gather(*(ledger.submit("p1", envelope) for _ in range(5)))

    answers = on(tmp_path, use)
    assert [len(a.transitions) for a in answers] == [1, 0, 0, 0, 0]
    assert {a.blocked.block for a in answers[1:]} == {Block.REPLAYED}


def test_two_starts_of_one_candidate_at_once_make_one_promotion(tmp_path):
    async def use(ledger, _clock):
        starts = (ledger.start("", DOCUMENT.encode(), CANDIDATE, actor="") for _ in range(3))
        return await asyncio.gather(*starts, return_exceptions=True)

    made = on(tmp_path, use)
    assert [isinstance(m, RefusalError) for m in made] == [False, True, True]
