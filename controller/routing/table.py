"""The routes of a policy as everybody outside the loop holds them, and which kernel a request gets."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paritas.clock import NS_PER_S
from paritas.controller.routing.lease import fallback_weights
from paritas.controller.routing.model import ALL, INFERENCE, Fleet, Hold, Replica, Route, Why

__all__ = ["Resolution", "Table", "TableRoute", "resolve", "table_of"]


@dataclass(frozen=True, slots=True)
class TableRoute:
    """One route with the headers that name its slice, and what it becomes when its lease ends."""

    slice: str
    headers: Mapping[str, str]
    weights: Mapping[str, float]
    shadow: Mapping[str, float]
    fallback: Mapping[str, float]
    holds: Mapping[Hold, str]
    why: str
    detail: str = ""
    incidents: tuple[str, ...] = ()
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """All routes of a policy, all requests first.

    Attributes
    ----------
    valid_until_ns : int
        The lease, by the clock of whoever holds the table.
    dry_run : bool
        It is told, not followed.
    """

    policy: str
    revision: int
    routes: tuple[TableRoute, ...]
    replicas: tuple[Replica, ...]
    drained: frozenset[str]
    dry_run: bool
    valid_until_ns: int
    fail_mode: str

    @property
    def holds(self) -> Mapping[Hold, str]:
        """What a trainer is asked for; nothing in a dry run."""
        return {} if self.dry_run else {h: a for route in self.routes for h, a in route.holds.items()}


@dataclass(frozen=True, slots=True)
class Resolution:
    """Which kernel answers a request, and how long that may be kept.

    Attributes
    ----------
    replicas : tuple of Replica
        Those of the kernel that are in rotation.
    valid_for_s : float
        0 when the lease has ended: then the fail mode answered.
    """

    kernel: str
    slice: str
    revision: int
    valid_for_s: float
    why: str
    detail: str = ""
    dry_run: bool = False
    replicas: tuple[Replica, ...] = field(default=())


def table_of(fleet: Fleet, routes: Sequence[Route]) -> Table:
    """Return the table of a decision."""
    return Table(
        policy=fleet.policy,
        revision=max(route.revision for route in routes),
        routes=tuple(_table_route(fleet, route) for route in routes),
        replicas=fleet.replicas,
        drained=routes[0].drained,
        dry_run=fleet.dry_run,
        valid_until_ns=min(route.valid_until_ns for route in routes),
        fail_mode=fleet.fail_mode.value,
    )


def _table_route(fleet: Fleet, route: Route) -> TableRoute:
    return TableRoute(
        slice=route.key.slice,
        headers=fleet.slices.get(route.key.slice, {}),
        weights=route.weights,
        shadow=route.shadow,
        fallback=fallback_weights(fleet, route),
        holds=route.holds,
        why=route.why.value,
        detail=route.detail,
        incidents=route.incidents,
        revision=route.revision,
    )


def resolve(table: Table, attributes: Mapping[str, str], sticky_key: str, *, now_ns: int) -> Resolution:
    """Return which kernel answers a request; the same key gets the same one while the shares stay.

    Of the slices whose headers the request has, the one with the most counts.  When the share of a
    kernel grows, keys only come to it; when it shrinks, they only leave it.

    Examples
    --------
    >>> route = TableRoute("all", {}, {"inference": 0.5, "reference": 0.5}, {}, {"inference": 1.0}, {}, "incident")
    >>> table = Table("p", 3, (route,), (), frozenset(), False, 2_000_000_000, "hold")
    >>> [resolve(table, {}, key, now_ns=1_000_000_000).kernel for key in ("a", "b", "c", "d")]
    ['reference', 'reference', 'inference', 'reference']
    >>> late = resolve(table, {}, "d", now_ns=2_000_000_000)
    >>> late.kernel, late.why, late.valid_for_s
    ('inference', 'lease_expired', 0.0)
    """
    route = _route_for(table, attributes)
    left_s = max(0.0, (table.valid_until_ns - now_ns) / NS_PER_S)
    weights, why = (route.weights, route.why) if left_s > 0.0 else (route.fallback, Why.LEASE_EXPIRED.value)
    kernel, detail = _kernel(weights, _place(table.policy, sticky_key)), route.detail
    if table.dry_run:
        detail, kernel = f"dry run, would be {kernel}: {detail}".removesuffix(": "), INFERENCE
    out = frozenset[str]() if table.dry_run else table.drained
    replicas = tuple(r for r in table.replicas if r.kernel == kernel and r.name not in out)
    return Resolution(kernel, route.slice, route.revision, left_s, why, detail, table.dry_run, replicas)


def _route_for(table: Table, attributes: Mapping[str, str]) -> TableRoute:
    """The most headers win; of equally many, the first in the table."""
    fitting = [r for r in table.routes if r.slice == ALL or _fits(r.headers, attributes)]
    return max(fitting, key=lambda route: len(route.headers))


def _fits(headers: Mapping[str, str], attributes: Mapping[str, str]) -> bool:
    return bool(headers) and all(attributes.get(name) == value for name, value in headers.items())


def _place(policy: str, sticky_key: str) -> float:
    """A number in [0, 1) that looks random and is the same in every process."""
    text = f"{policy}\x1f{sticky_key}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) / 2**64


def _kernel(weights: Mapping[str, float], place: float) -> str:
    """The inference kernel stands last, so that what is moved is a growing or shrinking prefix."""
    names = sorted(weights, key=lambda kernel: (kernel == INFERENCE, kernel))
    edge = 0.0
    for name in names:
        edge += weights[name]
        if place < edge:
            return name
    return names[-1]
