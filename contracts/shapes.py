"""What a field may hold, as data: the reader and the JSON Schema are both made from these."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "Choice",
    "Duration",
    "Either",
    "Field",
    "Flag",
    "FreeKeys",
    "Listing",
    "Number",
    "OneOrMany",
    "Record",
    "Shape",
    "Tagged",
    "Text",
    "Whole",
]

# No control characters except the line feed: names and sources are printed to terminals.
PRINTABLE = r"^[^\x00-\x09\x0b-\x1f\x7f]*$"


@dataclass(frozen=True, slots=True)
class Text:
    """Text that matches `pattern` (the common part of Python's and ECMA's regular expressions)."""

    pattern: str = PRINTABLE
    hint: str = "write plain text on one line"
    at_most_chars: int = 1000


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number in a range; `is_share` makes the hint explain a percent."""

    low: float = 0.0
    high: float | None = None
    is_low_open: bool = False
    is_high_open: bool = False
    is_share: bool = False


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in [low, high]."""

    low: int = 0
    high: int = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of `names`; `elsewhere` maps names people write by mistake to a hint."""

    names: tuple[str, ...]
    elsewhere: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Duration:
    """A number and a unit, such as ``30s``."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of one shape; scalars in it are distinct if `is_set`."""

    item: "Shape"
    at_least: int = 0
    at_most: int = 1000
    is_set: bool = False


@dataclass(frozen=True, slots=True)
class OneOrMany:
    """One scalar, or a list of distinct ones."""

    item: "Shape"


@dataclass(frozen=True, slots=True)
class Field:
    """A named field of a record."""

    name: str
    shape: "Shape"
    says: str
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """A mapping with known keys."""

    name: str
    fields: tuple[Field, ...]

    def names(self) -> tuple[str, ...]:
        """Return the names of the fields."""
        return tuple(f.name for f in self.fields)


@dataclass(frozen=True, slots=True)
class FreeKeys:
    """A mapping with keys of the user's choice."""

    value: "Shape"


@dataclass(frozen=True, slots=True)
class Tagged:
    """A mapping with exactly one of the known keys; the key says what the value is."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Different shapes for text, a number and a mapping; None forbids that kind."""

    says: str
    text: "Shape | None" = None
    number: "Shape | None" = None
    mapping: "Shape | None" = None


Shape = (
    Text
    | Number
    | Whole
    | Flag
    | Choice
    | Duration
    | Listing
    | OneOrMany
    | Record
    | FreeKeys
    | Tagged
    | Either
)
