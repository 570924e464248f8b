"""Routes, tables, overrides and audit lines to and from their messages; the only place that knows both."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from paritas.clock import NS_PER_S
from paritas.controller.refusals import RefusalError, Refused
from paritas.controller.routing.audit import AuditEntry, AuditKind
from paritas.controller.routing.drive import Shown
from paritas.controller.routing.model import ALL, Hold, Replica, RouteKey, Why
from paritas.controller.routing.override import Override
from paritas.controller.routing.place import Place
from paritas.controller.routing.table import Resolution, Table, TableRoute
from paritas.proto.v1 import route_pb2 as pb

__all__ = [
    "entry_of",
    "entry_to",
    "override_of",
    "override_to",
    "renewed_until_ns",
    "resolution_of",
    "resolution_to",
    "state_to",
    "table_from",
    "table_to",
    "valid_for_s",
]

N = TypeVar("N", bound=StrEnum)


def valid_for_s(table: Table, *, now_ns: int) -> float:
    """Return how long the lease still lasts; never negative."""
    return max(0.0, (table.valid_until_ns - now_ns) / NS_PER_S)


def renewed_until_ns(left_s: float, *, now_ns: int) -> int:
    """Return the end of a lease by the receiver's clock; clocks of two machines need not agree."""
    return now_ns + round(left_s * NS_PER_S)


def table_to(table: Table, *, now_ns: int) -> pb.RouteTable:
    """Return the message of `table`, its lease from now."""
    return pb.RouteTable(
        policy=table.policy,
        revision=table.revision,
        routes=[_route_to(route) for route in table.routes],
        replicas=[_replica_to(replica, table.drained) for replica in table.replicas],
        dry_run=table.dry_run,
        valid_for_s=valid_for_s(table, now_ns=now_ns),
        valid_until_ns=table.valid_until_ns,
        fail_mode=table.fail_mode,
    )


def table_from(message: pb.RouteTable, *, now_ns: int) -> Table:
    """Return the table of a message that came at `now_ns` of the receiver's clock."""
    return Table(
        policy=message.policy,
        revision=message.revision,
        routes=tuple(_route_of(route) for route in message.routes),
        replicas=tuple(Replica(r.name, r.kernel, r.target) for r in message.replicas),
        drained=frozenset(r.name for r in message.replicas if r.drained),
        dry_run=message.dry_run,
        valid_until_ns=renewed_until_ns(message.valid_for_s, now_ns=now_ns),
        fail_mode=message.fail_mode,
    )


def _replica_to(replica: Replica, drained: frozenset[str]) -> pb.Replica:
    return pb.Replica(
        name=replica.name, kernel=replica.kernel, target=replica.target, drained=replica.name in drained
    )


def _route_to(route: TableRoute) -> pb.Route:
    return pb.Route(
        slice=route.slice,
        headers=route.headers,
        weights=route.weights,
        shadow=route.shadow,
        fallback=route.fallback,
        holds={hold.value: argument for hold, argument in route.holds.items()},
        why=route.why,
        detail=route.detail,
        incidents=route.incidents,
        revision=route.revision,
    )


def _route_of(message: pb.Route) -> TableRoute:
    """A hold that this version does not know is left out; a reason stays text."""
    known = {hold.value: hold for hold in Hold}
    return TableRoute(
        slice=message.slice,
        headers=_sorted(message.headers),
        weights=_sorted(message.weights),
        shadow=_sorted(message.shadow),
        fallback=_sorted(message.fallback),
        holds={known[name]: text for name, text in _sorted(message.holds).items() if name in known},
        why=message.why,
        detail=message.detail,
        incidents=tuple(message.incidents),
        revision=message.revision,
    )


V = TypeVar("V")


def _sorted(found: Mapping[str, V]) -> dict[str, V]:
    return {name: found[name] for name in sorted(found)}


def resolution_to(resolution: Resolution) -> pb.ResolveResponse:
    """Return the message of `resolution`."""
    return pb.ResolveResponse(
        kernel=resolution.kernel,
        slice=resolution.slice,
        revision=resolution.revision,
        valid_for_s=resolution.valid_for_s,
        why=resolution.why,
        detail=resolution.detail,
        dry_run=resolution.dry_run,
        replicas=[_replica_to(replica, frozenset()) for replica in resolution.replicas],
    )


