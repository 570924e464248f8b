"""Spool → destination: oldest first, at least once, never giving up; one thread.

`Shipper.step` does one thing and says what to wait for, so that a test drives it without a thread.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random

from paritas.agent.claim import Entry
from paritas.agent.config import ShippingSettings
from paritas.agent.destination import Destination, Shipped
from paritas.agent.memory import MemoryQueue
from paritas.agent.reasons import DropReason
from paritas.agent.retry import RateCap, delay_s
from paritas.agent.spool import Spool, Taken
from paritas.agent.stream import Stream
from paritas.clock import Clock
from paritas.errors import ParitasError, TransientError
from paritas.wire import stamp

__all__ = ["Pause", "Shipper", "ShipperState", "Wait"]

log = logging.getLogger(__name__)
NS = 1_000_000_000
IDLE_S = 1.0
QUIET_S = 0.1  # without records for so long the position is saved


class Wait(Enum):
    """What the shipper waits for."""

    NOTHING = "nothing"
    RECORDS = "records"  # or time
    TIME = "time"  # a back-off or the rate cap: new records change nothing


@dataclass(frozen=True, slots=True)
class Pause:
    """What to do before the next step."""

    wait: Wait
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ShipperState:
    """One reading of the shipper's progress.

    Attributes
    ----------
    retried : int
        Records sent again after a failure.
    failures : int
        Failures in a row.
    last_success_ns : int
        Unix ns of the last acknowledgement; 0 for none yet.
    progress_ns : int
        Monotonic ns of the last acknowledgement, or of the last time nothing waited.
    error : str
        Why nothing is shipped; empty while all is well.
    is_refused : bool
        Whether a person must act at the destination.
    """

    retried: int
    failures: int
    last_success_ns: int
    progress_ns: int
    error: str
    is_refused: bool


class Shipper:
    """Ships from a spool; one thread calls `step`, any may call the rest.

    Parameters
    ----------
    spool : Spool
        Entered.
    opener : callable
        Opens the destination; called again after it failed.
    settings : ShippingSettings
        Batches, rates, waits.
    clock : Clock
    random : Random
        Of the jitter.
    """

    def __init__(
        self,
        spool: Spool,
        opener: Callable[[], Destination],
        settings: ShippingSettings,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._spool, self._opener, self._clock, self._random = spool, opener, clock, random
        self._destination: Destination | None = None
        self._taken: Taken | None = None
        self._left: tuple[Entry, ...] = ()  # of the batch: what is not settled
        self._retried = self._failures = self._last_success_ns = 0
        self._error: ParitasError | None = None
        self._progress_ns = self._commit_ns = self._settled_ns = clock.monotonic_ns()
        self._is_committed = True
        self._taken_ns = clock.monotonic_ns() - round(settings.gather_s * NS)
        self._tell(settings)

    def _tell(self, settings: ShippingSettings) -> None:
        now_ns = self._clock.monotonic_ns()
        self._settings = settings
        self._records_cap = RateCap(settings.max_records_per_s, now_ns=now_ns)
        self._bytes_cap = RateCap(settings.max_bytes_per_s, now_ns=now_ns)

    def step(self) -> Pause:
        """Do the next thing: keep house, take a batch, or send what is left of one."""
        now_ns = self._clock.monotonic_ns()
        if self._taken is None:
            self._spool.maintain()
        if not self._is_committed and now_ns >= self._commit_ns:
            self._commit()
        if self._taken is None and (gather_s := self._gather_s(now_ns)) > 0:
            return Pause(Wait.TIME, gather_s)
        if self._taken is None and not self._take():
            return self._idle()
        if self._left:
            wait_s = max(cap.wait_s(now_ns=now_ns) for cap in (self._records_cap, self._bytes_cap))
            return Pause(Wait.TIME, wait_s) if wait_s > 0 else self._send()
        self._settle()
        return Pause(Wait.NOTHING)

    def _gather_s(self, now_ns: int) -> float:
        """Return how long records should go on gathering before they are taken."""
        if not 0 < self._spool.waiting() < self._settings.batch_records // 4:
            return 0.0
        return self._settings.gather_s - (now_ns - self._taken_ns) / NS

    def _idle(self) -> Pause:
        """Nothing waits: save soon, so that a restart sends nothing twice, but not between any two records."""
        now_ns = self._progress_ns = self._clock.monotonic_ns()
        if not self._is_committed and now_ns >= self._settled_ns + round(QUIET_S * NS):
            self._commit()
        return Pause(Wait.RECORDS, IDLE_S if self._is_committed else QUIET_S)

    def _commit(self) -> None:
        self._spool.commit()
        self._is_committed = True
        self._commit_ns = self._clock.monotonic_ns() + round(self._settings.commit_s * NS)

    def _take(self) -> bool:
        settings = self._settings
        try:
            self._taken = self._spool.take(limit=settings.batch_records, limit_bytes=settings.batch_bytes)
        except TransientError as error:
            self._error = error
            return False
        if self._taken is None:
            return False
        self._left = self._taken.batch.entries
        self._taken_ns = self._clock.monotonic_ns()
        return True

    def _send(self) -> Pause:
        entries = self._left
        records = [stamp(entry.record, entry.origin) for entry in entries]
        if self._failures:
            self._retried += len(entries)
        try:
            if self._destination is None:
                self._destination = self._opener()
            shipped = self._destination.ship(records)
        except ParitasError as error:
            shipped = Shipped(frozenset(), error=error)
        self._records_cap.spend(len(shipped.acknowledged))
        self._bytes_cap.spend(sum([len(records[index].value) for index in shipped.acknowledged]))
        self._note(entries, shipped)
        self._settle()
        return self._after(shipped)

    def _note(self, entries: tuple[Entry, ...], shipped: Shipped) -> None:
        """Take what is done with out of what is left."""
        assert self._taken is not None, "a batch is being sent"
        for index, why in shipped.refused.items():
            entry = entries[index]
            self._spool.keep_dead(stamp(entry.record, entry.origin), why=why)
            self._taken.source.lose(range(entry.seq, entry.seq + 1), DropReason.REJECTED)
        done = {*shipped.acknowledged, *shipped.refused}
        self._left = tuple([entry for index, entry in enumerate(entries) if index not in done])
        if shipped.acknowledged:
            self._last_success_ns = self._clock.now_ns()
        if done:
            self._progress_ns = self._clock.monotonic_ns()

    def _settle(self) -> None:
        """Settle up to the first record that is left; with none left the batch is done with."""
        assert self._taken is not None, "a batch is being sent"
        first = self._left[0] if self._left else None
        self._taken.source.settle(self._taken.batch.end_seq if first is None else first.seq)
        self._is_committed, self._settled_ns = False, self._clock.monotonic_ns()
        if first is None:
            self._taken = None

    def _after(self, shipped: Shipped) -> Pause:
        if not self._left:
            self._failures, self._error = 0, None
            return Pause(Wait.NOTHING)
        self._failures = 1 if shipped.acknowledged else self._failures + 1
        self._complain(shipped.error)
        if not isinstance(shipped.error, TransientError):
            self.let_go()  # whatever a person changes, it is opened afresh
        return Pause(Wait.TIME, delay_s(self._settings.backoff, self._failures, random=self._random))

    def _complain(self, error: ParitasError | None) -> None:
        """Say why records wait, once for each reason: the health page tells its kind only."""
        if error is not None and str(error) != str(self._error):
            log.warning("Shipping waits.", extra={"error": str(error)})
        self._error = error

    def let_go(self) -> None:
        """Close the destination; it is opened again when something is to be sent."""
        destination, self._destination = self._destination, None
        if destination is not None:
            try:
                destination.close()
            except ParitasError as error:
                log.warning("The destination did not close.", extra={"error": str(error)})

    def reconfigure(self, opener: Callable[[], Destination] | None, settings: ShippingSettings) -> None:
        """Go on with other settings, and with another destination if one is given."""
        self._tell(settings)
        self._failures = 0
        if opener is not None:
            self.let_go()
            self._opener, self._error = opener, None

    def give_back(self) -> None:
        """Put a batch from the disk back, so that the spool may be opened otherwise."""
        if self._taken is not None and isinstance(self._taken.source, Stream):
            self._taken.source.give_back()
            self._taken, self._left = None, ()

    def state(self) -> ShipperState:
        """Return how far it is."""
        error = self._error
        return ShipperState(
            retried=self._retried,
            failures=self._failures,
            last_success_ns=self._last_success_ns,
            progress_ns=self._progress_ns,
            error=str(error) if error is not None else "",
            is_refused=error is not None and not isinstance(error, TransientError),
        )

    def close(self) -> None:
        """Let the destination go; what is in memory only and was not acknowledged is lost."""
        if self._taken is not None and isinstance(self._taken.source, MemoryQueue):
            for entry in self._left:
                self._taken.source.lose(range(entry.seq, entry.seq + 1), DropReason.SHUTDOWN)
            self._taken.source.settle(self._taken.batch.end_seq)
            self._taken, self._left = None, ()
        self.give_back()
        self.let_go()
