"""What the operator reads and decides, as records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from paritas.contracts.model import Contract

__all__ = ["FIELD_MANAGER", "About", "Condition", "Item", "Plan", "Sighting", "Truth", "Why"]

FIELD_MANAGER = "paritas-operator"


class About(StrEnum):
    """The conditions of a contract."""

    ACCEPTED = "Accepted"
    ENFORCED = "Enforced"
    VIOLATED = "Violated"


class Truth(StrEnum):
    """What a condition says; `unknown` is never a yes."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Why(StrEnum):
    """The reason of a condition."""

    VALID = "Valid"
    INVALID = "Invalid"
    JUDGED = "Judged"  # a detector says that it judges by this digest
    OTHER_DIGEST = "OtherDigest"  # it judges by another one: the text is on its way, or was refused there
    FLOORS = "Floors"  # it made limits that are relative to a floor absolute, which changes the digest
    DETECTOR_AWAY = "DetectorAway"
    DIGEST_NOT_TOLD = "DigestNotTold"
    DETECTOR_NOT_READY = "DetectorNotReady"  # it judges nothing just now, or nobody would hear of it
    NO_DETECTORS = "NoDetectors"  # the operator was not told where they are
    NOTHING_ACCEPTED = "NothingAccepted"
    CONFIG_MAP_FULL = "ConfigMapFull"
    CONFIG_MAP_REFUSED = "ConfigMapRefused"  # the API server does not take it, in its own words
    KEY_TAKEN = "KeyTaken"  # somebody else's key of the ConfigMap has the same name
    OPEN_INCIDENT = "OpenIncident"
    UNDECIDED = "Undecided"  # incidents are open, none of which says violated
    NO_OPEN_INCIDENT = "NoOpenIncident"
    NOT_ENFORCED = "NotEnforced"  # no incident, but nobody is known to judge
    CONTROLLER_AWAY = "ControllerAway"
    NO_CONTROLLER = "NoController"  # the operator was not told where it is


@dataclass(frozen=True, slots=True)
class Plan:
    """What the operator was told.

    Attributes
    ----------
    namespace : str
        Whose contracts are followed; empty for every namespace.
    config_map : str
        Name of the ConfigMap that detectors mount, in the namespace of each contract.
    detectors : str
        URL of a detector's page with ``{name}`` and ``{namespace}``; empty for none.
    refresh_s : float
        How often the controller and the detectors are asked, in seconds.
    """

    namespace: str
    config_map: str
    detectors: str = ""
    refresh_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Item:
    """One object as the API server has it, and what the loader says of it.

    Attributes
    ----------
    text : str
        Its contract as a file.
    contract : Contract or None
        None if it is not valid; `problems` says why.
    problems : tuple of (str, str)
        Message and hint of each.
    status : mapping
        What was written last.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    created: str
    text: str
    contract: Contract | None = None
    problems: tuple[tuple[str, str], ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Its key in the ConfigMap: the file that a detector reads."""
        return f"{self.name}.yaml"


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a detector's page said: the digest it judges by, or why that is not known."""

    digest: str = ""
    why: Why = Why.NO_DETECTORS
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition without its time, which depends on what stood there before."""

    about: About
    truth: Truth
    why: Why
    message: str
    generation: int
