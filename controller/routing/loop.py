"""The routing loop: hears the journal, decides, keeps the decision, tells it, lets routers be driven.

Log first, then act: a decision is in the log before anybody is told.  After a restart the loop
looks at the whole log again, so nothing that was published meanwhile is missed, and deciding again
about the same changes nothing.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from paritas.clock import NS_PER_S, Clock
from paritas.controller.convert import escalation_of
from paritas.controller.drivers.driver import Driver
from paritas.controller.hub import End, EndReason, Hub, Outbox
from paritas.controller.model import IncidentRow, LoggedEvent
from paritas.controller.routing import rows
from paritas.controller.routing.asks import Seen
from paritas.controller.routing.audit import AuditEntry, AuditKind
from paritas.controller.routing.declared import Declared
from paritas.controller.routing.desired import Decision, Round, decide, due_ns
from paritas.controller.routing.drive import Drive
from paritas.controller.routing.memory import Memory
from paritas.controller.routing.place import Place
from paritas.controller.silences import SilenceBook
from paritas.controller.store_thread import StoreThread
from paritas.errors import ParitasError, UsageError
from paritas.proto.v1 import escalation_pb2 as pb
from paritas.records import Escalation

__all__ = ["RoutingLoop"]

_NAME = ""  # a name that no subscriber can have
_QUEUE = 1024
_LEAST_WAIT_S = 0.001
_RETRY_NS = NS_PER_S

log = logging.getLogger(__name__)


class RoutingLoop:
    """Runs from entering to leaving the context, on the server's event loop.

    Parameters
    ----------
    declared : sequence of Declared
        One fleet a policy.
    store, hub, silences : StoreThread, Hub, SilenceBook
        The controller's own.
    clock : Clock
        What leases, dwell times and the ends of overrides follow.
    drivers : mapping of str to Driver, by policy
        Used instead of those that are declared.

    Attributes
    ----------
    places : dict of str to Place
        What is wanted and what is so, by policy.
    counts : Counter of str
        Rounds, and rounds that failed.
    decided : Counter of (policy, kind)
        Lines of the audit log that decisions gave.

    Raises
    ------
    UsageError
        On entering: two fleets are of one policy, or a driver cannot be opened.
    """

    def __init__(
        self,
        declared: Sequence[Declared],
        *,
        store: StoreThread,
        hub: Hub,
        silences: SilenceBook,
        clock: Clock,
        drivers: dict[str, Driver] | None = None,
    ) -> None:
        self._declared = tuple(declared)
        self._store, self._hub, self._silences, self._clock = store, hub, silences, clock
        self._drivers = drivers or {}
        self._memories: dict[str, Memory] = {}
        self._parsed: dict[str, tuple[bytes, Escalation]] = {}
        self._due_ns: int | None = None
        self._order = asyncio.Lock()
        self._stack = AsyncExitStack()
        self.places: dict[str, Place] = {}
        self.counts: Counter[str] = Counter()
        self.decided: Counter[tuple[str, AuditKind]] = Counter()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for one in self._declared:
                await self._open(one, stack)
            if self._declared:
                await self.round()
                stack.push_async_callback(self.close)
                for task in [self._follow(), *(p.drive.run() for p in self.places.values() if p.drive)]:
                    stack.push_async_callback(_cancel, asyncio.create_task(task))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def close(self) -> None:
        """End every watch; the loop itself ends on leaving.  Twice is fine."""
        for place in self.places.values():
            await place.close()

    async def _open(self, declared: Declared, stack: AsyncExitStack) -> None:
        fleet = declared.fleet
        if fleet.policy in self.places:
            raise UsageError(f"routes: policy {fleet.policy!r} is declared twice", hint="one fleet a policy")
        _, memory = await self._store.run(rows.load_memory, fleet.policy)
        self._memories[fleet.policy] = memory
        drive = None
        if not fleet.dry_run and (driver := self._drivers.get(fleet.policy) or self._driver(declared)):
            opened = await stack.enter_async_context(driver)
            drive = Drive(fleet, opened, record=self.record, clock=self._clock)
        self.places[fleet.policy] = Place(declared, drive, inherited=memory.revision)

    def _driver(self, declared: Declared) -> Driver | None:
        if not declared.driver:
            return None
        from paritas.controller.drivers.registry import open_driver

        return open_driver(declared.driver, declared.settings, declared.fleet, self._clock)

    async def record(self, entries: Sequence[AuditEntry]) -> None:
        """Add lines to the audit log."""
        await self._store.run(rows.write_audit, entries)

    async def round(self) -> None:
        """Look at the log once, and decide for every policy; what is wanted afterwards is in `places`."""
        async with self._order:
            named = {name for memory in self._memories.values() for name in memory.asks}
            view = await self._store.run(rows.view, named)
            forgotten = frozenset(named - {row.subject.incident_id for row in view.incidents})
            incidents = self._seen(view.incidents)
            given = [
                Round(p.fleet, self._clock.now_ns(), incidents, view.overrides, forgotten)
                for p in self.places.values()
            ]
            dues = [await self._decide(one, view.seq) for one in given]
            self._due_ns = min((due for due in dues if due is not None), default=None)
            self.counts["rounds"] += 1

    async def _decide(self, given: Round, seq: int) -> int | None:
        policy = given.fleet.policy
        before = self._memories[policy]
        decision = decide(before, given)
        if decision.audit or _lasting(before) != _lasting(decision.memory):
            await self._store.run(rows.keep, policy, seq, decision.memory, decision.audit)
        self._memories[policy] = decision.memory
        self.decided.update((policy, entry.kind) for entry in decision.audit)
        await self._publish(policy, decision)
        return due_ns(decision.memory, given)

    async def _publish(self, policy: str, decision: Decision) -> None:
        await self.places[policy].publish(decision.routes)

    def _seen(self, found: Iterable[IncidentRow]) -> tuple[Seen, ...]:
        """Parse what changed since the last look; silences are as of now."""
        parsed: dict[str, tuple[bytes, Escalation]] = {}
        seen, now_ns = [], self._clock.now_ns()
        for row in found:
            name = row.subject.incident_id
            known = self._parsed.get(name)
            if known is None or known[0] != row.payload:
                known = (row.payload, escalation_of(pb.Escalation.FromString(row.payload)))
            parsed[name] = known
            seen.append(Seen(known[1], self._silences.suppression(row.subject, now_ns=now_ns)))
        self._parsed = parsed
        return tuple(seen)

    async def _follow(self) -> None:
        """Decide after each event, when something is due, and in time to renew the leases."""
        while True:
            outbox = Outbox(capacity=_QUEUE, wants=_wants)
            self._hub.join(_NAME, outbox)
            self._hub.attach(outbox)
            try:
                end = await self._serve(outbox)
            finally:
                self._hub.leave(_NAME, outbox)
            if end.reason is EndReason.DRAINING:
                return

    async def _serve(self, outbox: Outbox) -> End:
        """Decide until the stream of events ends; one that overflowed is begun again."""
        ended = asyncio.ensure_future(outbox.ended())
        try:
            while not ended.done():
                await self._guarded_round()
                await self._news(outbox, ended)
            return ended.result()
        finally:
            ended.cancel()

    async def _guarded_round(self) -> None:
        try:
            await self.round()
        except ParitasError as error:  # the log cannot be used just now; leases run out meanwhile
            self._failed(error)
        except Exception:  # the task's top: one bad round must not end the loop
            self.counts["faults"] += 1
            log.exception("A routing round failed.")
        else:
            return
        self._due_ns = self._clock.now_ns() + _RETRY_NS  # what was due is so still: not at every moment

    def _failed(self, error: ParitasError) -> None:
        self.counts["failed"] += 1
        log.warning("A routing round failed.", extra={"error": str(error)})

    async def _news(self, outbox: Outbox, ended: "asyncio.Future[End]") -> None:
        """Wait for an event, the end of the stream, or the next due time; take all that waits."""
        first = asyncio.ensure_future(outbox.first())
        waited: set[asyncio.Future[Any]] = {first, ended}
        try:
            await asyncio.wait(waited, timeout=self._wait_s(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            first.cancel()
        while len(outbox):
            outbox.drop_first()

    def _wait_s(self) -> float:
        lease_s = min(p.fleet.limits.lease_s for p in self.places.values()) / 3
        if self._due_ns is None:
            return lease_s
        due_s = (self._due_ns - self._clock.now_ns()) / NS_PER_S
        return max(_LEAST_WAIT_S, min(lease_s, due_s))


def _wants(_event: LoggedEvent) -> bool:
    return True


def _lasting(memory: Memory) -> Memory:
    """Leave out what a renewal changes."""
    routes = {name: replace(route, valid_until_ns=0) for name, route in memory.routes.items()}
    return replace(memory, now_ns=0, routes=routes)


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
