"""Wait for what may hang, but not longer than this process is to live."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from paritas.clock import Clock

__all__ = ["unless_stopped"]

LOOK_S = 0.05
Answer = TypeVar("Answer")


def unless_stopped(ask: Callable[[], Answer], *, clock: Clock, stop: threading.Event) -> Answer | None:
    """Return or raise what `ask` does; None once `stop` is set, whatever `ask` still waits for.

    Nothing ends a call of the Kafka library from outside, and a broker that takes connections without answering
    holds it for its whole timeout.  So `ask` runs on a daemon thread, which is left behind then: it must only
    read, and what it opens ends with the process.

    Examples
    --------
    >>> from paritas.clock import SystemClock
    >>> unless_stopped(lambda: "answer", clock=SystemClock(), stop=threading.Event())
    'answer'
    """
    answer: Future[Answer] = Future()
    over = threading.Event()
    answer.add_done_callback(lambda _: over.set())
    threading.Thread(target=_ask, args=(ask, answer), name="paritas-asks", daemon=True).start()
    while not clock.wait(over, timeout_s=LOOK_S):
        if stop.is_set():
            return None
    return answer.result()


def _ask(ask: Callable[[], Answer], answer: "Future[Answer]") -> None:
    try:
        answer.set_result(ask())
    except BaseException as error:  # noqa: BLE001  # handed on whole to whoever waits
        answer.set_exception(error)
