"""What the routing loop remembers between two rounds, and its form on disk (JSON)."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from paritas.controller.routing.model import Hold, Route, RouteKey, Why

__all__ = ["Ask", "Held", "Memory", "Moved", "Note", "Rotation", "memory_from", "memory_text"]


@dataclass(frozen=True, slots=True)
class Ask:
    """What one incident asks for, kept until the detectors say that it is over.

    Attributes
    ----------
    share : float
        Share of the slice's requests that should go to the reference kernel; 0 for none.
    replica : str
        The replica that its slice names; empty when it names none of the fleet.
    drains, unfit : bool
        It asks for a drain; it says that the reference kernel is not sound.
    holds : mapping of Hold to str
        What it asks of a trainer.
    since_ns, until_ns : int
        When it began to ask, and when it does so no longer unless it is heard of again.
    """

    incident_id: str
    transition: int
    slice: str
    share: float
    replica: str
    drains: bool
    unfit: bool
    holds: Mapping[Hold, str]
    since_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Moved:
    """The share of a slice that incidents have moved away, and since when it is this one."""

    share: float = 0.0
    since_ns: int = 0


@dataclass(frozen=True, slots=True)
class Rotation:
    """Whether a replica is out and since when; `ejections` grows with each, and decays while it is in."""

    is_out: bool
    ejections: int
    since_ns: int
    by_person: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """What a trainer is asked for, and since when."""

    argument: str
    since_ns: int


@dataclass(frozen=True, slots=True)
class Note:
    """One reason in words, of one slice (or all); `incidents` are those it rests on."""

    slice: str
    why: Why
    text: str
    incidents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything a decision rests on besides its inputs; equal inputs then give equal routes."""

    now_ns: int = 0
    revision: int = 0
    asks: Mapping[str, Ask] = field(default_factory=dict)
    moved: Mapping[str, Moved] = field(default_factory=dict)
    rotations: Mapping[str, Rotation] = field(default_factory=dict)
    held: Mapping[Hold, Held] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    routes: Mapping[str, Route] = field(default_factory=dict)


def memory_text(memory: Memory) -> str:
    """Return `memory` as JSON, the same text for the same memory.

    Examples
    --------
    >>> memory = Memory(now_ns=7, moved={"all": Moved(0.5, 3)})
    >>> memory_from(memory_text(memory)) == memory
    True
    """
    return json.dumps(asdict(memory), sort_keys=True, default=sorted)


def memory_from(text: str) -> Memory:
    """Return what `memory_text` wrote."""
    found: dict[str, Any] = json.loads(text)
    return Memory(
        now_ns=found["now_ns"],
        revision=found["revision"],
        asks={name: Ask(**{**ask, "holds": _holds(ask["holds"])}) for name, ask in found["asks"].items()},
        moved={name: Moved(**moved) for name, moved in found["moved"].items()},
        rotations={name: Rotation(**rotation) for name, rotation in found["rotations"].items()},
        held={Hold(name): Held(**held) for name, held in found["held"].items()},
        notes=tuple(_note(note) for note in found["notes"]),
        routes={name: _route(route) for name, route in found["routes"].items()},
    )


def _holds(found: Mapping[str, str]) -> dict[Hold, str]:
    return {Hold(name): argument for name, argument in found.items()}


def _note(found: dict[str, Any]) -> Note:
    return Note(found["slice"], Why(found["why"]), found["text"], tuple(found["incidents"]))


def _route(found: dict[str, Any]) -> Route:
    return Route(
        **{
            **found,
            "key": RouteKey(**found["key"]),
            "drained": frozenset(found["drained"]),
            "holds": _holds(found["holds"]),
            "why": Why(found["why"]),
            "incidents": tuple(found["incidents"]),
        }
    )
