"""Shape × node → checked values with their places; every fault is noted, none is raised."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from paritas.contracts.durations import DURATION_PATTERN
from paritas.contracts.found import Fields, Found
from paritas.contracts.nodes import Entry, MappingNode, Node, ScalarNode, SequenceNode, describe
from paritas.contracts.problems import Problems, did_you_mean, shorten
from paritas.contracts.reading_scalars import (
    duration_hint,
    number_hint,
    read_choice,
    read_duration,
    read_flag,
    read_number,
    read_text,
    read_whole,
    refuse,
)
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

__all__ = ["read"]


def read(shape: Shape, node: Node, path: str, problems: Problems) -> Found | None:
    """Check `node` against `shape`; None if it was refused.

    Parameters
    ----------
    path : str
        Where `node` stands in the document, e.g. ``spec.slices[0].name``.
    """
    if isinstance(node, ScalarNode) and node.is_faulty:
        return None
    return _READERS[type(shape)](shape, node, path, problems)


def _listing(shape: Listing, node: Node, path: str, problems: Problems) -> Found | None:
    if not isinstance(node, SequenceNode):
        return refuse(
            node,
            path,
            problems,
            f"expected a list, got {describe(node)}",
            "write [a, b], or one '- a' a line",
        )
    if not shape.at_least <= len(node.items) <= shape.at_most:
        return refuse(node, path, problems, f"{_count_wanted(shape)}, got {len(node.items)}")
    items = [read(shape.item, item, f"{path}[{i}]", problems) for i, item in enumerate(node.items)]
    kept = tuple(item for item in items if item is not None)
    is_distinct = not shape.is_set or _distinct(kept, problems)
    is_sound = is_distinct and len(kept) == len(items) and all(item.is_sound for item in kept)
    return Found(kept, node.place, path, is_sound)


def _count_wanted(shape: Listing) -> str:
    if shape.at_least == shape.at_most:
        return f"expected {shape.at_least} items"
    return f"expected {shape.at_least} to {shape.at_most} items"


def _distinct(items: tuple[Found, ...], problems: Problems) -> bool:
    seen: set[object] = set()
    for item in items:
        if item.value in seen:
            problems.add(item.place, item.path, f"{item.value!r} is listed twice", "remove one")
        seen.add(item.value)
    return len(seen) == len(items)


def _one_or_many(shape: OneOrMany, node: Node, path: str, problems: Problems) -> Found | None:
    if isinstance(node, SequenceNode):
        return _listing(Listing(shape.item, at_least=1, is_set=True), node, path, problems)
    one = read(shape.item, node, path, problems)
    return None if one is None else Found((one,), one.place, path)


def _record(shape: Record, node: Node, path: str, problems: Problems) -> Found | None:
    if not isinstance(node, MappingNode):
        hint = f"fields: {', '.join(shape.names())}" if shape.fields else "write {}"
        return refuse(node, path, problems, f"expected a mapping ({shape.name}), got {describe(node)}", hint)
    before = len(problems)
    _note_unknown(shape, node, path, problems)
    _note_missing(shape, node, path, problems)
    is_complete = len(problems) == before
    read_fields = dict(_read_fields(shape, node, path, problems))
    found = {name: item for name, item in read_fields.items() if item is not None}
    is_sound = is_complete and len(found) == len(read_fields) and all(f.is_sound for f in found.values())
    return Found(Fields(node.place, path, found), node.place, path, is_sound)


def _read_fields(
    shape: Record, node: MappingNode, path: str, problems: Problems
) -> Iterator[tuple[str, Found | None]]:
    for wanted in shape.fields:
        if (entry := node.get(wanted.name)) is not None:
            yield wanted.name, read(wanted.shape, entry.node, _join(path, wanted.name), problems)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _note_unknown(shape: Record, node: MappingNode, path: str, problems: Problems) -> None:
    for entry in node:
        if entry.key not in shape.names():
            hint = did_you_mean(entry.key, shape.names()) if shape.fields else "it takes no fields"
            problems.add(entry.place, path, f"unknown field {shorten(entry.key)}", hint)


def _note_missing(shape: Record, node: MappingNode, path: str, problems: Problems) -> None:
    for wanted in shape.fields:
        if wanted.is_required and node.get(wanted.name) is None:
            problems.add(node.place, path, f"missing field {wanted.name!r}", f"{wanted.name}: {wanted.says}")


def _free_keys(shape: FreeKeys, node: Node, path: str, problems: Problems) -> Found | None:
    if not isinstance(node, MappingNode):
        return refuse(node, path, problems, f"expected a mapping, got {describe(node)}")
    items = {e.key: read(shape.value, e.node, f"{path}.{shorten(e.key)[1:-1]}", problems) for e in node}
    found = {key: item for key, item in items.items() if item is not None}
    is_sound = len(found) == len(items)
    return Found(Fields(node.place, path, found), node.place, path, is_sound)


def _tagged(shape: Tagged, node: Node, path: str, problems: Problems) -> Found | None:
    names = tuple(record.name for record in shape.records)
    if not isinstance(node, MappingNode) or len(node.entries) != 1:
        hint = f"write {{NAME: {{}}}} with one of {', '.join(names)}"
        got = "a mapping of several" if isinstance(node, MappingNode) and node.entries else describe(node)
        return refuse(node, path, problems, f"expected one name and its arguments, got {got}", hint)
    (entry,) = node.entries
    return _tagged_entry(dict(zip(names, shape.records, strict=True)), entry, path, problems)


def _tagged_entry(records: Mapping[str, Record], entry: Entry, path: str, problems: Problems) -> Found | None:
    if entry.key not in records:
        problems.add(
            entry.place, path, f"unknown name {shorten(entry.key)}", did_you_mean(entry.key, records)
        )
        return None
    arguments = read(records[entry.key], entry.node, _join(path, entry.key), problems)
    if arguments is None:
        return None
    return Found((entry.key, arguments.value), entry.place, path, arguments.is_sound)


def _either(shape: Either, node: Node, path: str, problems: Problems) -> Found | None:
    chosen = _by_kind(shape, node)
    if chosen is None or _is_no_duration(chosen, node):
        message = f"expected {shape.says}, got {describe(node)}"
        return refuse(node, path, problems, message, number_hint(node) or duration_hint(node))
    return read(chosen, node, path, problems)


def _is_no_duration(chosen: Shape, node: Node) -> bool:
    """Whether text stands where a number or a duration may, and is neither: say both were possible."""
    if not isinstance(chosen, Duration) or not isinstance(node, ScalarNode):
        return False
    return not re.fullmatch(DURATION_PATTERN, str(node.value))


def _by_kind(shape: Either, node: Node) -> Shape | None:
    if isinstance(node, MappingNode):
        return shape.mapping
    if isinstance(node, SequenceNode) or node.value is None or isinstance(node.value, bool):
        return None
    return shape.text if isinstance(node.value, str) else shape.number


_READERS: Mapping[type, Callable[[Any, Node, str, Problems], Found | None]] = {
    Text: read_text,
    Number: read_number,
    Whole: read_whole,
    Flag: read_flag,
    Choice: read_choice,
    Duration: read_duration,
    Listing: _listing,
    OneOrMany: _one_or_many,
    Record: _record,
    FreeKeys: _free_keys,
    Tagged: _tagged,
    Either: _either,
}
