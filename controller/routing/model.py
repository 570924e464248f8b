"""Routes as records: what an operator declares, what the loop wants, what a router shows.

Shares are fractions of one slice's requests in [0, 1]; times are Unix nanoseconds (`*_ns`),
durations seconds (`*_s`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from paritas.errors import UsageError

__all__ = [
    "ALL",
    "INFERENCE",
    "REFERENCE",
    "FailMode",
    "Fleet",
    "Hold",
    "Replica",
    "Route",
    "RouteKey",
    "SafetyLimits",
    "Why",
]

ALL = "all"
INFERENCE, REFERENCE = "inference", "reference"  # the kernels that a `reroute` can name


class FailMode(StrEnum):
    """What a route becomes when its lease ends without a controller to renew it."""

    HOLD = "hold"
    FALLBACK = "fallback"


class Hold(StrEnum):
    """What a trainer is asked to do or not to do while an incident is open."""

    REFIT = "hold_refit"
    PREFIX_CACHE = "flush_prefix_cache"
    CAP = "set_cap"
    PROMOTION = "block_promotion"


class Why(StrEnum):
    """The named reason of one decision about one route."""

    CONFORMING = "conforming"  # nothing asks for anything
    INCIDENT = "incident"  # a firing incident's action
    OVERRIDE = "override"  # a person said so
    SILENCED = "silenced"  # an incident asks, a silence stops it: nothing moves for it
    DWELL = "dwell"  # nothing asks any more, the route moved too short a while ago
    EJECTED = "ejected"  # nothing asks any more, the replica's time out is not over
    MINIMUM_HEALTHY = "minimum_healthy"  # one more replica out would leave too few
    SHARE_CAP = "share_cap"  # more was asked for than may be moved, or out at once
    LEASE_EXPIRED = "lease_expired"  # nobody renewed: the declared fail mode holds
    NO_REFERENCE = "no_reference"  # there is no sound kernel to move to: told, not moved
    NO_REPLICA = "no_replica"  # a drain names no replica of the fleet: told, not done


@dataclass(frozen=True, slots=True, order=True)
class RouteKey:
    """What one route is of: one slice of one policy's requests."""

    policy: str
    slice: str = ALL


@dataclass(frozen=True, slots=True)
class Replica:
    """One process that serves a kernel; `target` is how its router names it (URL, pod, cluster)."""

    name: str
    kernel: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class SafetyLimits:
    """What no incident may make the loop do.

    Attributes
    ----------
    minimum_healthy : int
        Replicas of each kernel that always stay in rotation; the last one is never drained.
    share_moved_at_most : float
        Share of a slice's requests that may be moved away from the inference kernel.
    drained_at_most : float
        Share of a kernel's replicas that may be out at once.
    ejection_s, ejection_at_most_s : float
        A replica stays out at least `ejection_s` times the number of its ejections, at most so long.
    dwell_s : float
        A route that moved does not move back sooner.
    lease_s : float
        A route that is not renewed for so long falls to its fail mode.
    """

    minimum_healthy: int = 1
    share_moved_at_most: float = 1.0
    drained_at_most: float = 0.5
    ejection_s: float = 30.0
    ejection_at_most_s: float = 1800.0
    dwell_s: float = 30.0
    lease_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuse limits that limit nothing or forbid everything."""
        if self.minimum_healthy < 1:
            raise UsageError(f"minimum_healthy: must be at least 1, got {self.minimum_healthy}")
        for name in ("share_moved_at_most", "drained_at_most"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UsageError(f"{name}: must be between 0 and 1, got {getattr(self, name)!r}")
        for name in ("ejection_s", "ejection_at_most_s", "dwell_s", "lease_s"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}: must be positive, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class Fleet:
    """What an operator declares of one policy: its replicas, the slices a router can tell apart, the limits.

    `slices` maps a contract's slice to the header values by which the router knows its requests;
    a slice that is not in it can only be routed with all traffic, and says so.  `reference_policy`
    names the policy whose incidents say that the reference kernel itself breaks its contract.
    """

    policy: str
    replicas: tuple[Replica, ...]
    slices: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    limits: SafetyLimits = SafetyLimits()
    fail_mode: FailMode = FailMode.HOLD
    dry_run: bool = True
    reference_policy: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """What one slice's requests should see.

    Attributes
    ----------
    weights : mapping of str to float
        Share of the requests each kernel answers; they sum to 1.
    shadow : mapping of str to float
        Share of the requests copied to a kernel whose answers nobody receives.
    drained : frozenset of str
        Replicas that take no new request.
    holds : mapping of Hold to str
        What a trainer is asked for, with its argument as text ("" without one).
    why : Why
        The reason that decided; `detail` says it in words, `incidents` are those it rests on.
    revision : int
        Grows with every change of what is wanted.
    valid_until_ns : int
        The lease; afterwards the fail mode holds.
    """

    key: RouteKey
    weights: Mapping[str, float]
    shadow: Mapping[str, float] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()
    holds: Mapping[Hold, str] = field(default_factory=dict)
    why: Why = Why.CONFORMING
    detail: str = ""
    incidents: tuple[str, ...] = ()
    revision: int = 0
    valid_until_ns: int = 0
