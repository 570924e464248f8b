"""The detection loop: event log → stages → escalations published, state and positions saved together.

At least once to the controller, which knows repeats by their id; exactly once to the statistics,
because state and positions are one atomic write.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from paritas.agent.eventlog import Cursor, LogReader, Saved, Stored
from paritas.clock import Clock
from paritas.commands.agent_notes import AgentNotes
from paritas.commands.detect_health import DetectTrouble, LoopState, Stage
from paritas.commands.log_order import LogOrder
from paritas.commands.log_time import LogTime
from paritas.contracts.model import Contract
from paritas.controller.refusals import RefusalError, Refused
from paritas.detectors import snapshot
from paritas.detectors.decode import Decoder
from paritas.detectors.pipeline import Detector
from paritas.errors import ParitasError, PermanentError, TransientError, UsageError
from paritas.records import Escalation
from paritas.wire import Gap, names

__all__ = ["DetectionLoop", "LoopSettings", "watched"]

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
        After so long without a trace the newest cohort is over, and dwell times follow the clock.
    save_s : float, seconds
        Time between two saves, or twenty times what the last one took if that is longer: how
        much a restart judges again.
    wait_s : float, seconds
        Pause after an empty read.
    retry_s : float, seconds
        Pause after a turn that failed.
    deployment : str
        Part of every escalation id.
    to_end : bool
        Stop at the end the log has on entering; what is alone then is unmatched.
    renew_s : float, seconds
        What fires is told again so often while the log is judged to its end: it is valid for ten
        minutes, and one telling may be lost.
    """

    batch: int = 256
    idle_s: float = 1.0
    save_s: float = 2.0
    wait_s: float = 0.05
    retry_s: float = 0.5
    deployment: str = ""
    to_end: bool = False
    renew_s: float = 240.0


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
    on_step : callable
        Given the detector after each turn, on the loop's thread, for live metrics.
    on_turn : callable
        Called before each step, on the loop's thread, where another contract may be taken over.
    state : LoopState
        What `health` is judged by.
    failures : int
        Turns that failed and were tried again.
    newest_ns, saved_ns : int
        Unix ns at which the newest judged record was appended, and the state was saved last; 0 before.

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
        self.detector = self._new_detector(contract)
        self.decoder = Decoder()
        self.agents = AgentNotes()
        self.published = self.failures = self.newest_ns = self.saved_ns = 0
        self.state = LoopState(clock.monotonic_ns())
        self.on_turn: Callable[[], None] = lambda: None
        self.on_published: Callable[[Sequence[Escalation]], None] = lambda _: None
        self.on_step: Callable[[Detector], None] = lambda _: None
        self._unsent: list[Escalation] = []
        self._said = ""
        self._doing = DetectTrouble.WAITING_FOR_LOG  # what a failure now would be
        self._ends: Mapping[int, int] | None = None
        self._order = LogOrder(reader, {}, batch=settings.batch)
        self._log_time = LogTime(clock)
        self._active_ns = clock.monotonic_ns()
        self._save_due_ns = self._active_ns + round(settings.save_s * NS)
        self._renew_due_ns = self._active_ns + round(settings.renew_s * NS)

    def __enter__(self) -> Self:
        saved = self._cursor.load()
        positions = dict(self._reader.start_offsets())
        if saved is not None and saved.log_id == self._reader.log_id:
            positions.update(self._restore(saved))
        elif saved is not None:
            message = f"{self._cursor.path}: the state belongs to another event log"
            raise UsageError(message, hint="move it away to judge this log from its start")
        self._ends = self._reader.end_offsets() if self._settings.to_end else None
        self._order = self._ordered(positions)
        return self

    def _new_detector(self, contract: Contract) -> Detector:
        settings = self._settings
        return Detector(contract, deployment=settings.deployment, idle_s=settings.idle_s)

    def _ordered(self, positions: Mapping[int, int]) -> LogOrder:
        return LogOrder(self._reader, positions, batch=self._settings.batch, ends=self._ends)

    @property
    def contract(self) -> Contract:
        """What it judges by."""
        return self._contract

    def take_over(self, contract: Contract) -> None:
        """Judge by another contract as a restart with it would: from the log's oldest record on.

        Escalations of the old one that were not published yet still are.

        Raises
        ------
        TransientError
            The log cannot say where it begins; nothing has changed.
        """
        self._order = self._ordered(self._reader.start_offsets())
        self._contract, self.detector = contract, self._new_detector(contract)
        self._log_time = LogTime(self._clock)
        self._active_ns = self._clock.monotonic_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Save on a clean exit only: after a crash the last saved state is the truth."""
        if kind is None and not self._unsent:
            self.save()

    def _restore(self, saved: Saved) -> Mapping[int, int]:
        """Take the saved detector, return its positions; none of a state that cannot be used."""
        try:
            self.detector = snapshot.load(saved.snapshot, contract_digest=self._contract.digest)
        except PermanentError as error:
            log.warning(
                "State is of another contract, the log is judged again.", extra={"detail": str(error)}
            )
            return {}
        return saved.positions

    @property
    def skipped(self) -> Counter[str]:
        """Offsets of the log that gave no record, by reason."""
        return self._order.skipped

    def run(self, stop: threading.Event) -> None:
        """Step until `stop` is set or the end is reached; a transient error is waited out, never skipped.

        So is a controller that does not let us publish, unless somebody waits for the end: a token may
        be renewed in place.
        """
        self.state.turn_ns, self.state.stage = self._clock.monotonic_ns(), Stage.RUNNING
        while not stop.is_set():
            wait_s = self._settings.wait_s
            try:
                self._doing = DetectTrouble.WAITING_FOR_LOG
                self.on_turn()
                if self._settings.to_end and self.caught_up():
                    self._finish()
                    return
                wait_s = 0.0 if self.step() else wait_s
                self.state.trouble, self._said = None, ""
            except (TransientError, RefusalError) as error:
                self._waits(error)
                self.on_step(self.detector)  # what fails must be seen too
                wait_s = self._settings.retry_s
            self.state.turn_ns = self._clock.monotonic_ns()
            if wait_s:
                self._clock.wait(stop, timeout_s=wait_s)
        self.state.stage = Stage.DRAINING

    def _waits(self, error: ParitasError) -> None:
        """Say why nothing goes on, once until something does; raise what no waiting mends."""
        if isinstance(error, RefusalError):
            if error.reason is not Refused.FORBIDDEN or self._settings.to_end:
                raise error
            self._doing = DetectTrouble.PUBLISH_REFUSED
        self.failures += 1
        self.state.trouble = self._doing
        if str(error) != self._said:
            self._said = str(error)
            log.warning("Detection waits.", extra={"detail": self._said})

    def step(self) -> int:
        """Read and judge what is there; return how many records were taken.

        Raises
        ------
        TransientError
            The controller cannot take the escalations now; the next step sends them again.
        """
        self._send()
        taken = sum(map(self._take, self._order.records()))
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._active_ns >= self._settings.idle_s * NS:
            self._pass_silence(now_ns)
        self._send()
        if now_ns >= self._renew_due_ns and self.caught_up():
            self._renew(now_ns)
        if now_ns >= self._save_due_ns:
            self.save()
        self.on_step(self.detector)
        return taken

    def _pass_silence(self, now_ns: int) -> None:
        """Let time pass to a moment before the log was asked: what it does not have by then comes later."""
        silent_until_ns = self._log_time.now_ns()
        if self.caught_up():
            self._active_ns = now_ns
            self._unsent.extend(self.detector.elapse(silent_until_ns))

    def _renew(self, now_ns: int) -> None:
        """Say what still fires: an incident of which nothing is heard asks for nothing any more."""
        self._renew_due_ns = now_ns + round(self._settings.renew_s * NS)
        self._unsent.extend(self.detector.renewals(self._clock.now_ns()))
        self._send()

    def _finish(self) -> None:
        """End of the input: what is still alone is unmatched."""
        self._miss(self._order.untold(), self._clock.now_ns())
        self._unsent.extend(self.detector.flush(self._clock.now_ns()))
        self._send()

    def lag_records(self) -> int:
        """Offsets that the log has and nobody judged yet; TransientError if it cannot be asked."""
        return sum(max(end - self._order.positions.get(p, end), 0) for p, end in self._order.ends().items())

    def caught_up(self) -> bool:
        """Whether everything appended so far was judged and sent."""
        return not self._unsent and self._order.at_end()

    def _take(self, stored: Stored) -> int:
        """Judge one record; return 1."""
        self._log_time.see(stored.appended_ns)
        self.newest_ns = stored.appended_ns
        self._miss(self._order.gaps, stored.appended_ns)
        headers = {name: value.decode(errors="replace") for name, value in stored.record.headers}
        if not self.detector.is_repeat(headers):
            held = self.decoder.take(stored.record.value)
            if held.traces:  # reports of many agents come without a pause, and are no traffic
                self._active_ns = self._clock.monotonic_ns()
            self.agents.note(held.health)
            agent = headers.get(names.HEADER_AGENT, "")
            self._unsent.extend(
                self.detector.process(
                    held.traces, stored.appended_ns, gaps=held.gaps, agent=agent, rosters=held.rosters
                )
            )
        return 1

    def _miss(self, gaps: list[Gap], now_ns: int) -> None:
        """Tell the detector what the log itself has lost."""
        if gaps:
            self._unsent.extend(self.detector.process((), now_ns, gaps=gaps))
            self._order.gaps = []

    def _send(self) -> None:
        if self._unsent:
            self._doing = DetectTrouble.CONTROLLER_UNREACHABLE
            self._publish(self._unsent)
            self._doing = DetectTrouble.WAITING_FOR_LOG
            sent, self._unsent = self._unsent, []
            self.published += len(sent)
            self.on_published(sent)

    def save(self) -> None:
        """Write state and positions in one piece, after what they rest on is durable."""
        start_ns = self._clock.monotonic_ns()
        self._doing = DetectTrouble.STATE_NOT_SAVED
        self._reader.flush()
        self._cursor.save(
            Saved(self._reader.log_id, dict(self._order.positions), snapshot.dump(self.detector))
        )
        self._doing = DetectTrouble.WAITING_FOR_LOG
        self.saved_ns, end_ns = self._clock.now_ns(), self._clock.monotonic_ns()
        self._save_due_ns = end_ns + max(round(self._settings.save_s * NS), SAVE_SHARE * (end_ns - start_ns))


def watched(loop: DetectionLoop) -> str:
    """Return what a farewell says of agents, losses and the refit gate: nothing if there were none."""
    lost = ", ".join(f"{n} {reason}" for reason, n in sorted(loop.detector.gaps.lost.items()))
    heard = f"; {loop.agents.text()}" if loop.agents else ""
    return heard + (f"; records lost on the way: {lost}" if lost else "") + _gated(loop)


def _gated(loop: DetectionLoop) -> str:
    """What the refit gate did; nothing without one."""
    gate = loop.detector.refit
    if gate is None:
        return ""
    versions, sequences = gate.versions, gate.sequences
    told = [f"{n} versions {state}" for state, n in sorted(versions.items())]
    told += [f"{n} sequences {state}" for state, n in sorted(sequences.items()) if state != "accepted"]
    return f"; refit gate: {', '.join(told) or 'nothing tested'}"
