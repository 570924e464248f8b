"""Object of the API → `Item`: the loader's word on it.  Pure; needs PyYAML."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from paritas.contracts.cluster.objects import ANNOTATIONS, contract_document, load_object
from paritas.contracts.cluster.yaml_text import yaml_text
from paritas.contracts.model import Contract
from paritas.controller.operator.depths import shallow
from paritas.controller.operator.model import Item
from paritas.errors import ContractError

__all__ = ["Reader", "item_of", "loaded"]


class Reader:
    """Reads the objects of a pass; one that is as it was is not loaded again."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Item] = {}

    def items(self, things: Iterable[Mapping[str, Any]]) -> list[Item]:
        """Return the objects of the API as items, in their order."""
        found = {_version_of(thing): thing for thing in things}
        self._known = {
            key: replace(self._known[key], status=thing.get("status") or {})
            if key in self._known
            else item_of(thing)
            for key, thing in found.items()
        }
        return list(self._known.values())


def _version_of(thing: Mapping[str, Any]) -> tuple[object, ...]:
    """Annotations are not counted by the generation."""
    metadata = thing["metadata"]
    notes: Mapping[str, str] = metadata.get("annotations") or {}
    return metadata["uid"], metadata["generation"], *(notes.get(note) for note in ANNOTATIONS.values())


def item_of(thing: Mapping[str, Any]) -> Item:
    """Return an object of the API as an item."""
    metadata = thing["metadata"]
    text = yaml_text(shallow(contract_document(thing)))
    contract, problems = loaded(text, metadata["name"])
    return Item(
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        metadata["generation"],
        metadata["creationTimestamp"],
        text,
        contract,
        problems,
        thing.get("status") or {},
    )


def loaded(text: str, name: str) -> tuple[Contract | None, tuple[tuple[str, str], ...]]:
    """Return the contract in a text, or None and the problems that it has."""
    try:
        return load_object(text, name), ()
    except ContractError as error:
        return None, error.problems