def resolution_of(message: pb.ResolveResponse) -> Resolution:
    """Return the record of `message`."""
    return Resolution(
        message.kernel,
        message.slice,
        message.revision,
        message.valid_for_s,
        message.why,
        message.detail,
        message.dry_run,
        tuple(Replica(r.name, r.kernel, r.target) for r in message.replicas),
    )


def state_to(place: Place, *, now_ns: int) -> pb.RouteState:
    """Return what is wanted of a policy and what its router shows."""
    shown = place.drive.shown if place.drive else Shown()
    observed = shown.observed
    return pb.RouteState(
        table=table_to(place.table, now_ns=now_ns),
        shown=[_shown_to(route, place, shown) for route in place.table.routes],
        driver=place.drive.name if place.drive else place.declared.driver,
        serving=sorted(observed.serving) if observed else (),
        unknown=observed.unknown if observed else (),
        fault=shown.fault,
    )


def _shown_to(route: TableRoute, place: Place, shown: Shown) -> pb.Shown:
    key = RouteKey(place.fleet.policy, route.slice)
    applied = shown.applied.get(key)
    return pb.Shown(
        slice=route.slice,
        outcome=applied.outcome.value if applied else "",
        detail=applied.detail if applied else "",
        took_s=applied.took_s if applied else 0.0,
        weights=shown.observed.weights.get(key, {}) if shown.observed else {},
        drifts=bool(shown.drift),
        revision=shown.revisions.get(key, 0),
    )


def override_to(override: Override) -> pb.RouteOverride:
    """Return the message of `override`."""
    return pb.RouteOverride(
        override_id=override.override_id,
        policy=override.key.policy,
        slice=override.key.slice,
        author=override.author,
        reason=override.reason,
        starts_ns=override.starts_ns,
        ends_ns=override.ends_ns,
        weights=override.weights,
        shadow=override.shadow,
        drain=sorted(override.drain),
        admit=sorted(override.admit),
        release=sorted(hold.value for hold in override.release),
        yields=override.yields,
        expired_by=override.expired_by,
    )


def override_of(message: pb.RouteOverride) -> Override:
    """Return the record of `message`.

    Raises
    ------
    RefusalError
        INVALID for a hold that there is not.
    """
    return Override(
        override_id=message.override_id,
        key=RouteKey(message.policy, message.slice or ALL),
        author=message.author,
        reason=message.reason,
        starts_ns=message.starts_ns,
        ends_ns=message.ends_ns,
        weights=_sorted(message.weights),
        shadow=_sorted(message.shadow),
        drain=frozenset(message.drain),
        admit=frozenset(message.admit),
        release=frozenset(_named(Hold, name, "release") for name in message.release),
        yields=message.yields,
        expired_by=message.expired_by,
    )


def _named(kind: type[N], name: str, field: str) -> N:
    try:
        return kind(name)
    except ValueError as error:
        known = ", ".join(kind)
        message = f"{field}: there is no {name!r}"
        raise RefusalError(message, reason=Refused.INVALID, hint=f"one of {known}") from error


def entry_to(entry: AuditEntry) -> pb.RouteAuditEntry:
    """Return the message of `entry`."""
    return pb.RouteAuditEntry(
        entry=entry.entry,
        at_ns=entry.at_ns,
        policy=entry.key.policy,
        slice=entry.key.slice,
        kind=entry.kind.value,
        why=entry.why.value if entry.why else "",
        detail=entry.detail,
        revision=entry.revision,
        incidents=entry.incidents,
        dry_run=entry.dry_run,
    )


def entry_of(message: pb.RouteAuditEntry) -> AuditEntry:
    """Return the record of `message`."""
    return AuditEntry(
        at_ns=message.at_ns,
        key=RouteKey(message.policy, message.slice),
        kind=_named(AuditKind, message.kind, "kind"),
        why=_named(Why, message.why, "why") if message.why else None,
        detail=message.detail,
        revision=message.revision,
        incidents=tuple(message.incidents),
        dry_run=message.dry_run,
        entry=message.entry,
    )
