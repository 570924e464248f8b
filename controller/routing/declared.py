"""What an operator's file declares of one policy: the fleet, and the driver of its router."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paritas.controller.routing.model import Fleet

__all__ = ["Declared"]


@dataclass(frozen=True, slots=True)
class Declared:
    """A fleet and who moves it; without a driver, gateways that resolve by request do.

    Attributes
    ----------
    driver : str
        Name in `controller.drivers.registry`; empty for none.
    settings : mapping of str to object
        What the driver is told.
    """

    fleet: Fleet
    driver: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
