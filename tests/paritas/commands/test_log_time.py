"""The time of a silent log under clocks that jump."""

import pytest

from paritas.clock import ManualClock
from paritas.commands.log_time import LogTime

DAY_NS = 86_400 * 10**9


class JumpingClock(ManualClock):
    """A clock by hand whose wall reading can be off."""

    off_ns = 0

    def now_ns(self):
        return super().now_ns() + self.off_ns


@pytest.mark.parametrize(("off_ns", "passed_ns"), [(0, 10**9), (DAY_NS, 10**9), (-DAY_NS, 10**9 - DAY_NS)])
def test_a_jump_ahead_lets_no_time_pass(off_ns, passed_ns):
    clock = JumpingClock()
    time, start_ns = LogTime(clock), clock.now_ns()
    clock.advance(seconds=1)
    clock.off_ns = off_ns
    assert time.now_ns() == start_ns + passed_ns
    clock.off_ns = 0
    assert time.now_ns() == start_ns + 10**9


def test_a_record_puts_right_what_began_too_early():
    clock = JumpingClock()
    clock.off_ns = -DAY_NS
    time = LogTime(clock)
    clock.off_ns = 0
    assert time.now_ns() == clock.now_ns() - DAY_NS
    time.see(clock.now_ns() - 5)
    clock.advance(seconds=1)
    assert time.now_ns() == clock.now_ns() - 5
