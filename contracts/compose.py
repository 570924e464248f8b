"""PyYAML events → our nodes: bounded, and with every fault of the text named by its place."""

import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from paritas.contracts.core_schema import Scalar, resolve_plain
from paritas.contracts.model import Place
from paritas.contracts.nodes import Entry, MappingNode, Node, ScalarNode, SequenceNode
from paritas.contracts.problems import Problems, shorten
from paritas.errors import ContractError, UsageError

__all__ = ["LIMIT_BYTES", "LIMIT_DEPTH", "LIMIT_NODES", "compose", "decode"]

LIMIT_BYTES = 1 << 20  # the largest contract we know is 20 KiB
LIMIT_DEPTH = 32  # the deepest field of the DSL is 9 levels down
LIMIT_NODES = 20_000  # with aliases expanded, so that ten lines cannot become a billion values

TAB_HINT = "indent with spaces"
OPEN_HINT = "what opens here is never closed"
SYNTAX_HINT = "check the indentation, brackets and quotes here"
MERGE_HINT = "YAML 1.2 has no merge keys: repeat the fields, or start from a preset"


def decode(content: bytes, file: str) -> str:
    """Return the text of a contract file.

    Raises
    ------
    ContractError
        If the file is larger than `LIMIT_BYTES` or is not UTF-8.
    """
    if len(content) > LIMIT_BYTES:
        raise ContractError(
            f"{Place(file, 1, 1)}: the file has {len(content)} bytes, more than {LIMIT_BYTES}",
            hint="is this a contract? recordings belong in their own files",
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        column = error.start - before.rfind(b"\n")
        place = Place(file, before.count(b"\n") + 1, column)
        raise ContractError(
            f"{place}: byte 0x{content[error.start]:02x} is not UTF-8", hint="save the file as UTF-8"
        ) from error


def compose(text: str, file: str, problems: Problems) -> Node:
    """Return the one document in `text` as nodes; faults that do not stop the reading go to `problems`.

    Raises
    ------
    ContractError
        If the text is not YAML (or JSON), is empty, holds two documents, nests deeper than
        `LIMIT_DEPTH` or grows beyond `LIMIT_NODES`.
    """
    return _Composer(_events(_loosen_json(text), file, problems), file, problems).document()


def _loosen_json(text: str) -> str:
    """JSON may be indented with tabs, which PyYAML refuses; a tab inside JSON text is illegal anyway."""
    return text.replace("\t", " ") if text.lstrip("\ufeff \t\r\n").startswith("{") else text


def _yaml() -> ModuleType:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise UsageError("contract files need PyYAML", hint="pip install 'paritas[contracts]'") from error
    return yaml


def _events(text: str, file: str, problems: Problems) -> Iterator[Any]:
    """Yield PyYAML's parsing events; its errors become ours here and nowhere else."""
    yaml = _yaml()
    try:
        yield from yaml.parse(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        place, is_open = _place_of_mark(error, file)
        hint = OPEN_HINT if is_open else TAB_HINT if "'\\t'" in error.problem else SYNTAX_HINT
        problems.add(place, "", f"not YAML: {error.problem}", hint)
        raise problems.error() from error
    except yaml.reader.ReaderError as error:
        place = _place_of(text, error.position, file)
        problems.add(place, "", f"control character U+{error.character:04X}", "remove the character")
        raise problems.error() from error
    except (ValueError, OverflowError) as error:  # PyYAML lets int() and chr() of hostile text through
        problems.add(
            Place(file, 1, 1), "", f"not YAML: {str(error)[:80]}", "check escapes and the %YAML line"
        )
        raise problems.error() from error


def _place_of_mark(error: Any, file: str) -> tuple[Place, bool]:
    """Point at the bracket or quote that was never closed, not at the end of the file."""
    is_at_end = "end of stream" in error.problem or "<stream end>" in error.problem
    is_open = is_at_end and error.context_mark is not None
    mark = error.context_mark if is_open else error.problem_mark
    return Place(file, mark.line + 1, mark.column + 1), is_open


def _place_of(text: str, position: int, file: str) -> Place:
    before = text[:position]
    return Place(file, before.count("\n") + 1, position - before.rfind("\n"))


def _whole_characters(text: str) -> str | None:
    """Join the surrogate pairs that JSON escapes leave behind; None if a half is left."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return None


class _Composer:
    """Builds one document; recursion is bounded by `LIMIT_DEPTH`."""

    def __init__(self, events: Iterator[Any], file: str, problems: Problems) -> None:
        self._events = events
        self._file = file
        self._problems = problems
        self._anchors: dict[str, Node] = {}
        self._count = 0

    def document(self) -> Node:
        """Read the stream to its end and return its only document."""
        next(self._events)  # StreamStart
        start = next(self._events)
        if type(start).__name__ == "StreamEndEvent":
            self._problems.add(
                Place(self._file, 1, 1), "", "the file is empty", "paritas contract init writes one"
            )
            raise self._problems.error()
        root = self._node(next(self._events), 0)
        next(self._events)  # DocumentEnd
        following = next(self._events)
        if type(following).__name__ != "StreamEndEvent":
            raise self._stop(following, "a second document", "one contract a file: split it at '---'")
        return root

    def _stop(self, event: Any, message: str, hint: str) -> ContractError:
        self._problems.add(self._place(event), "", message, hint)
        return self._problems.error()

    def _place(self, event: Any) -> Place:
        return Place(self._file, event.start_mark.line + 1, event.start_mark.column + 1)

    def _node(self, event: Any, depth: int) -> Node:
        if depth > LIMIT_DEPTH:
            raise self._stop(event, f"nested deeper than {LIMIT_DEPTH} levels", SYNTAX_HINT)
        node = self._alias(event) if type(event).__name__ == "AliasEvent" else self._fresh(event, depth)
        self._count += node.size if type(event).__name__ == "AliasEvent" else 1
        if self._count > LIMIT_NODES:
            raise self._stop(event, f"more than {LIMIT_NODES} values, aliases expanded", "use fewer aliases")
        return node

    def _alias(self, event: Any) -> Node:
        if event.anchor not in self._anchors:
            hint = "write the anchor '&" + event.anchor + "' before it, outside of itself"
            raise self._stop(event, f"alias '*{event.anchor}' has no finished anchor", hint)
        return self._anchors[event.anchor]

    def _fresh(self, event: Any, depth: int) -> Node:
        if event.tag is not None:
            hint = "remove the tag; quote text instead"
            self._problems.add(self._place(event), "", f"tag {shorten(event.tag)} is not allowed", hint)
        node = self._build(event, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _build(self, event: Any, depth: int) -> Node:
        match type(event).__name__:
            case "ScalarEvent":
                return self._scalar(event)
            case "SequenceStartEvent":
                return self._sequence(event, depth)
            case _:
                return self._mapping(event, depth)

    def _scalar(self, event: Any) -> ScalarNode:
        place = self._place(event)
        text = _whole_characters(event.value)
        if text is None:
            self._problems.add(place, "", "half of a surrogate pair", "write the character itself")
            return ScalarNode(place, None, "", is_faulty=True)
        value: Scalar = resolve_plain(text) if event.implicit[0] else text
        if isinstance(value, float) and not math.isfinite(value):
            self._problems.add(
                place, "", f"{text} is not a number a contract can hold", "write a finite number"
            )
            return ScalarNode(place, None, text, is_faulty=True)
        return ScalarNode(place, value, text)

    def _sequence(self, event: Any, depth: int) -> SequenceNode:
        items = []
        while type(following := next(self._events)).__name__ != "SequenceEndEvent":
            items.append(self._node(following, depth + 1))
        return SequenceNode(self._place(event), tuple(items), 1 + sum(item.size for item in items))

    def _mapping(self, event: Any, depth: int) -> MappingNode:
        entries: dict[str, Entry] = {}
        while type(following := next(self._events)).__name__ != "MappingEndEvent":
            entry = self._entry(following, depth)
            if entry is not None and self._is_new(entry, entries):
                entries[entry.key] = entry
        return MappingNode(
            self._place(event), tuple(entries.values()), 1 + sum(e.node.size for e in entries.values())
        )

    def _entry(self, event: Any, depth: int) -> Entry | None:
        key = self._node(event, depth + 1)
        node = self._node(next(self._events), depth + 1)
        if not isinstance(key, ScalarNode):
            self._problems.add(self._place(event), "", "a key must be text", "write 'name: value'")
            return None
        if key.text == "<<" and event.implicit[0]:
            self._problems.add(self._place(event), "", "merge key '<<'", MERGE_HINT)
            return None
        return Entry(key.text, self._place(event), node)

    def _is_new(self, entry: Entry, entries: dict[str, Entry]) -> bool:
        if entry.key not in entries:
            return True
        first = entries[entry.key].place
        hint = f"it already stands in line {first.line}; keep one"
        self._problems.add(entry.place, "", f"doubled key {entry.key!r}", hint)
        return False
