"""Shape → structural schema of a Kubernetes API server, from the same table as the reader and the JSON Schema.

A structural schema knows no ``anyOf`` of types.  Where the DSL takes different kinds of value (a
limit is a number, a duration or a mapping), the kind stays open and only what can be said of each
kind is said; the rest says the operator with the loader's own words.
"""

from collections.abc import Callable, Mapping
from typing import Any

from paritas.contracts.durations import DURATION_PATTERN
from paritas.contracts.schema import schema_of
from paritas.contracts.shapes import (
    Choice,
    Duration,
    Either,
    Flag,
    FreeKeys,
    Listing,
    Number,
    OneOrMany,
    Record,
    Shape,
    Tagged,
    Text,
    Whole,
)

__all__ = ["structural"]

Schema = dict[str, Any]

OPEN: Schema = {"x-kubernetes-preserve-unknown-fields": True}
SCALARS = (Text, Number, Whole, Flag, Choice, Duration)
KINDS = ("type", "properties", "additionalProperties")


def structural(shape: Shape) -> Schema:
    """Return the structural schema of one shape.

    Examples
    --------
    >>> structural(Whole(1, 5))
    {'type': 'integer', 'minimum': 1, 'maximum': 5}
    """
    return _WRITERS[type(shape)](shape)


def _number(shape: Number) -> Schema:
    low: Schema = {"minimum": shape.low} | ({"exclusiveMinimum": True} if shape.is_low_open else {})
    if shape.high is None:
        return {"type": "number", **low}
    high: Schema = {"maximum": shape.high} | ({"exclusiveMaximum": True} if shape.is_high_open else {})
    return {"type": "number", **low, **high}


def _duration(_shape: Duration) -> Schema:
    return {"type": "string", "pattern": DURATION_PATTERN, "maxLength": 40}


def _listing(shape: Listing) -> Schema:
    is_set = shape.is_set and isinstance(shape.item, SCALARS)  # uniqueItems would be refused for its cost
    kind = {"x-kubernetes-list-type": "set" if is_set else "atomic"}
    bounds = {"minItems": shape.at_least} if shape.at_least else {}
    return {
        "type": "array",
        "items": structural(shape.item),
        **bounds,
        "maxItems": shape.at_most,
        **kind,
    }


def _one_or_many(_shape: OneOrMany) -> Schema:
    return dict(OPEN)


def _record(shape: Record) -> Schema:
    properties = {f.name: {"description": f.says, **structural(f.shape)} for f in shape.fields}
    required = [f.name for f in shape.fields if f.is_required]
    told: Schema = {"type": "object"} | ({"properties": properties} if properties else {})
    return told | ({"required": required} if required else {})


def _free_keys(shape: FreeKeys) -> Schema:
    return {"type": "object", "additionalProperties": structural(shape.value)}


def _tagged(shape: Tagged) -> Schema:
    properties = {record.name: structural(record) for record in shape.records}
    return {"type": "object", "properties": properties, "minProperties": 1, "maxProperties": 1}


def _either(shape: Either) -> Schema:
    """A check without a type binds values of its own kind only, so those of all kinds can stand together."""
    found: Schema = {"description": shape.says, **OPEN}
    for option in (shape.text, shape.number):
        if isinstance(option, Text | Duration | Number):
            found |= {key: value for key, value in structural(option).items() if key not in KINDS}
    return found


_WRITERS: Mapping[type, Callable[[Any], Schema]] = {
    **dict.fromkeys((Text, Whole, Flag, Choice), schema_of),  # said alike in both
    Number: _number,
    Duration: _duration,
    Listing: _listing,
    OneOrMany: _one_or_many,
    Record: _record,
    FreeKeys: _free_keys,
    Tagged: _tagged,
    Either: _either,
}
