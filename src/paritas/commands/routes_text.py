"""Routes, overrides and audit lines as text for people and as plain values for programs."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime

from google.protobuf.json_format import MessageToDict

from paritas.clock import NS_PER_S
from paritas.controller.routing.audit import AuditEntry
from paritas.controller.routing.override import Override
from paritas.proto.v1 import route_pb2 as pb

__all__ = ["audit_dict", "audit_line", "override_dict", "override_line", "state_dict", "state_lines"]


def state_dict(state: pb.RouteState) -> dict[str, object]:
    """Return a state as JSON-ready values; every field is there, numbers are numbers."""
    told: dict[str, object] = MessageToDict(
        state, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return told


def state_lines(state: pb.RouteState) -> Iterator[str]:
    """What is wanted of a policy, why, and what its router shows."""
    table = state.table
    mode = (
        "dry run: nothing is applied" if table.dry_run else f"driven by {state.driver or 'those who resolve'}"
    )
    yield (
        f"{table.policy}  revision {table.revision}, {mode}; valid for {table.valid_for_s:.0f} s, "
        f"then {table.fail_mode}"
    )
    shown = {one.slice: one for one in state.shown}
    for route in table.routes:
        yield from _route_lines(route, shown.get(route.slice))
    drained = sorted(replica.name for replica in table.replicas if replica.drained)
    if drained:
        yield f"  out: {', '.join(drained)}"
    if state.unknown:
        yield f"  not declared, not touched: {', '.join(state.unknown)}"
    if state.fault:
        yield f"  the router cannot be asked: {state.fault}"


def _route_lines(route: pb.Route, shown: pb.Shown | None) -> Iterator[str]:
    yield f"  {route.slice}: {_shares(route.weights)}  ({route.why})"
    if route.shadow:
        yield f"    copied: {_shares(route.shadow)}"
    for name, argument in sorted(route.holds.items()):
        yield f"    asks the trainer: {name} {argument}".rstrip()
    if route.detail:
        yield f"    {route.detail}"
    if shown is not None and shown.outcome:
        seen = f", shows {_shares(shown.weights)}" if shown.weights else ""
        drift = ", not what is wanted" if shown.drifts else ""
        drift += f", of revision {shown.revision}" if shown.revision != route.revision else ""
        yield f"    router: {shown.outcome}{seen}{drift}" + (f": {shown.detail}" if shown.detail else "")


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{kernel} {shares[kernel]:g}" for kernel in sorted(shares))


def override_dict(override: Override) -> dict[str, object]:
    """Return an override as JSON-ready values."""
    sets = {name: sorted(getattr(override, name)) for name in ("drain", "admit", "release")}
    return {**asdict(override), **sets}


def override_line(override: Override) -> str:
    """Return an override in one line."""
    parts = [_shares(override.weights)] if override.weights else []
    parts += [f"copied to {_shares(override.shadow)}"] if override.shadow else []
    for verb in ("drain", "admit", "release"):
        if names := getattr(override, verb):
            parts.append(f"{verb} {' '.join(sorted(names))}")
    ended = f", ended by {override.expired_by}" if override.expired_by else ""
    yields = ", yields to incidents" if override.yields else ""
    return (
        f"override {override.override_id} of {override.key.policy} {override.key.slice}: {'; '.join(parts)}{yields} "
        f"until {_time(override.ends_ns)} by {override.author}: {override.reason}{ended}"
    )


def audit_dict(entry: AuditEntry) -> dict[str, object]:
    """Return a line of the audit log as JSON-ready values."""
    return asdict(entry)


def audit_line(entry: AuditEntry) -> str:
    """Return a line of the audit log as text."""
    why = f" ({entry.why.value})" if entry.why else ""
    dry = " [dry run]" if entry.dry_run else ""
    place = f"{entry.key.policy} {entry.key.slice}"
    return f"{_time(entry.at_ns)} {place} {entry.kind.value}{why}{dry}: {entry.detail}"


def _time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // NS_PER_S, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
