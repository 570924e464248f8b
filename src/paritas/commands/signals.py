"""Signals that tell a long-running command to end or to look again, as events."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

__all__ = ["signals", "stop_signals"]

Event = threading.Event
Handler = Callable[[int, FrameType | None], object] | int | None
END = b"\0"  # no signal has this number


@contextmanager
def stop_signals() -> Iterator[Event]:
    """An event that SIGINT and SIGTERM set; the handlers are put back afterwards."""
    stop = Event()
    with _setting({signal.SIGINT: stop, signal.SIGTERM: stop}):
        yield stop


@contextmanager
def signals() -> Iterator[tuple[Event, Event]]:
    """Events that SIGINT and SIGTERM, and that SIGHUP set; the handlers are put back afterwards."""
    stop, reload = Event(), Event()
    with _setting({signal.SIGINT: stop, signal.SIGTERM: stop, signal.SIGHUP: reload}):
        yield stop, reload


@contextmanager
def _setting(events: Mapping[int, Event]) -> Iterator[None]:
    """Let a thread of its own set the events, from the bytes that `signal.set_wakeup_fd` sends.

    A handler cannot: Python runs it in the main thread between two instructions.  If that thread is about
    to block in `Event.wait`, the handler runs only when the wait is over; if it holds the lock of the same
    event, `Event.set` waits for it for ever.  Either way a process that was told to end does not.
    """
    heard, told = socket.socketpair()
    with heard, told:
        told.setblocking(False)
        relay = threading.Thread(target=_relay, args=(heard, events), name="signals", daemon=True)
        # First, as it raises where it must not be called: in any thread but the main one.
        woken_before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        before: dict[int, Handler] = {}
        try:
            for number in events:
                before[number] = signal.signal(number, _nothing)
            relay.start()
            yield
        finally:
            signal.set_wakeup_fd(woken_before)
            if relay.is_alive():
                told.setblocking(True)
                told.send(END)
                relay.join()
            for number, handler in before.items():  # last: the one before may raise KeyboardInterrupt
                signal.signal(number, handler)


def _nothing(number: int, frame: object) -> None:
    """The handler: without one the signal would end the process; the byte was sent before it runs."""


def _relay(heard: socket.socket, events: Mapping[int, Event]) -> None:
    """Set the event of each number that comes, until the end is told."""
    while (came := heard.recv(1)) != END:
        if (event := events.get(came[0])) is not None:  # others may have handlers, too
            event.set()
