"""Acknowledgements of a stream: cumulative, kept, and room for more."""

import asyncio
from types import SimpleNamespace

import pytest
from escalation_examples import DEADLINE_S

from paritas.clock import ManualClock
from paritas.controller import tokens
from paritas.controller.acks import Acks
from paritas.controller.compaction import Retention
from paritas.controller.refusals import RefusalError
from paritas.controller.store import Store
from paritas.controller.store_thread import StoreThread
from paritas.controller.tokens import Token


def run(tmp_path, scenario, *, max_outstanding=0):
    """Run `scenario` on acks that a real store keeps."""

    async def bounded():
        async with asyncio.timeout(DEADLINE_S):
            async with StoreThread(tmp_path / "log.db", retention=Retention()) as store:
                core = SimpleNamespace(store=store, clock=ManualClock())
                acks = Acks("router", core, max_outstanding=max_outstanding)
                await scenario(acks, store, lambda seq: tokens.encode(Token(store.epoch, seq)))

    asyncio.run(bounded())


async def kept(store):
    return await store.run(Store.acked, "router")


def test_an_ack_is_cumulative_and_never_goes_back(tmp_path):
    async def scenario(acks, store, token):
        acks.tell(5)
        acks.take(token(3))
        acks.take(token(1))
        await acks.keep()
        assert await kept(store) == 3

    run(tmp_path, scenario)


def test_acks_are_kept_as_they_come(tmp_path):
    async def scenario(acks, store, token):
        acks.tell(5)
        keeping = asyncio.create_task(acks.keep_all())
        for seq in (1, 4):
            acks.take(token(seq))
            while await kept(store) != seq:
                pass
        keeping.cancel()

    run(tmp_path, scenario)


def test_an_ack_makes_room_for_what_it_covers(tmp_path):
    async def scenario(acks, store, token):
        for seq in (1, 2):
            await acks.room()
            acks.send(seq)
        acks.take(token(1))
        await acks.room()
        acks.send(3)
        waiting = asyncio.create_task(acks.room())
        await kept(store)  # long enough for the task to have begun
        assert not waiting.done()
        acks.take(token(2))
        await waiting

    run(tmp_path, scenario, max_outstanding=2)


def test_without_a_limit_there_is_always_room(tmp_path):
    async def scenario(acks, _store, _token):
        for seq in range(1, 100):
            await acks.room()
            acks.send(seq)

    run(tmp_path, scenario)


def test_what_was_not_sent_cannot_be_acked_but_another_log_is_passed_over(tmp_path):
    async def scenario(acks, store, token):
        acks.tell(5)
        acks.take(tokens.encode(Token(store.epoch + 1, 99)))
        for raw, text in (
            (token(6), "ack.token: is ahead of what was sent"),
            (b"abc", "ack.token: not a token of this service (3 bytes)"),
        ):
            with pytest.raises(RefusalError) as caught:
                acks.take(raw)
            assert str(caught.value) == text
        await acks.keep()
        assert await kept(store) is None

    run(tmp_path, scenario)
