"""From the topic of escalations into the controller: every record at least once, each id once."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from paritas.agent.eventlog import Cursor, LogReader, Saved, SkipReason, Stored
from paritas.clock import Clock
from paritas.commands.detecting import Publish
from paritas.commands.log_order import LogOrder
from paritas.commands.own_thread import OwnThread
from paritas.controller.topic import escalation_from
from paritas.errors import ParitasError, PermanentError, TransientError
from paritas.records import Escalation

__all__ = ["EscalationFeed", "OpenReader"]

log = logging.getLogger(__name__)
BATCH = 500
WAIT_S = 0.2
REOPEN_S = 1.0
LEAVE_S = 1.0
# Offsets that hold no record of the topic: transaction markers, and what was never committed.
HARMLESS = SkipReason.MISSING.value
OpenReader = Callable[[], AbstractContextManager[LogReader]]


class EscalationFeed(OwnThread):
    """A thread that publishes what the topic holds, from where it stood; a context manager.

    Neither a broker nor a controller that is away ends it: it says so once and tries again.

    Parameters
    ----------
    open_reader : callable
        Opens a reader of the topic that gives committed records only; called in the thread, again after an
        error that the reader cannot outlive.
    cursor : Cursor
        Where the positions are kept; another topic's are ignored, since ids make repeats harmless.
    publish : callable
        Returns when the escalations are safe; knows repeats by their id.

    Attributes
    ----------
    published, refused, lost : int
        Escalations handed on; records that hold none, or what the controller will never take; offsets
        that were expired or damaged before they were read.
    turn_ns : int
        Monotonic ns at which it last looked at the topic and handed everything on; at first, when it began.
    """

    def __init__(self, open_reader: OpenReader, cursor: Cursor, *, publish: Publish, clock: Clock) -> None:
        super().__init__(name="escalation-feed")
        self._open_reader, self._cursor, self._publish, self._clock = open_reader, cursor, publish, clock
        self.published = self.refused = self.lost = 0
        self._said = ""
        self._handing_on = threading.Lock()
        self.turn_ns = clock.monotonic_ns()

    def close(self) -> None:
        """Stop, with what is being handed on; a thread that a silent broker holds is left behind.  Twice is fine."""
        self._stop.set()
        if self._thread.is_alive():
            # It may hang in the broker for the whole timeout of a request, or of several.
            self._thread.join(LEAVE_S)
        with self._handing_on:
            pass  # and begins nothing any more: what it has read is read again by the next feed

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self._open_reader() as reader:
                    self._follow(reader)
            except ParitasError as error:
                self._waits(error)
            except Exception:  # the thread's top: a feed that ended silently would look like no escalations
                log.exception("Escalations wait.")
            self._clock.wait(self._stop, timeout_s=REOPEN_S)

    def _follow(self, reader: LogReader) -> None:
        """Publish until the stop; only what a new reader may mend is raised."""
        order = LogOrder(reader, self._positions(reader), batch=BATCH)
        while not self._stop.is_set():
            before = dict(order.positions)
            try:
                taken = self._step(reader, order)
            except TransientError as error:
                self._waits(error)
                order, taken = LogOrder(reader, before, batch=BATCH), 0
            if not taken:
                self._clock.wait(self._stop, timeout_s=WAIT_S)

    def _positions(self, reader: LogReader) -> dict[int, int]:
        positions = dict(reader.start_offsets())
        saved = self._cursor.load()
        if saved is not None and saved.log_id == reader.log_id:
            positions.update(saved.positions)
        return positions

    def _waits(self, error: ParitasError) -> None:
        """Say why nothing goes on, once until something does; not where nothing shall."""
        if str(error) != self._said and not self._stop.is_set():
            self._said = str(error)
            log.warning("Escalations wait.", extra={"detail": self._said})

    def _step(self, reader: LogReader, order: LogOrder) -> int:
        """Publish what is there, unless it shall end; positions follow only when it is safe."""
        before, skipped = dict(order.positions), dict(order.skipped)
        found = list(order.records())
        with self._handing_on:
            if self._stop.is_set():
                return 0
            self._take(found, {r: n - skipped.get(r, 0) for r, n in order.skipped.items() if r != HARMLESS})
            if order.positions != before:
                self._cursor.save(Saved(reader.log_id, dict(order.positions)))
        if found:
            self._said = ""
        self.turn_ns = self._clock.monotonic_ns()
        return len(found)

    def _take(self, found: Sequence[Stored], skipped: dict[str, int]) -> None:
        refusals = Refusals()
        escalations = [e for stored in found if (e := _decoded(stored, refusals)) is not None]
        self._hand_on(escalations, refusals)
        self._count(refusals, skipped)

    def _hand_on(self, escalations: Sequence[Escalation], refusals: "Refusals") -> None:
        """Publish them; when the controller will never take them all, one by one, so that one holds back no other."""
        if not escalations:
            return
        try:
            self._publish(escalations)
            self.published += len(escalations)
        except PermanentError as error:
            if len(escalations) == 1:
                refusals.add(escalations[0].event_id, error)
                return
            for escalation in escalations:
                self._hand_on([escalation], refusals)

    def _count(self, refusals: "Refusals", skipped: dict[str, int]) -> None:
        """Count what was not handed on, and say it in a line, not in one a record."""
        self.refused += refusals.count
        if refusals.count:
            told = {"records": refusals.count, "first": refusals.first, "detail": refusals.detail}
            log.warning("Records of the escalation topic are refused.", extra=told)
        lost = {reason: n for reason, n in skipped.items() if n}
        self.lost += sum(lost.values())
        if lost:
            log.warning("Escalations were lost before they were read.", extra=lost)


class Refusals:
    """What a step refused: how many, and why the first."""

    def __init__(self) -> None:
        self.count, self.first, self.detail = 0, "", ""

    def add(self, place: str, error: PermanentError) -> None:
        """Count one."""
        if not self.count:
            self.first, self.detail = place, str(error)
        self.count += 1


def _decoded(stored: Stored, refusals: Refusals) -> Escalation | None:
    try:
        return escalation_from(stored.record.value)
    except PermanentError as error:
        refusals.add(f"partition {stored.position.partition}, offset {stored.position.offset}", error)
        return None
