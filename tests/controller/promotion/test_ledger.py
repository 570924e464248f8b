"""The ledger: what it keeps is what the machine said, and a restart between any two verbs changes nothing."""

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from escalation_examples import DEADLINE_S
from hypothesis import given, settings
from hypothesis import strategies as st
from promotion_cases import CANDIDATE, DOCUMENT, KEYS, T0, clauses, contract, signed

from paritas.clock import ManualClock
from paritas.contracts.dump import canonical_json
from paritas.contracts.model import Stage
from paritas.controller.compaction import Retention
from paritas.controller.promotion import store as rows
from paritas.controller.promotion.answer import answer
from paritas.controller.promotion.ledger import Ledger
from paritas.controller.promotion.model import Block, Blocked, Cause
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


def test_an_older_verdict_does_not_take_the_place_of_a_later_one(tmp_path):
    """At full nothing moves: a verdict that has been overtaken must not be what is answered again."""

    async def use(ledger, clock):
        await begin(ledger)
        for _ in range(4):
            clock.advance(seconds=1801)
            await ledger.submit("p1", signed((await ledger.whole("p1")).stored.promotion, clock.now_ns()))
        promotion = (await ledger.whole("p1")).stored.promotion
        good = signed(promotion, clock.now_ns())
        clock.advance(seconds=60)
        lacking = signed(promotion, clock.now_ns(), missing=("agent pod-7",))
        answers = [await ledger.submit("p1", envelope) for envelope in (good, lacking, good)]
        told = answer(await ledger.whole("p1"), Stage.FULL, now_ns=clock.now_ns(), keys=KEYS)
        bad = signed(promotion, clock.now_ns() - 1, clauses=clauses(token_tv=State.VIOLATED))
        return answers, lacking, told, await ledger.submit("p1", bad)

    (first, second, third), lacking, told, demoted = on(tmp_path, use)
    assert (first.blocked, second.blocked.block) == (None, Block.MISSING_DATA)
    assert third.blocked == Blocked(Block.REPLAYED, "a later verdict of this gate is kept already")
    assert (third.stored.latest, str(told.verdict)) == (lacking, "INSUFFICIENT")
    assert [t.cause for t in demoted.transitions] == [Cause.DECLARED_STATE], (
        "a violation counts whenever it comes"
    )


class SlowDisk:
    """A real store on which promotions are written no sooner than `may` is set."""

    def __init__(self, store):
        self.store, self.begun, self.may = store, asyncio.Event(), threading.Event()

    async def run(self, verb, *args, **kwargs):
        if verb is not rows.put:
            return await self.store.run(verb, *args, **kwargs)
        begun = partial(asyncio.get_running_loop().call_soon_threadsafe, self.begun.set)

        def slowly(store):
            begun()
            assert self.may.wait(DEADLINE_S)
            return rows.put(store, *args, **kwargs)

        return await self.store.run(slowly)


def test_who_watches_is_told_also_when_the_caller_gives_up_meanwhile(tmp_path):
    """A call whose client has left is cancelled; what it has begun to write is in the log all the same."""

    async def use(ledger, clock):
        await begin(ledger)
        whole = await ledger.whole("p1")
        ledger._store = disk = SlowDisk(ledger._store)
        watching = asyncio.create_task(anext(ledger.changes("", after=whole.stored.revision)))
        while not ledger._changed._waiters:  # noqa: ASYNC110  # it tells no one
            await asyncio.sleep(0)
        calling = asyncio.create_task(ledger.submit("p1", signed(whole.stored.promotion, clock.now_ns())))
        await disk.begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        disk.may.set()
        async with asyncio.timeout(DEADLINE_S):
            return await watching

    assert str(on(tmp_path, use).promotion.gate) == "shadow"


def test_a_revision_beyond_every_number_is_a_watch_that_waits(tmp_path):
    async def use(ledger, _clock):
        await begin(ledger)
        return await ledger._store.run(rows.changed, "", after=2**64 - 1)

    assert on(tmp_path, use) == []
