"""One router, kept at what is wanted: apply, read back, try again, tell."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from paritas.clock import Clock
from paritas.controller.backoff import Backoff, delay_s
from paritas.controller.drivers.driver import Applied, Driver, Observed, Outcome
from paritas.controller.routing.audit import AuditEntry, AuditKind
from paritas.controller.routing.drift import differences
from paritas.controller.routing.model import Fleet, Route, RouteKey
from paritas.errors import ParitasError

__all__ = ["Drive", "Shown"]

BACKOFF = Backoff(first_s=0.2, most_s=30.0)
_CALL_S = 30.0  # a driver bounds itself; this bounds a driver that does not

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shown:
    """What is known of the router.

    Attributes
    ----------
    applied : mapping of RouteKey to Applied
        What became of each route.
    observed : Observed or None
        What the router says; None when it could not be asked, `fault` says why.
    drift : tuple of str
        How it differs from what is wanted.
    revisions : mapping of RouteKey to int
        Of the routes that it was told.
    """

    applied: Mapping[RouteKey, Applied] = field(default_factory=dict)
    observed: Observed | None = None
    fault: str = ""
    drift: tuple[str, ...] = ()
    revisions: Mapping[RouteKey, int] = field(default_factory=dict)

    @property
    def is_confirmed(self) -> bool:
        """Everything this router can do was read back."""
        done = (Outcome.APPLIED, Outcome.UNSUPPORTED)
        return bool(self.applied) and not self.drift and all(a.outcome in done for a in self.applied.values())


class Drive:
    """Keeps one router at the newest wish; `turn` is one try.

    Parameters
    ----------
    fleet, driver : Fleet, Driver
        Whose router, and how it is told; the driver is open.
    record : async callable
        Takes lines of the audit log.
    clock : Clock
        Stamps them.

    Attributes
    ----------
    shown : Shown
        What the last turn found.
    counts : Counter of str
        Turns by how they ended, and faults of the driver itself.
    told : Counter of Outcome
        Changes of routes, by what became of them.
    """

    def __init__(
        self,
        fleet: Fleet,
        driver: Driver,
        *,
        record: Callable[[Sequence[AuditEntry]], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._fleet, self._driver = fleet, driver
        self._record, self._clock = record, clock
        self._wish: tuple[Route, ...] = ()
        self._woken = asyncio.Event()
        self._failures = 0
        self._told: dict[RouteKey, tuple[int, Outcome]] = {}
        self._random = Random(fleet.policy)  # noqa: S311  # spreads waits, keeps no secret
        self.shown = Shown()
        self.counts: Counter[str] = Counter()
        self.told: Counter[Outcome] = Counter()

    @property
    def name(self) -> str:
        """Name of the driver."""
        return self._driver.name

    def want(self, routes: Sequence[Route]) -> None:
        """Make `routes` the wish; one of newer revisions is told at once, a renewed lease in its time."""
        is_new = [(r.key, r.revision) for r in routes] != [(r.key, r.revision) for r in self._wish]
        self._wish = tuple(routes)
        if is_new:
            self._failures = 0
            self._woken.set()

    async def run(self) -> None:
        """Take turns until cancelled."""
        while True:
            self._woken.clear()
            wait_s = await self._guarded_turn()
            try:
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _guarded_turn(self) -> float:
        try:
            return await self.turn()
        except ParitasError as error:  # the log cannot be written just now
            log.warning("A turn of the routing loop failed.", extra={"error": str(error)})
        except Exception:  # the task's top: a fault in a driver must not end the driving
            self.counts["faults"] += 1
            log.exception("The driver failed.", extra={"driver": self.name})
        return self._later_s()

    def _later_s(self) -> float:
        self._failures += 1
        return delay_s(BACKOFF, self._failures, random=self._random)

    async def turn(self) -> float:
        """Look for drift, apply, read back, tell; return after how many seconds to do so again."""
        wish = self._wish
        if not wish:
            return self._fleet.limits.lease_s / 3
        await self._look_for_drift(wish)
        applied = await self._apply(wish)
        observed, fault = await self._observe()
        drift = differences(_supported(wish, applied), observed, self._fleet) if observed else ()
        revisions = {route.key: route.revision for route in wish}
        self.shown = Shown(_read_back(applied, observed, drift), observed, fault, drift, revisions)
        self.counts["confirmed" if self.shown.is_confirmed else "unconfirmed"] += 1
        await self._tell(wish)
        if self.shown.is_confirmed:
            self._failures = 0
            return self._fleet.limits.lease_s / 3  # apply again: that renews what carries a lease
        return self._later_s()

    async def _look_for_drift(self, wish: Sequence[Route]) -> None:
        """What was confirmed and is so no longer was changed by somebody else: shown, then put right."""
        known = [r for r in wish if self._told.get(r.key) == (r.revision, Outcome.APPLIED)]
        if not known or not self.shown.is_confirmed:
            return
        observed, _ = await self._observe()
        drift = differences(known, observed, self._fleet) if observed else ()
        if drift:
            self.counts["drifts"] += 1
            detail = f"{self.name} shows: {'; '.join(drift)}"
            await self._record([self._entry(known[0], AuditKind.DRIFTED, detail)])

    async def _apply(self, wish: Sequence[Route]) -> dict[RouteKey, Applied]:
        try:
            async with asyncio.timeout(_CALL_S):
                return {applied.key: applied for applied in await self._driver.apply(wish)}
        except TimeoutError:
            text = f"no answer within {_CALL_S:g} s"
        except ParitasError as error:
            text = str(error)
        return {route.key: Applied(route.key, Outcome.FAILED, text) for route in wish}

    async def _observe(self) -> tuple[Observed | None, str]:
        try:
            async with asyncio.timeout(_CALL_S):
                return await self._driver.observe(), ""
        except TimeoutError:
            return None, f"no answer within {_CALL_S:g} s"
        except ParitasError as error:
            return None, str(error)

    async def _tell(self, wish: Sequence[Route]) -> None:
        """Write down what became of each route, once for each revision and outcome."""
        news = [
            (route, applied)
            for route in wish
            if (applied := self.shown.applied.get(route.key))
            and self._told.get(route.key) != (route.revision, applied.outcome)
        ]
        if news:
            await self._record([self._entry(r, AuditKind.APPLIED, _said(self.name, a)) for r, a in news])
        for route, applied in news:  # now they are written: had that failed, they would be told again
            self._told[route.key] = (route.revision, applied.outcome)
            self.told[applied.outcome] += 1

    def _entry(self, route: Route, kind: AuditKind, detail: str) -> AuditEntry:
        found = (route.revision, route.incidents, self._fleet.dry_run)
        return AuditEntry(self._clock.now_ns(), route.key, kind, None, detail, *found)


def _said(name: str, applied: Applied) -> str:
    took = f" in {applied.took_s * 1000:.1f} ms" if applied.took_s else ""
    return f"{name}: {applied.outcome.value}{took}" + (f": {applied.detail}" if applied.detail else "")


def _supported(wish: Sequence[Route], applied: Mapping[RouteKey, Applied]) -> list[Route]:
    unable = {key for key, one in applied.items() if one.outcome is Outcome.UNSUPPORTED}
    return [route for route in wish if route.key not in unable]


def _read_back(
    applied: Mapping[RouteKey, Applied], observed: Observed | None, drift: tuple[str, ...]
) -> dict[RouteKey, Applied]:
    """What the router took and now shows is applied; what it says it did and does not show is only accepted."""
    seen = {Outcome.ACCEPTED: Outcome.APPLIED} if observed and not drift else {}
    unseen = {Outcome.APPLIED: Outcome.ACCEPTED} if drift else {}
    changed = {**seen, **unseen}
    return {key: replace(one, outcome=changed.get(one.outcome, one.outcome)) for key, one in applied.items()}
