"""Roles, and which of them each method takes; pure.

Each role may do what the one before it may: a subscriber reads, an actor writes to the log and
answers incidents, an admin decides over promotions.
"""

from enum import StrEnum

__all__ = ["Role", "may", "needed_by"]

_PACKAGE = "paritas.proto.v1"


class Role(StrEnum):
    """From the least to the most."""

    SUBSCRIBER = "subscriber"
    ACTOR = "actor"
    ADMIN = "admin"


_RANK = {role: rank for rank, role in enumerate(Role)}
_READS = {
    "EscalationService": ("Subscribe", "List", "Get", "ListSilences"),
    "RouteService": ("Watch", "Get", "Resolve", "ListOverrides", "Audit"),
    "PromotionService": ("Get", "List", "Watch"),
    "ContractService": ("List", "Get", "Watch"),
}
_WRITES = {
    "EscalationService": ("Publish", "Acknowledge", "Silence", "ExpireSilence"),
    "RouteService": ("Override", "ExpireOverride"),
    "PromotionService": ("SubmitVerdict",),
}
_NEEDED = {
    f"/{_PACKAGE}.{service}/{method}": role
    for role, table in ((Role.SUBSCRIBER, _READS), (Role.ACTOR, _WRITES))
    for service, methods in table.items()
    for method in methods
}
# Liveness and the names of methods tell nothing about a policy; probes hold no token.
_OPEN = ("/grpc.health.v1.Health/",)
_REFLECTION = "/grpc.reflection."


def needed_by(method: str) -> Role | None:
    """Return the role that `method` (``/package.Service/Method``) takes; None for everybody.

    A method that is not listed takes the most: one that is added must be thought about.

    Examples
    --------
    >>> [needed_by(f"/paritas.proto.v1.EscalationService/{m}") for m in ("List", "Silence", "New")]
    [<Role.SUBSCRIBER: 'subscriber'>, <Role.ACTOR: 'actor'>, <Role.ADMIN: 'admin'>]
    """
    if method.startswith(_OPEN):
        return None
    if method.startswith(_REFLECTION):
        return Role.SUBSCRIBER
    return _NEEDED.get(method, Role.ADMIN)


def may(held: Role, needed: Role | None) -> bool:
    """Tell whether `held` is enough."""
    return needed is None or _RANK[held] >= _RANK[needed]
