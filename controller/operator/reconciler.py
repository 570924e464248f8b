"""One pass: everything is read from the cluster, and only what differs is written.  Remembers nothing of objects.

So a handler that runs twice, a restart and a missed event are the same to it.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paritas.clock import Clock
from paritas.controller.async_client import AsyncEscalationClient
from paritas.controller.model import Incident
from paritas.controller.operator.cluster_api import ClusterApi
from paritas.controller.operator.counts import Counts
from paritas.controller.operator.items import Reader
from paritas.controller.operator.model import About, Item, Plan, Sighting, Truth, Why
from paritas.controller.operator.publishing import (
    Published,
    apply_body,
    existing_of,
    is_current,
    publish,
    withheld,
)
from paritas.controller.operator.sightings import sightings
from paritas.controller.operator.status import status_of
from paritas.controller.operator.summary import Summary, summary_of
from paritas.errors import ParitasError, PermanentError

__all__ = ["Reconciler"]

_log = logging.getLogger(__name__)
_NS_PER_S = 1_000_000_000
_AWAY = (Why.DETECTOR_AWAY, Why.DIGEST_NOT_TOLD)


@dataclass(frozen=True, slots=True)
class _Heard:
    """What the controller and the detectors said, and when (monotonic ns)."""

    at_ns: int
    summaries: Mapping[str, Summary] | Why
    sightings: Mapping[str, Sighting] = field(default_factory=dict)


class Reconciler:
    """Compares and writes.

    Parameters
    ----------
    cluster : ClusterApi
        Entered.
    controller : AsyncEscalationClient or None
        Who knows the incidents; None if the operator was not told.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: ClusterApi,
        controller: AsyncEscalationClient | None,
        *,
        clock: Clock,
        counts: Counts,
    ) -> None:
        self._plan, self._cluster, self._controller = plan, cluster, controller
        self._clock, self._counts = clock, counts
        self._reader = Reader()
        self._heard: _Heard | None = None
        self._namespaces = {plan.namespace} - {""}

    async def run_pass(self) -> None:
        """Bring every ConfigMap and status up to date.

        Raises
        ------
        TransientError, PermanentError
            The objects cannot be listed, or no namespace's ConfigMap can be asked for or written: nothing is told then.
            What fails elsewhere is counted and tried again by the next pass.
        """
        items = self._reader.items(await self._cluster.contracts())
        heard = await self._hear(items)
        self._namespaces |= {item.namespace for item in items}
        asked = sorted(self._namespaces)
        told = [await self._namespace(n, [i for i in items if i.namespace == n], heard) for n in asked]
        faults = [fault for fault in told if fault is not None]
        if faults and len(faults) == len(asked):
            raise faults[0]
        for fault in faults:
            self._failed("cluster", fault)
        self._count(items)

    async def _namespace(self, namespace: str, items: Sequence[Item], heard: _Heard) -> ParitasError | None:
        """Bring one namespace up to date; return why nothing of it could be."""
        try:
            found = await self._publish(namespace, items)
        except ParitasError as error:
            return error
        for item in items:
            await self._tell(item, found[item.uid], heard)
        return None

    async def _publish(self, namespace: str, items: Sequence[Item]) -> dict[str, Published]:
        existing = existing_of(await self._cluster.config_map(namespace, self._plan.config_map))
        found = publish(items, existing)
        if is_current(existing, items, found):
            if not items and namespace != self._plan.namespace:
                self._namespaces.discard(namespace)  # else one that is gone is asked about for ever
            return found
        try:
            body = apply_body(self._plan, namespace, existing, items, found)
            await self._cluster.apply_config_map(body)
        except PermanentError as error:
            self._failed("cluster", error)
            return withheld(items, existing, found, str(error))
        self._counts.writes["config_map"] += 1
        return found

    async def _tell(self, item: Item, published: Published, heard: _Heard) -> None:
        summaries = heard.summaries
        summary = summaries if isinstance(summaries, Why) else summaries.get(item.name, Summary({}))
        sighting = heard.sightings.get(item.uid, Sighting(why=Why.DIGEST_NOT_TOLD, detail="not asked yet"))
        wanted = status_of(item, published, sighting, summary, now_ns=self._clock.now_ns())
        if wanted == item.status:
            return
        try:
            await self._cluster.apply_status(item, wanted)
        except ParitasError as error:
            self._failed("cluster", error)
        else:
            self._counts.writes["status"] += 1

    async def _hear(self, items: Sequence[Item]) -> _Heard:
        """Ask the controller and the detectors, at most every `refresh_s`; a new object waits for its turn."""
        now_ns, known = self._clock.monotonic_ns(), self._heard
        if known is not None and now_ns - known.at_ns < self._plan.refresh_s * _NS_PER_S:
            return known
        seen = await sightings(self._plan, items)
        self._counts.failures["detector"] += sum(s.why in _AWAY for s in seen.values())
        self._heard = _Heard(now_ns, await self._summaries(), seen)
        return self._heard

    async def _summaries(self) -> Mapping[str, Summary] | Why:
        if self._controller is None:
            return Why.NO_CONTROLLER
        try:
            incidents = await self._controller.incidents()
        except ParitasError as error:
            self._failed("controller", error)
            return Why.CONTROLLER_AWAY
        return {name: summary_of(found) for name, found in _by_contract(incidents).items()}

    def _count(self, items: Iterable[Item]) -> None:
        counts = self._counts
        counts.contracts.clear()
        counts.contracts.update("false" if item.contract is None else "true" for item in items)
        counts.violated = sum(_is_violated(item.status) for item in items)
        counts.passes += 1
        counts.last_pass_ns = self._clock.now_ns()

    def _failed(self, part: str, error: ParitasError) -> None:
        self._counts.failures[part] += 1
        _log.warning(
            "A pass was not complete; the next one tries again.", extra={"part": part, "detail": str(error)}
        )


def _by_contract(incidents: Iterable[Incident]) -> dict[str, list[Incident]]:
    found: dict[str, list[Incident]] = {}
    for incident in incidents:
        found.setdefault(incident.current.contract, []).append(incident)
    return found


def _is_violated(status: Mapping[str, Any]) -> bool:
    conditions = status.get("conditions") or ()
    return any(c["type"] == About.VIOLATED and c["status"] == Truth.TRUE for c in conditions)
