"""What the reader hands on: checked values with their places."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paritas.contracts.model import Place

__all__ = ["Fields", "Found"]


@dataclass(frozen=True, slots=True)
class Found:
    """A checked value and where it stood; not sound if anything inside was refused."""

    value: Any
    place: Place
    path: str
    is_sound: bool = True


@dataclass(frozen=True, slots=True)
class Fields:
    """The checked fields of one record; refused and absent fields are not in it."""

    place: Place
    path: str
    found: Mapping[str, Found] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def get(self, name: str, default: Any = None) -> Any:
        """Return the plain value of a scalar field, or `default`."""
        return self.found[name].value if name in self.found else default

    def at(self, name: str) -> Found:
        """Return a field with its place; the record's own place if it is absent."""
        return self.found.get(name, Found(None, self.place, self.path))

    def items(self, name: str) -> tuple[Found, ...]:
        """Return the items of a list field; none if it is absent."""
        items: tuple[Found, ...] = self.get(name, ())
        return items

    def values(self, name: str) -> tuple[Any, ...]:
        """Return the plain items of a list field."""
        return tuple(item.value for item in self.items(name))

    def record(self, name: str) -> "Fields":
        """Return a nested record; an empty one if it is absent."""
        nested: Fields = self.get(name, Fields(self.place, self.path))
        return nested
