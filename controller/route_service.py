"""RouteService over gRPC: every method is a thin edge around the loop."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from paritas.clock import Clock
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.route_wire import (
    entry_to,
    override_of,
    override_to,
    resolution_to,
    state_to,
    table_to,
    valid_for_s,
)
from paritas.controller.routing import rows
from paritas.controller.routing.audit import AuditEntry, AuditKind
from paritas.controller.routing.loop import RoutingLoop
from paritas.controller.routing.model import Why
from paritas.controller.routing.override import Override as Word
from paritas.controller.routing.override import check_override
from paritas.controller.routing.place import Place
from paritas.controller.routing.table import resolve
from paritas.controller.statuses import answered, status_of, text_of
from paritas.controller.store_thread import StoreThread
from paritas.errors import ParitasError
from paritas.proto.v1 import route_pb2 as pb
from paritas.proto.v1 import route_pb2_grpc as pb_grpc

__all__ = ["SERVICE", "RouteService"]

SERVICE: str = pb.DESCRIPTOR.services_by_name["RouteService"].full_name
_DEFAULT_PAGE = 100
_MAX_PAGE = 1000
_TEXT_BYTES = 4096


class RouteService(pb_grpc.RouteServiceServicer):
    """The methods of the service, on one event loop.

    Parameters
    ----------
    loop : RoutingLoop
        Runs on the same event loop.
    store, clock : StoreThread, Clock
        The controller's.
    """

    def __init__(self, loop: RoutingLoop, *, store: StoreThread, clock: Clock) -> None:
        self._loop, self._store, self._clock = loop, store, clock
        self._keeping: set[asyncio.Task[None]] = set()

    async def Watch(  # noqa: N802
        self, request: pb.WatchRoutesRequest, context: Any
    ) -> AsyncIterator[pb.WatchRoutesResponse]:
        """Serve one watch."""
        try:
            async for message in self._watch(self._place(request.policy), request.revision):
                yield message
        except ParitasError as error:
            await context.abort(status_of(error), text_of(error))

    async def _watch(self, place: Place, revision: int) -> AsyncIterator[pb.WatchRoutesResponse]:
        """Send the newest table when its revision is not the one known, else renew its lease."""
        # Of an earlier process's revision the routes are known, and not the replicas, limits and the dry run.
        known, table = (revision if revision > place.inherited else 0), place.table
        while True:
            now_ns = self._clock.now_ns()
            if table.revision == known:
                renewal = pb.Renewal(revision=known, valid_for_s=valid_for_s(table, now_ns=now_ns))
                yield pb.WatchRoutesResponse(renewal=renewal)
            else:
                known = table.revision
                yield pb.WatchRoutesResponse(table=table_to(table, now_ns=now_ns))
            newer = await place.after(table)
            if newer is None:
                return
            table = newer

    @answered
    async def Get(self, request: pb.GetRoutesRequest, _context: Any) -> pb.GetRoutesResponse:  # noqa: N802
        """Return what is wanted and what is so."""
        places = [self._place(request.policy)] if request.policy else self._loop.places.values()
        now_ns = self._clock.now_ns()
        return pb.GetRoutesResponse(states=[state_to(place, now_ns=now_ns) for place in places])

    @answered
    async def Resolve(self, request: pb.ResolveRequest, _context: Any) -> pb.ResolveResponse:  # noqa: N802
        """Return the kernel of one request."""
        table = self._place(request.policy).table
        key = request.sticky_key or secrets.token_hex(8)
        return resolution_to(resolve(table, request.attributes, key, now_ns=self._clock.now_ns()))

    @answered
    async def Override(self, request: pb.OverrideRequest, _context: Any) -> pb.OverrideResponse:  # noqa: N802
        """Begin an override; the routes follow it when this returns."""
        asked, now_ns = override_of(request.override), self._clock.now_ns()
        made = replace(
            asked, override_id=secrets.token_hex(8), starts_ns=asked.starts_ns or now_ns, expired_by=""
        )
        _check_texts(author=made.author, reason=made.reason)
        check_override(made, self._place(made.key.policy).fleet, now_ns=now_ns)
        await self._keep(made, f"override {made.override_id} by {made.author}: {made.reason}", now_ns=now_ns)
        return pb.OverrideResponse(override=override_to(made))

    @answered
    async def ExpireOverride(  # noqa: N802
        self, request: pb.ExpireOverrideRequest, _context: Any
    ) -> pb.ExpireOverrideResponse:
        """End an override now; ending one that is over changes nothing."""
        _check_texts(author=request.author)
        found = {o.override_id: o for o in await self._store.run(rows.overrides)}.get(request.override_id)
        if found is None:
            message = f"override {request.override_id!r} is not known"
            raise RefusalError(message, reason=Refused.NOT_FOUND, hint="it may be over and forgotten")
        now_ns = self._clock.now_ns()
        if now_ns < found.ends_ns:
            starts_ns = min(found.starts_ns, now_ns)
            found = replace(found, starts_ns=starts_ns, ends_ns=now_ns, expired_by=request.author)
            await self._keep(found, f"override {found.override_id} ended by {request.author}", now_ns=now_ns)
        return pb.ExpireOverrideResponse(override=override_to(found))

    async def _keep(self, override: Word, detail: str, *, now_ns: int) -> None:
        """Keep it and decide; a caller that gives up does not stop it half-way."""
        task = asyncio.ensure_future(self._kept(override, detail, now_ns=now_ns))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)
        await asyncio.shield(task)

    async def _kept(self, override: Word, detail: str, *, now_ns: int) -> None:
        place = self._loop.places.get(override.key.policy)
        dry_run = place.fleet.dry_run if place else True
        entry = AuditEntry(now_ns, override.key, AuditKind.OVERRIDDEN, Why.OVERRIDE, detail, dry_run=dry_run)
        await self._store.run(rows.keep_override, override, [entry])
        await self._loop.round()

    @answered
    async def ListOverrides(  # noqa: N802
        self, request: pb.ListOverridesRequest, _context: Any
    ) -> pb.ListOverridesResponse:
        """Return the overrides, by end."""
        now_ns = self._clock.now_ns()
        wanted = [
            o
            for o in await self._store.run(rows.overrides)
            if request.policy in {"", o.key.policy} and (request.include_ended or now_ns < o.ends_ns)
        ]
        return pb.ListOverridesResponse(overrides=map(override_to, wanted))

    @answered
    async def Audit(self, request: pb.AuditRequest, _context: Any) -> pb.AuditResponse:  # noqa: N802
        """Return one page of the audit log, newest first."""
        limit = request.page_size or _DEFAULT_PAGE
        if limit > _MAX_PAGE:
            message = f"page_size: at most {_MAX_PAGE}, got {limit}"
            raise RefusalError(message, reason=Refused.INVALID)
        page = await self._store.run(rows.audit_before, request.policy, before=request.before, limit=limit)
        following = page[-1].entry if len(page) == limit else 0
        return pb.AuditResponse(entries=map(entry_to, page), next_before=following)

    def _place(self, policy: str) -> Place:
        place = self._loop.places.get(policy)
        if place is None:
            known = ", ".join(sorted(self._loop.places))
            hint = f"routed here: {known}" if known else "start the controller with --routes"
            raise RefusalError(f"policy {policy!r} is not routed here", reason=Refused.NOT_FOUND, hint=hint)
        return place


def _check_texts(**texts: str) -> None:
    if not texts["author"].strip():
        raise RefusalError("author: must not be empty", reason=Refused.INVALID)
    for name, text in texts.items():
        if len(text.encode()) > _TEXT_BYTES:
            message = f"{name}: {len(text.encode())} bytes, at most {_TEXT_BYTES} are taken"
            raise RefusalError(message, reason=Refused.INVALID)
