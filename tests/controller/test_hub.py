"""Events to streams: order, room, and a slow subscriber that harms nobody."""

import asyncio

import pytest
from escalation_examples import DEADLINE_S

from paritas.controller.hub import End, EndReason, Hub, Outbox
from paritas.controller.model import EventKind, LoggedEvent, Subject
from paritas.controller.refusals import RefusalError, Refused


def event(seq, clause="a"):
    return LoggedEvent(seq, EventKind.ESCALATION, f"e{seq}", 0, b"", Subject(clause=clause))


def run(coroutine):
    async def bounded():
        async with asyncio.timeout(DEADLINE_S):
            return await coroutine

    return asyncio.run(bounded())


def everything(_event):
    return True


async def drained(outbox, count):
    taken = []
    for _ in range(count):
        taken.append((await outbox.first()).seq)
        outbox.drop_first()
    return taken


def test_events_wait_in_order_and_count_until_dropped():
    async def scenario():
        outbox = Outbox(capacity=3, wants=everything)
        outbox.go_live(0)
        for seq in (1, 2, 3):
            outbox.offer(event(seq))
        assert (await outbox.first()).seq == 1
        assert (len(outbox), outbox.caught_up) == (3, False)
        assert await drained(outbox, 3) == [1, 2, 3]
        assert (outbox.caught_up, outbox.offered) == (True, 3)

    run(scenario())


def test_what_is_not_wanted_takes_no_room_but_counts_as_offered():
    async def scenario():
        outbox = Outbox(capacity=1, wants=lambda e: e.subject.clause == "a")
        outbox.go_live(0)
        for seq in range(1, 100):
            outbox.offer(event(seq, clause="b"))
        assert (len(outbox), outbox.offered, outbox.caught_up) == (0, 99, True)

    run(scenario())


def test_one_event_too_many_ends_the_stream():
    async def scenario():
        outbox = Outbox(capacity=2, wants=everything)
        outbox.go_live(0)
        for seq in (1, 2, 3, 4):
            outbox.offer(event(seq))
        assert await outbox.ended() == End(EndReason.OVERFLOW, "too slow: 2 events were waiting")
        assert (len(outbox), outbox.offered, outbox.caught_up) == (0, 2, False)
        outbox.end(End(EndReason.DRAINING, "later"))
        assert (await outbox.ended()).reason is EndReason.OVERFLOW

    run(scenario())


def test_a_slow_subscriber_harms_nobody():
    async def scenario():
        hub = Hub(head=0, max_subscribers=9)
        slow, quick = (Outbox(capacity=2, wants=everything) for _ in range(2))
        for name, outbox in (("slow", slow), ("quick", quick)):
            hub.join(name, outbox)
            hub.attach(outbox)
        taken = []
        for seq in range(1, 10):
            hub.publish([event(seq)])
            taken += await drained(quick, 1)
        assert taken == list(range(1, 10))
        assert (await slow.ended()).reason is EndReason.OVERFLOW

    run(scenario())


def test_a_stream_gets_what_comes_after_the_head_it_was_attached_at():
    async def scenario():
        hub = Hub(head=7, max_subscribers=9)
        outbox = Outbox(capacity=9, wants=everything)
        hub.join("a", outbox)
        hub.publish([event(8)])
        hub.attach(outbox)
        assert outbox.offered == 8
        hub.publish([event(9), event(10)])
        assert await drained(outbox, 2) == [9, 10]

    run(scenario())


def test_the_newer_stream_of_a_name_replaces_the_older():
    async def scenario():
        hub = Hub(head=0, max_subscribers=1)
        old, new = (Outbox(capacity=2, wants=everything) for _ in range(2))
        hub.join("router", old)
        hub.join("router", new)
        assert await old.ended() == End(
            EndReason.REPLACED, "another stream of subscriber 'router' has started"
        )
        hub.leave("router", old)
        assert len(hub) == 1
        hub.leave("router", new)
        assert len(hub) == 0

    run(scenario())


def test_there_are_only_so_many_subscribers():
    async def scenario():
        hub = Hub(head=0, max_subscribers=1)
        hub.join("a", Outbox(capacity=2, wants=everything))
        with pytest.raises(RefusalError) as caught:
            hub.join("b", Outbox(capacity=2, wants=everything))
        assert (str(caught.value), caught.value.reason) == (
            "start: 1 subscribers are connected, no more are taken",
            Refused.EXHAUSTED,
        )

    run(scenario())


def test_draining_ends_streams_that_are_there_and_those_that_still_come():
    async def scenario():
        hub = Hub(head=0, max_subscribers=9)
        first, late = (Outbox(capacity=2, wants=everything) for _ in range(2))
        hub.join("first", first)
        end = End(EndReason.DRAINING, "the server is closing")

        async def leave():
            assert await first.ended() == end
            hub.join("late", late)
            assert await late.ended() == end
            hub.leave("first", first)
            hub.leave("late", late)

        await asyncio.gather(hub.drain(end, timeout_s=DEADLINE_S), leave())
        assert hub.counts["drain_timeout"] == 0

    run(scenario())


def test_draining_does_not_wait_for_ever():
    async def scenario():
        hub = Hub(head=0, max_subscribers=9)
        hub.join("stuck", Outbox(capacity=2, wants=everything))
        await hub.drain(End(EndReason.DRAINING, ""), timeout_s=0.01)
        assert hub.counts["drain_timeout"] == 1

    run(scenario())
