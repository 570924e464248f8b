"""The agent: receivers → spool → destination, with its health beside it."""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Self

from paritas.agent.config import AgentConfig
from paritas.agent.destination import Destination, open_destination
from paritas.agent.health import Health, Reading, judge
from paritas.agent.health_page import health_page
from paritas.agent.intake import Intake
from paritas.agent.metrics import Extra, metrics, render
from paritas.agent.own_spans import health_record
from paritas.agent.reasons import NotReady
from paritas.agent.receivers.http import tcp_receiver, unix_receiver
from paritas.agent.receivers.peers import allowed_uids
from paritas.agent.reload import expect_changeable
from paritas.agent.shipper import Shipper, Wait
from paritas.agent.spool import Spool
from paritas.clock import Clock
from paritas.errors import ParitasError, TransientError

if TYPE_CHECKING:
    from paritas.agent.receivers.grpc import GrpcReceiver

__all__ = ["Addresses", "Agent"]

log = logging.getLogger(__name__)
NS = 1_000_000_000
TICK_S = 0.5
CRASH_PAUSE_S = 1.0
PAGE_BYTES = 4096
SPOOL_TROUBLE = {NotReady.MEMORY_ONLY, NotReady.SYNC_FAILING}
TARGET_TROUBLE = {NotReady.NOT_SHIPPING, NotReady.TARGET_REFUSES, NotReady.THREAD_DIED}


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a running agent can be reached; empty for what is not served."""

    unix: str = ""
    http: str = ""
    grpc: str = ""
    health: str = ""


class Agent:
    """One agent; enter it to receive and ship, `run` it until it is told to stop.

    Parameters
    ----------
    config : AgentConfig
    clock : Clock
        Must really wait (`SystemClock`).
    opener : callable
        Opens the destination of a configuration.
    random : Random
        Of the jitter.

    Attributes
    ----------
    addresses : Addresses
        Known once it is entered.

    Raises
    ------
    UsageError
        On entering: the spool is in use, or an address cannot be taken.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        clock: Clock,
        opener: Callable[..., Destination] = open_destination,
        random: Random | None = None,
    ) -> None:
        self.config, self._clock, self._opener = config, clock, opener
        self._random = random or Random()  # noqa: S311 -- jitter is no secret
        self.spool = Spool(config.spool, agent=config.name, clock=clock)
        self.intake = Intake(self.spool, max_pending_bytes=config.receivers.max_pending_bytes)
        self.addresses = Addresses()
        self.reloads: Counter[str] = Counter()
        self.crashes = 0
        self._pending: AgentConfig | None = None
        self._uids = allowed_uids(config.receivers.peer_uids, any_user=config.receivers.any_user)
        self._is_started = self._is_draining = False
        self._stopping, self._nudge = threading.Event(), threading.Event()
        self._beat_ns = self._report_ns = clock.monotonic_ns()
        self._grpc: GrpcReceiver | None = None
        self._receivers, self._stack = ExitStack(), ExitStack()
        self._thread = threading.Thread(target=self._ship, name="paritas-shipper", daemon=True)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.spool)
            self.shipper = Shipper(
                self.spool,
                partial(self._opener, self.config.target, clock=self._clock),
                self.config.shipping,
                clock=self._clock,
                random=self._random,
            )
            stack.callback(self._stop_shipping)
            stack.enter_context(self._receivers)
            self._listen(stack)
            self._thread.start()
            self._is_started = True
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop at once; what was not delivered stays in the spool; twice is fine."""
        self._stack.close()

    def _listen(self, stack: ExitStack) -> None:
        told, served = self.config.receivers, {}
        limit_bytes = told.max_body_bytes
        if told.unix_path is not None:
            unix = unix_receiver(
                told.unix_path,
                self.intake,
                uids=lambda: self._uids,
                is_shared=told.is_shared,
                max_body_bytes=limit_bytes,
            )
            served["unix"] = self._receivers.enter_context(unix).address
        if told.http_listen:
            http = tcp_receiver(told.http_listen, self.intake, max_body_bytes=limit_bytes)
            served["http"] = self._receivers.enter_context(http).address
        if told.grpc_listen:
            served["grpc"] = self._serve_grpc(told.grpc_listen, limit_bytes)
        if self.config.health.listen:
            page = health_page(self.config.health.listen, health=self.health, page=self.page)
            served["health"] = stack.enter_context(page).address
        self.addresses = Addresses(**served)

    def _serve_grpc(self, listen: str, limit_bytes: int) -> str:
        from paritas.agent.receivers.grpc import GrpcReceiver

        self._grpc = GrpcReceiver(listen, self.intake, max_body_bytes=limit_bytes)
        return self._receivers.enter_context(self._grpc).address

    def run(self, stop: threading.Event, *, on_tick: Callable[[], None] = lambda: None) -> None:
        """Watch over the agent until `stop`, then drain it within the grace."""
        while not stop.is_set():
            on_tick()
            self.tick()
            self._clock.wait(stop, timeout_s=TICK_S)
        self.drain()

    def tick(self) -> None:
        """Tell the health service how things are, and now and then the destination."""
        health = self.health()
        if self._grpc is not None:
            self._grpc.report("", health.is_ready)
            self._grpc.report("spool", not SPOOL_TROUBLE & set(health.reasons))
            self._grpc.report("destination", not TARGET_TROUBLE & set(health.reasons))
        now_ns, report_s = self._clock.monotonic_ns(), self.config.health.report_s
        if report_s and now_ns >= self._report_ns:
            self._report_ns = now_ns + round(report_s * NS)
            self._report(health)

    def _report(self, health: Health) -> None:
        told = self.spool.counters().records
        counts: dict[str, int | str] = {
            "accepted": told.accepted,
            "delivered": told.delivered,
            "queued": told.queued,
            **{f"dropped.{reason}": count for reason, count in told.dropped.items()},
            "health": health.text(),
        }
        self.spool.tell(health_record(self.config.name, counts, now_ns=self._clock.now_ns()))

    def reconfigure(self, load: Callable[[], AgentConfig]) -> ParitasError | None:
        """Go on with a new configuration; with an error, which is returned, the old one holds."""
        try:
            config = load()
            expect_changeable(self.config, config)
        except ParitasError as error:
            self.reloads["refused"] += 1
            return error
        self._pending = config
        self._uids = allowed_uids(config.receivers.peer_uids, any_user=config.receivers.any_user)
        self._nudge.set()
        self.spool.arrived.set()
        self.reloads["applied"] += 1
        return None

    def _apply(self) -> None:
        """Take over a pending configuration, on the shipping thread."""
        config, self._pending = self._pending, None
        if config is None:
            return
        old, self.config = self.config, config
        if config.spool != old.spool:
            self.shipper.give_back()
            try:
                self.spool.reconfigure(config.spool)
            except TransientError as error:
                log.warning("The spool could not be reopened.", extra={"error": str(error)})
        is_new = config.target != old.target
        opener = partial(self._opener, config.target, clock=self._clock) if is_new else None
        self.shipper.reconfigure(opener, config.shipping)

    def _ship(self) -> None:
        """Ship until told to stop; nothing unexpected ends this thread, but everything is counted."""
        while not self._stopping.is_set():
            self._beat_ns = self._clock.monotonic_ns()
            try:
                self._apply()
                pause = self.shipper.step()
            except Exception:
                self.crashes += 1
                log.exception("Shipping failed unexpectedly.")
                self._clock.wait(self._stopping, timeout_s=CRASH_PAUSE_S)
                continue
            if pause.wait is Wait.RECORDS:
                self._clock.wait(self.spool.arrived, timeout_s=pause.seconds)
            elif pause.wait is Wait.TIME:
                self._clock.wait(self._nudge, timeout_s=pause.seconds)
                self._nudge.clear()

    def drain(self) -> None:
        """Deliver what waits, then take no more, then deliver the rest: all within the grace.

        Receivers stay open at first, as the host's last spans come while it is stopped too.
        """
        self._is_draining = True
        self.tick()
        deadline_ns = self._clock.monotonic_ns() + round(self.config.grace_s * NS)
        self._await_empty(deadline_ns)
        self._receivers.close()
        self._await_empty(deadline_ns)

    def _await_empty(self, deadline_ns: int) -> None:
        never = threading.Event()
        self._nudge.set()  # one try at once, whatever the back-off
        while self._queued() and self._clock.monotonic_ns() < deadline_ns:
            self._clock.wait(never, timeout_s=0.02)

    def _queued(self) -> int:
        told = self.spool.counters()
        return told.records.queued + told.own.queued

    def _stop_shipping(self) -> None:
        self._stopping.set()
        self._nudge.set()
        self.spool.arrived.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)  # it may hang in the destination; that is closed under it
        self.shipper.let_go()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        if not self._thread.is_alive():
            self.shipper.close()

    def reading(self) -> Reading:
        """Return one reading of everything that health and metrics are made of."""
        return Reading(
            spool=self.spool.counters(),
            shipper=self.shipper.state(),
            beat_ns=self._beat_ns,
            now_ns=self._clock.monotonic_ns(),
            is_started=self._is_started,
            is_draining=self._is_draining,
        )

    def health(self) -> Health:
        """Return the judgement now."""
        return judge(self.reading(), stall_s=self.config.health.stall_s)

    def page(self) -> str:
        """Return the metrics text."""
        reading = self.reading()
        health = judge(reading, stall_s=self.config.health.stall_s)
        extra = Extra(dict(self.intake.answers), dict(self.reloads), self.crashes, resident_bytes())
        return render(metrics(reading, health, extra))


def resident_bytes() -> int:
    """Return the resident memory of this process, bytes; 0 where /proc does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0
