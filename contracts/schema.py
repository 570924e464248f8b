"""The JSON Schema of the DSL (draft 2020-12), for editors; made from the same table as the reader."""

from collections.abc import Callable, Mapping
from typing import Any

from paritas.contracts.durations import DURATION_PATTERN
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
from paritas.contracts.table import DOCUMENT

__all__ = ["json_schema", "schema_of"]

Schema = dict[str, Any]


def json_schema() -> Schema:
    """Return the schema of a contract document.

    It checks structure: names, types, ranges and patterns.  What needs the catalogue or another
    part of the file (a statistic's options, an undeclared slice) only the loader can say.

    Examples
    --------
    >>> json_schema()["title"]
    'Paritas kernel contract'
    """
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:paritas:kernel-contract:v1",
        "title": "Paritas kernel contract",
    }
    return {**head, **schema_of(DOCUMENT)}


def schema_of(shape: Shape) -> Schema:
    """Return the JSON Schema of one shape."""
    return _WRITERS[type(shape)](shape)


def _text(shape: Text) -> Schema:
    return {"type": "string", "pattern": shape.pattern, "maxLength": shape.at_most_chars}


def _number(shape: Number) -> Schema:
    low = {"exclusiveMinimum" if shape.is_low_open else "minimum": shape.low}
    if shape.high is None:
        return {"type": "number", **low}
    return {"type": "number", **low, "exclusiveMaximum" if shape.is_high_open else "maximum": shape.high}


def _whole(shape: Whole) -> Schema:
    return {"type": "integer", "minimum": shape.low, "maximum": shape.high}


def _flag(_shape: Flag) -> Schema:
    return {"type": "boolean"}


def _choice(shape: Choice) -> Schema:
    return {"type": "string", "enum": [str(name) for name in shape.names]}


def _duration(_shape: Duration) -> Schema:
    return {"type": "string", "pattern": DURATION_PATTERN}


def _listing(shape: Listing) -> Schema:
    bounds = {"minItems": shape.at_least, "maxItems": shape.at_most}
    distinct = {"uniqueItems": True} if shape.is_set else {}
    return {"type": "array", "items": schema_of(shape.item), **bounds, **distinct}


def _one_or_many(shape: OneOrMany) -> Schema:
    return {"anyOf": [schema_of(shape.item), _listing(Listing(shape.item, at_least=1, is_set=True))]}


def _record(shape: Record) -> Schema:
    properties = {f.name: {"description": f.says, **schema_of(f.shape)} for f in shape.fields}
    required = [f.name for f in shape.fields if f.is_required]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _free_keys(shape: FreeKeys) -> Schema:
    return {"type": "object", "additionalProperties": schema_of(shape.value)}


def _tagged(shape: Tagged) -> Schema:
    properties = {record.name: schema_of(record) for record in shape.records}
    one = {"minProperties": 1, "maxProperties": 1}
    return {"type": "object", "properties": properties, "additionalProperties": False, **one}


def _either(shape: Either) -> Schema:
    options = (shape.text, shape.number, shape.mapping)
    return {
        "description": shape.says,
        "anyOf": [schema_of(option) for option in options if option is not None],
    }


_WRITERS: Mapping[type, Callable[[Any], Schema]] = {
    Text: _text,
    Number: _number,
    Whole: _whole,
    Flag: _flag,
    Choice: _choice,
    Duration: _duration,
    Listing: _listing,
    OneOrMany: _one_or_many,
    Record: _record,
    FreeKeys: _free_keys,
    Tagged: _tagged,
    Either: _either,
}
