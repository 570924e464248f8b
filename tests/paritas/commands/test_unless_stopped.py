"""What may hang is waited for until the stop, and no longer."""

import threading

import pytest

from paritas.clock import SystemClock
from paritas.commands.unless_stopped import unless_stopped
from paritas.errors import TransientError


def test_the_answer_and_the_error_are_those_of_the_call():
    clock, stop = SystemClock(), threading.Event()
    assert unless_stopped(lambda: 5, clock=clock, stop=stop) == 5

    def refuse():
        raise TransientError("not now", hint="later")

    with pytest.raises(TransientError, match=r"^not now$") as caught:
        unless_stopped(refuse, clock=clock, stop=stop)
    assert caught.value.hint == "later"


def test_a_call_that_hangs_is_left_at_the_stop():
    asked, release, stop = threading.Event(), threading.Event(), threading.Event()

    def hang():
        asked.set()
        stop.set()
        return release.wait(timeout=60)

    assert unless_stopped(hang, clock=SystemClock(), stop=stop) is None
    assert asked.is_set()
    release.set()
