"""What every driver promises: apply a desired state, read back what is so, say what it cannot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self

from paritas.controller.routing.model import Route, RouteKey

__all__ = ["Applied", "Driver", "Observed", "Outcome"]


class Outcome(StrEnum):
    """What became of one route: never assume that a router that answered 202 is done."""

    APPLIED = "applied"  # read back and equal
    ACCEPTED = "accepted"  # taken, not yet seen
    UNSUPPORTED = "unsupported"  # this router cannot do it
    FAILED = "failed"  # it said no, or said nothing


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of one route, why, and how long the router took (seconds)."""

    key: RouteKey
    outcome: Outcome
    detail: str = ""
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Observed:
    """What the router itself says.

    Attributes
    ----------
    weights, shadow : mapping of RouteKey to mapping of str to float
        Shares by kernel, for routers that have shares; empty for those that only know in and out.
    serving : frozenset of str
        Names of the replicas in rotation.
    unknown : tuple of str
        Members the router has and the fleet does not declare: shown, never touched.
    """

    weights: Mapping[RouteKey, Mapping[str, float]] = field(default_factory=dict)
    shadow: Mapping[RouteKey, Mapping[str, float]] = field(default_factory=dict)
    serving: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()


class Driver(Protocol):
    """One router, driven.  `apply` is idempotent and takes the whole desired state of the fleet.

    Both methods are bounded in time and raise nothing for what a router can do: a refusal or a
    silence is an `Outcome`.  `observe` raises TransientError when the router cannot be asked.
    """

    name: str

    async def apply(self, routes: Sequence[Route]) -> Sequence[Applied]:
        """Make the router do `routes`; one outcome for each, in their order."""
        ...

    async def observe(self) -> Observed:
        """Ask the router what is so."""
        ...

    async def __aenter__(self) -> Self:
        """Open what it needs (a connection, a gRPC server for Envoy)."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it go; the router keeps what it has."""
        ...
