"""From the topic of escalations into the controller: every record at least once, each id once."""

import logging
import threading
from types import TracebackType
from typing import Self

from paritas.agent.eventlog import Cursor, LogReader, Saved, Stored
from paritas.clock import Clock
from paritas.commands.detecting import Publish
from paritas.commands.log_order import LogOrder
from paritas.controller.topic import escalation_from
from paritas.errors import PermanentError, TransientError
from paritas.records import Escalation

__all__ = ["EscalationFeed"]

log = logging.getLogger(__name__)
BATCH = 500
WAIT_S = 0.2


class EscalationFeed:
    """A thread that publishes what the topic holds, from where it stood; a context manager.

    Parameters
    ----------
    reader : LogReader
        Of the topic; gives committed records only.
    cursor : Cursor
        Where the positions are kept; another topic's are ignored, since ids make repeats harmless.
    publish : callable
        Returns when the escalations are safe; knows repeats by their id.

    Attributes
    ----------
    published, refused : int
        Escalations handed on; records that hold none, or what the controller will never take.
    """

    def __init__(self, reader: LogReader, cursor: Cursor, *, publish: Publish, clock: Clock) -> None:
        self._reader, self._cursor, self._publish, self._clock = reader, cursor, publish, clock
        self.published = self.refused = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="escalation-feed", daemon=True)
        self._order = LogOrder(reader, {}, batch=BATCH)

    def __enter__(self) -> Self:
        positions = dict(self._reader.start_offsets())
        saved = self._cursor.load()
        if saved is not None and saved.log_id == self._reader.log_id:
            positions.update(saved.positions)
        self._order = LogOrder(self._reader, positions, batch=BATCH)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the thread; twice is fine."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                taken = self._step()
            except TransientError as error:
                log.warning("Escalations wait.", extra={"detail": str(error)})
                taken = 0
            if not taken:
                self._clock.wait(self._stop, timeout_s=WAIT_S)

    def _step(self) -> int:
        """Publish what is there; positions follow only when it is safe."""
        before = dict(self._order.positions)
        found = list(self._order.records())
        escalations = [e for stored in found if (e := self._decoded(stored)) is not None]
        try:
            if escalations:
                self._publish(escalations)
        except TransientError:
            self._order = LogOrder(self._reader, before, batch=BATCH)
            raise
        except PermanentError as error:  # asking again would change nothing, and hold back all that follow
            self.refused += len(escalations)
            log.warning("The controller refuses escalations.", extra={"detail": str(error)})
            escalations = []
        self.published += len(escalations)
        if self._order.positions != before:
            self._cursor.save(Saved(self._reader.log_id, dict(self._order.positions)))
        return len(found)

    def _decoded(self, stored: Stored) -> Escalation | None:
        try:
            return escalation_from(stored.record.value)
        except PermanentError as error:
            self.refused += 1
            log.warning("A record of the escalation topic is refused.", extra={"detail": str(error)})
            return None
