"""Signals as events: set whatever the main thread does, and the handlers before them put back."""

import signal
import subprocess
import sys

import pytest


def said(script):
    """What a script prints to its end."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


LOCKED = """
import os, signal
from paritas.commands.signals import signals
with signals() as (stop, reload):
    event = {event}
    with event._cond:  # as inside Event.wait, and inside Event.set
        os.kill(os.getpid(), {number})
        os.kill(os.getpid(), {number})
    print(event.wait(timeout=30), stop.is_set(), reload.is_set())
"""


@pytest.mark.parametrize(
    ("number", "event", "told"),
    [
        (signal.SIGTERM, "stop", "True True False\n"),
        (signal.SIGINT, "stop", "True True False\n"),
        (signal.SIGHUP, "reload", "True False True\n"),
    ],
)
def test_a_signal_inside_a_wait_for_its_event_does_not_hold_the_process(number, event, told):
    assert said(LOCKED.format(event=event, number=int(number))) == told


ELSEWHERE = """
import signal, threading
from paritas.commands.signals import stop_signals
with stop_signals() as stop:
    # Taken by another thread, it interrupts no wait of the main one; nor does one that comes just before it.
    threading.Timer(0, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)).start()
    print(stop.wait(timeout=3600))
"""


def test_a_signal_that_interrupts_no_wait_ends_it_all_the_same():
    assert said(ELSEWHERE) == "True\n"


PUT_BACK = """
import os, signal, threading
from paritas.commands.signals import stop_signals
came = []
signal.signal(signal.SIGTERM, lambda *_: came.append("ours"))
with stop_signals() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    print(stop.wait(timeout=30), came)
os.kill(os.getpid(), signal.SIGTERM)
print(came, [thread.name for thread in threading.enumerate()], signal.set_wakeup_fd(-1))
"""


def test_the_handlers_before_are_put_back_and_the_thread_ends():
    assert said(PUT_BACK) == "True []\n['ours'] ['MainThread'] -1\n"


IN_A_THREAD = """
import signal, threading
from pathlib import Path
from paritas.commands.signals import signals
told = []
def enter():
    try:
        with signals():
            pass
    except ValueError as error:
        told.append(str(error).split(" only")[0])
before = len(list(Path("/proc/self/fd").iterdir()))
thread = threading.Thread(target=enter)
thread.start()
thread.join()
left = [thread.name for thread in threading.enumerate()]
print(told, left, signal.set_wakeup_fd(-1), len(list(Path("/proc/self/fd").iterdir())) - before)
"""


def test_outside_of_the_main_thread_it_is_an_error_that_leaves_nothing_behind():
    assert said(IN_A_THREAD) == "['set_wakeup_fd'] ['MainThread'] -1 0\n"


INTERRUPTED = """
import os, signal, threading
from paritas.commands.signals import stop_signals
def interrupt(number, frame):
    if number == signal.SIGTERM:  # the last that is put in place
        os.kill(os.getpid(), signal.SIGTERM)
    return original(number, frame)
original, signal.signal = signal.signal, interrupt
before = signal.getsignal(signal.SIGINT)  # ignored where a shell started all this in the background
def ends(*_):
    raise KeyboardInterrupt
original(signal.SIGTERM, ends)
try:
    with stop_signals():
        print("inside")
except KeyboardInterrupt:
    pass
left = [thread.name for thread in threading.enumerate()]
print(left, signal.set_wakeup_fd(-1), signal.getsignal(signal.SIGINT) is before)
"""


def test_an_interrupt_while_it_begins_leaves_nothing_behind():
    assert said(INTERRUPTED) == "['MainThread'] -1 True\n"
