"""The sync thread syncs when woken, counts failures, and ends when told."""

import threading

from paritas.agent.eventlog import GroupSync
from paritas.clock import SystemClock
from paritas.errors import TransientError

LONG_S = 3600.0
PATIENCE_S = 60.0  # a hang is a failure; nothing here waits for it in earnest


class Flushes:
    """Counts its calls; the ones named in `fail` raise."""

    def __init__(self, fail=()):
        self.count, self._fail, self._called = 0, fail, threading.Condition()

    def __call__(self):
        with self._called:
            self.count += 1
            self._called.notify_all()
        if self.count in self._fail:
            raise TransientError("no")

    def wait_for(self, count):
        with self._called:
            return self._called.wait_for(lambda: self.count >= count, PATIENCE_S)


def ours():
    return [thread for thread in threading.enumerate() if thread.name == "paritas-sync"]


def test_waking_syncs_long_before_the_interval():
    flushes = Flushes()
    with GroupSync(flushes, interval_s=LONG_S, clock=SystemClock()) as sync:
        for count in (1, 2, 3):
            sync.wake()
            assert flushes.wait_for(count)
    assert ours() == []


def test_the_interval_syncs_without_waking():
    flushes = Flushes()
    with GroupSync(flushes, interval_s=0.001, clock=SystemClock()):
        assert flushes.wait_for(3)


def test_a_failed_sync_is_counted_and_does_not_end_the_thread():
    flushes = Flushes(fail={1, 2})
    with GroupSync(flushes, interval_s=0.001, clock=SystemClock()) as sync:
        assert flushes.wait_for(4)
    assert sync.failures == 2


def test_closing_syncs_once_more_and_twice_is_fine():
    flushes = Flushes()
    sync = GroupSync(flushes, interval_s=LONG_S, clock=SystemClock())
    sync.close()
    with sync:
        pass
    sync.close()
    assert ours() == []
