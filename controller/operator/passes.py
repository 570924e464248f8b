"""When a pass is run, and whether passes still reach the cluster."""

import asyncio
import logging

from paritas.clock import Clock
from paritas.controller.operator.counts import Counts
from paritas.controller.operator.model import Plan
from paritas.controller.operator.reconciler import Reconciler
from paritas.errors import ParitasError

__all__ = ["Passes"]

SETTLE_S = 0.2  # several objects that are applied together are one pass
LATE_PERIODS = 3  # refresh periods without a pass after which it is not ready
STUCK_S = 120.0  # a pass that takes longer hangs; probes restart it
_NS_PER_S = 1_000_000_000
_log = logging.getLogger(__name__)


class Passes:
    """Runs a pass when it is woken, and every `refresh_s` anyway."""

    def __init__(self, plan: Plan, reconciler: Reconciler, *, clock: Clock, counts: Counts) -> None:
        self._plan, self._reconciler = plan, reconciler
        self._clock, self._counts = clock, counts
        self._woken, self._reached = asyncio.Event(), asyncio.Event()
        self._begun_ns = clock.monotonic_ns()
        self._reached_ns: int | None = None
        self._fault = "no pass has reached the cluster yet"

    def wake(self) -> None:
        """Ask for a pass."""
        self._woken.set()

    async def first(self, stop: asyncio.Event) -> None:
        """Wait for the first pass that reached the cluster, or for the end."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._reached, stop)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def run(self) -> None:
        """Pass after pass until cancelled."""
        while True:
            self._woken.clear()
            self._begun_ns = self._clock.monotonic_ns()
            await self._pass()
            try:
                await asyncio.wait_for(self._woken.wait(), self._plan.refresh_s)
                await asyncio.sleep(SETTLE_S)
            except TimeoutError:
                continue

    async def _pass(self) -> None:
        try:
            await self._reconciler.run_pass()
        except ParitasError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 -- the loop's top: counted, told, and the next pass tries again
            _log.exception("A pass failed.")
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self._reached_ns = self._clock.monotonic_ns()
            self._reached.set()

    def _fail(self, fault: str) -> None:
        self._counts.failures["cluster"] += 1
        self._fault = fault
        _log.warning("The cluster was not reached; the next pass tries again.", extra={"detail": fault})

    def why_not_ready(self) -> str:
        """Say why what the cluster shows may be old; empty if it is not."""
        limit_ns = LATE_PERIODS * self._plan.refresh_s * _NS_PER_S
        reached_ns = self._reached_ns
        is_late = reached_ns is None or self._clock.monotonic_ns() - reached_ns > limit_ns
        return self._fault if is_late else ""

    def why_not_alive(self) -> str:
        """Say whether a pass hangs."""
        took_ns = self._clock.monotonic_ns() - self._begun_ns
        limit_s = self._plan.refresh_s + STUCK_S
        return f"no pass has begun for {took_ns // _NS_PER_S} s" if took_ns > limit_s * _NS_PER_S else ""
