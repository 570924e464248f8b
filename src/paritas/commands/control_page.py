"""The page of a controller: it asks the server how it does, every few seconds, and tells what it heard last."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from paritas.agent.health import Health
from paritas.agent.health_page import health_page
from paritas.clock import Clock
from paritas.commands.control_health import ControlReading, FeedReading, control_families, judge
from paritas.commands.exposition import exposition
from paritas.commands.own_thread import OwnThread
from paritas.errors import ParitasError

if TYPE_CHECKING:
    from paritas.commands.escalation_feed import EscalationFeed
    from paritas.controller.server import EscalationServer
    from paritas.controller.vitals import Vitals

__all__ = ["ControlWatch", "serving_page"]

log = logging.getLogger(__name__)
NS = 1_000_000_000
PERIOD_S = 2.0


class ControlWatch(OwnThread):
    """Asks a server for its vitals on a thread of its own; a server that hangs costs an answer, not the page.

    Attributes
    ----------
    is_draining : bool
        Set it when the process was told to end.
    feed : EscalationFeed or None
    """

    def __init__(self, *, clock: Clock) -> None:
        super().__init__(name="paritas-control-watch")
        self._clock = clock
        self._started_s = clock.now_ns() / NS
        self._answered_ns = clock.monotonic_ns()
        self._server: EscalationServer | None = None
        self._latest: Vitals | None = None
        self._fails, self._said = False, ""
        self.is_draining = False
        self.feed: EscalationFeed | None = None

    def follow(self, server: "EscalationServer") -> None:
        """Ask this server from now on; the first answer is there on return, if it gives one in time."""
        self._server, self._answered_ns = server, self._clock.monotonic_ns()
        self.look()

    def _run(self) -> None:
        while not self._clock.wait(self._stop, timeout_s=PERIOD_S):
            if self._server is not None and not self.is_draining:
                self.look()

    def look(self) -> None:
        """Ask once."""
        assert self._server is not None, "followed before"
        try:
            found = self._server.vitals(timeout_s=PERIOD_S)
        except (ParitasError, OSError) as error:  # log or disk cannot be read just now: the answer is overdue
            self._waits(str(error))
            return
        if found is not None:
            self._said = ""
            before = self._latest.failed_rounds if self._latest else 0
            self._fails = found.failed_rounds > before
            self._latest, self._answered_ns = found, self._clock.monotonic_ns()

    def _waits(self, detail: str) -> None:
        """Say why there is no answer, once until there is one."""
        if detail != self._said and not self.is_draining:
            self._said = detail
            log.warning("The controller's log cannot be read.", extra={"detail": detail})

    def reading(self) -> ControlReading:
        """Return what is known now."""
        feed = self.feed
        told = FeedReading(feed.published, feed.refused, feed.lost, feed.turn_ns) if feed else None
        has_started = self._server is not None
        return ControlReading(
            self._latest, self._answered_ns, has_started, self.is_draining, self._fails, told
        )

    def health(self) -> Health:
        """Return the judgement of now."""
        return judge(self.reading(), self._clock.monotonic_ns())

    def page(self) -> str:
        """Return the text that Prometheus reads."""
        return exposition(control_families(self.reading(), self.health(), started_s=self._started_s))


@contextmanager
def serving_page(listen: str, *, clock: Clock) -> Iterator[tuple[ControlWatch, str]]:
    """Serve health and numbers during the block; yields the watch and the page's address.

    Raises
    ------
    UsageError
        The address cannot be bound.
    """
    watch = ControlWatch(clock=clock)
    with watch, health_page(listen, health=watch.health, page=watch.page) as page:
        yield watch, page.address
