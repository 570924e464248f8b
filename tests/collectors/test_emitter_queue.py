"""The account of the queue under any order of events."""

from emitter_scenes import trace
from hypothesis import given
from hypothesis import strategies as st

from paritas.collectors.emitter_queue import EmitterDrop, TraceQueue, size_of

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 40)),
        st.tuples(st.just("take"), st.integers(0, 4000)),
        st.tuples(st.just("settle"), st.integers(0, 3)),
        st.tuples(st.just("refuse"), st.just(0)),
        st.tuples(st.just("abandon"), st.just(0)),
        st.tuples(st.just("close"), st.just(0)),
        st.tuples(st.just("drained"), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 8), st.integers(600, 6000))
def test_the_account_balances_after_every_step(steps, limit_traces, limit_bytes):
    queue = TraceQueue(limit_traces=limit_traces, limit_bytes=limit_bytes, epoch_ns=1)
    under_way, waiters, offered = [], [], 0
    for what, number in steps:
        match what:
            case "put":
                offered += 1
                one = trace(offered, tokens=number)
                queue.put(one, size_of(one))
            case "refuse":
                offered += 1
                queue.refuse(EmitterDrop.INVALID)
            case "take":
                under_way.append(queue.take(number))
            case "settle" if under_way:
                batch = under_way.pop(0)
                queue.settle(batch, {EmitterDrop.REFUSED: min(number, len(batch.traces))})
                queue.settle(batch, {})  # a second word about it changes nothing
            case "abandon":
                queue.abandon()
            case "close":
                queue.close()
            case "drained":
                waiters.append(queue.drained())
        told = queue.read()
        assert told.accepted == offered == told.delivered + sum(told.dropped.values()) + told.queued
        assert 0 <= told.queued <= limit_traces
        assert 0 <= told.queued_bytes <= limit_bytes
    for batch in under_way:
        queue.settle(batch, {})
    while (batch := queue.take(1 << 30)).traces:
        queue.settle(batch, {})
    told = queue.read()
    assert (told.queued, told.queued_bytes) == (0, 0)
    assert all(waiter.is_set() for waiter in waiters)
    assert not queue.filled.is_set()


def test_drained_waits_for_what_was_there_only():
    queue = TraceQueue(limit_traces=9, limit_bytes=1 << 20, epoch_ns=1)
    queue.put(trace(1), 600)
    drained = queue.drained()
    queue.put(trace(2), 600)
    queue.settle(queue.take(1), {})
    assert drained.is_set()
    assert queue.filled.is_set()
