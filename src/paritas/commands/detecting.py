"""The detection loop: event log → stages → escalations published, state and positions saved together.

At least once to the controller, which knows repeats by their id; exactly once to the statistics,
because state and positions are one atomic write.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from paritas.agent.eventlog import Cursor, LogReader, Saved, Stored
from paritas.clock import Clock
from paritas.contracts.model import Contract
from paritas.detectors import snapshot
from paritas.detectors.decode import Decoder
from paritas.detectors.pipeline import Detector
from paritas.errors import PermanentError, TransientError, UsageError
from paritas.records import Escalation

__all__ = ["DetectionLoop", "LoopSettings"]

log = logging.getLogger(__name__)
NS = 1_000_000_000
SAVE_SHARE = 20  # saving takes at most about a twentieth of the time
Publish = Callable[[Sequence[Escalation]], object]


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """Pace of the loop.

    Attributes
    ----------
    batch : int
        Records read at once from a partition.
    idle_s : float, seconds
        After so long without a record the newest cohort is over, and dwell times follow the clock.
    save_s : float, seconds
        Time between two saves, or twenty times what the last one took if that is longer: how
        much a restart judges again.
    wait_s : float, seconds
        Pause after an empty read.
    deployment : str
        Part of every escalation id.
    """

    batch: int = 256
    idle_s: float = 1.0
    save_s: float = 2.0
    wait_s: float = 0.05
    deployment: str = ""


class DetectionLoop:
    """Owns the detector of one contract; drive it from one thread.

    Parameters
    ----------
    reader : LogReader
    cursor : Cursor
        Where state and positions are kept.
    publish : callable
        Takes escalations in order, returns when they are safe; TransientError to be called again.

    Attributes
    ----------
    on_published : callable
        Told what was published, for a console.

    Raises
    ------
    UsageError
        On entering: the saved state belongs to another log or is damaged.
    """

    def __init__(
        self,
        contract: Contract,
        reader: LogReader,
        cursor: Cursor,
        *,
        publish: Publish,
        clock: Clock,
        settings: LoopSettings = LoopSettings(),
    ) -> None:
        self._contract = contract
        self._reader = reader
        self._cursor = cursor
        self._publish = publish
        self._clock = clock
        self._settings = settings
        self.detector = Detector(contract, deployment=settings.deployment)
        self.decoder = Decoder()
        self.skipped: Counter[str] = Counter()
        self.published = 0
        self.on_published: Callable[[Sequence[Escalation]], None] = lambda _: None
        self._unsent: list[Escalation] = []
        self._positions: dict[int, int] = {}
        self._active_ns = clock.monotonic_ns()
        self._save_due_ns = self._active_ns + round(settings.save_s * NS)

    def __enter__(self) -> Self:
        saved = self._cursor.load()
        starts = self._reader.start_offsets()
        self._positions = dict(starts)
        if saved is not None and saved.log_id == self._reader.log_id:
            self._restore(saved)
        elif saved is not None:
            message = f"{self._cursor.path}: the state belongs to another event log"
            raise UsageError(message, hint="move it away to judge this log from its start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Save on a clean exit only: after a crash the last saved state is the truth."""
        if kind is None and not self._unsent:
            self.save()

    def _restore(self, saved: Saved) -> None:
        try:
            self.detector = snapshot.load(saved.snapshot, contract_digest=self._contract.digest)
        except PermanentError as error:
            log.warning(
                "State is of another contract, the log is judged again.", extra={"detail": str(error)}
            )
            return
        self._positions.update(saved.positions)

    def run(self, stop: threading.Event) -> None:
        """Step until `stop` is set; a transient error is waited out, never skipped."""
        while not stop.is_set():
            try:
                taken = self.step()
            except TransientError as error:
                log.warning("Detection waits.", extra={"detail": str(error)})
                taken = 0
            if not taken:
                self._clock.wait(stop, timeout_s=self._settings.wait_s)

    def step(self) -> int:
        """Read and judge what is there; return how many records were taken.

        Raises
        ------
        TransientError
            The controller cannot take the escalations now; the next step sends them again.
        """
        self._send()
        taken = sum(self._read(partition) for partition in range(self._reader.partitions))
        now_ns = self._clock.monotonic_ns()
        if taken:
            self._active_ns = now_ns
        elif now_ns - self._active_ns >= self._settings.idle_s * NS:
            self._active_ns = now_ns
            self._unsent.extend(self.detector.tick(self._clock.now_ns()))
        self._send()
        if now_ns >= self._save_due_ns:
            self.save()
        return taken

    def caught_up(self) -> bool:
        """Whether everything appended so far was judged and sent."""
        ends = self._reader.end_offsets()
        return not self._unsent and all(self._positions.get(p, 0) >= end for p, end in ends.items())

    def _read(self, partition: int) -> int:
        batch = self._reader.read(partition, self._positions[partition], limit=self._settings.batch)
        self.skipped.update({reason.value: n for reason, n in batch.skipped.items()})
        for stored in batch:
            self._take(stored)
        self._positions[partition] = batch.next_offset
        return len(batch)

    def _take(self, stored: Stored) -> None:
        headers = {name: value.decode(errors="replace") for name, value in stored.record.headers}
        if not self.detector.is_repeat(headers):
            traces = self.decoder.process([stored.record.value])
            self._unsent.extend(self.detector.process(traces, stored.appended_ns))

    def _send(self) -> None:
        if self._unsent:
            self._publish(self._unsent)
            sent, self._unsent = self._unsent, []
            self.published += len(sent)
            self.on_published(sent)

    def save(self) -> None:
        """Write state and positions in one piece, after what they rest on is durable."""
        start_ns = self._clock.monotonic_ns()
        self._reader.flush()
        self._cursor.save(Saved(self._reader.log_id, dict(self._positions), snapshot.dump(self.detector)))
        end_ns = self._clock.monotonic_ns()
        self._save_due_ns = end_ns + max(round(self._settings.save_s * NS), SAVE_SHARE * (end_ns - start_ns))
