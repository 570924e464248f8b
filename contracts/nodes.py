"""YAML or JSON text → nodes with their places; the edge where untrusted bytes enter.

PyYAML scans and parses; everything after its events is ours: YAML 1.2 scalars, no tags, no merge
keys, no doubled keys, no NaN, bounded depth and bounded growth through aliases.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from paritas.contracts.core_schema import Scalar
from paritas.contracts.model import Place

__all__ = ["Entry", "MappingNode", "Node", "ScalarNode", "SequenceNode", "describe", "plain"]


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """A scalar: its value after YAML 1.2 resolution, and the text it was written as.

    A faulty scalar has been reported already; nobody reports it again.
    """

    place: Place
    value: Scalar
    text: str
    size: int = 1
    is_faulty: bool = False


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list of nodes; `size` counts every node below, aliases expanded."""

    place: Place
    items: "tuple[Node, ...]"
    size: int = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One ``key: value`` of a mapping; keys are always text."""

    key: str
    place: Place
    node: "Node"


@dataclass(frozen=True, slots=True)
class MappingNode:
    """Entries in the order of the file, each key once; `size` as in `SequenceNode`."""

    place: Place
    entries: tuple[Entry, ...]
    size: int = 1
    _by_key: dict[str, Entry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_key", {entry.key: entry for entry in self.entries})

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def get(self, key: str) -> Entry | None:
        """Return the entry with that key, if there is one."""
        return self._by_key.get(key)


Node = ScalarNode | SequenceNode | MappingNode


def plain(node: Node) -> object:
    """Return the node as JSON-ready values (what a JSON Schema validator reads)."""
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, SequenceNode):
        return [plain(item) for item in node.items]
    return {entry.key: plain(entry.node) for entry in node}


def describe(node: Node) -> str:
    """Name what stands at a node, for "expected …, got …".

    Examples
    --------
    >>> describe(ScalarNode(Place("a.yaml", 1, 1), None, ""))
    'nothing'
    """
    if isinstance(node, SequenceNode):
        return "a list"
    if isinstance(node, MappingNode):
        return "a mapping"
    return _describe_scalar(node)


def _describe_scalar(node: ScalarNode) -> str:
    from paritas.contracts.problems import shorten

    if node.value is None:
        return "nothing"
    if isinstance(node.value, bool):
        return node.text
    return f"text {shorten(node.value)}" if isinstance(node.value, str) else f"number {node.text}"
