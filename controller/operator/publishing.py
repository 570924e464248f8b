"""Items + what the ConfigMap holds → what it shall hold.  Pure.

An invalid object keeps the text that was accepted last; so does one whose new text does not fit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paritas.contracts.model import Contract
from paritas.controller.operator.items import loaded
from paritas.controller.operator.model import FIELD_MANAGER, Item, Plan, Why

__all__ = [
    "LIMIT_BYTES",
    "Existing",
    "Published",
    "apply_body",
    "existing_of",
    "is_current",
    "publish",
    "withheld",
]

LIMIT_BYTES = 1024 * 1024  # of a ConfigMap's keys and values; the API server refuses more
_FULL = "the ConfigMap would hold more than {} bytes with this contract"


@dataclass(frozen=True, slots=True)
class Existing:
    """A ConfigMap: the texts under keys of ours, the keys and bytes of others, the uids of its owners."""

    ours: Mapping[str, str] = field(default_factory=dict)
    others: frozenset[str] = frozenset()
    others_bytes: int = 0
    owners: frozenset[str] = frozenset()
    is_there: bool = False


@dataclass(frozen=True, slots=True)
class Published:
    """What became of one item.

    Attributes
    ----------
    text : str
        What detectors are given; empty for nothing.
    contract : Contract or None
        The contract in it.
    is_latest : bool
        Whether it is that of the object as it stands now.
    held : Why or None
        Why a valid text is not given; `detail` in words.
    """

    text: str = ""
    contract: Contract | None = None
    is_latest: bool = False
    held: Why | None = None
    detail: str = ""


def existing_of(config_map: Mapping[str, Any] | None) -> Existing:
    """Read a ConfigMap as the API returns it; None where there is none."""
    if config_map is None:
        return Existing()
    texts: Mapping[str, str] = config_map.get("data") or {}
    owned = _owned(config_map["metadata"])
    all_texts = {**texts, **(config_map.get("binaryData") or {})}
    others = {key: text for key, text in all_texts.items() if key not in owned}
    owners = config_map["metadata"].get("ownerReferences") or ()
    return Existing(
        {key: text for key, text in texts.items() if key in owned},
        frozenset(others),
        sum(_size(key, text) for key, text in others.items()),
        frozenset(owner["uid"] for owner in owners),
        is_there=True,
    )


def publish(
    items: Sequence[Item], existing: Existing, *, limit_bytes: int = LIMIT_BYTES
) -> dict[str, Published]:
    """Return what becomes of each item, by uid; the older one goes first where space is short."""
    kept = {item.uid: existing.ours.get(item.key, "") for item in items}
    used = existing.others_bytes + sum(_size(item.key, kept[item.uid]) for item in items if kept[item.uid])
    found: dict[str, Published] = {}
    for item in sorted(items, key=lambda i: (i.created, i.name)):
        before = kept[item.uid]
        grown = _size(item.key, item.text) - (_size(item.key, before) if before else 0)
        full = "" if grown <= 0 or used + grown <= limit_bytes else _FULL.format(limit_bytes)
        found[item.uid] = _published(item, before, is_taken=item.key in existing.others, full=full)
        used += grown if found[item.uid].is_latest else 0
    return found


def _published(item: Item, before: str, *, is_taken: bool, full: str) -> Published:
    if is_taken:
        return Published(held=Why.KEY_TAKEN, detail=f"{item.key} of the ConfigMap is somebody else's")
    if item.contract is None:
        return _kept(item, before)
    if not full:
        return Published(item.text, item.contract, is_latest=True)
    return _kept(item, before, Why.CONFIG_MAP_FULL, full)


def _kept(item: Item, before: str, held: Why | None = None, detail: str = "") -> Published:
    return Published(before, loaded(before, item.name)[0] if before else None, held=held, detail=detail)


def withheld(
    items: Iterable[Item], existing: Existing, found: Mapping[str, Published], detail: str
) -> dict[str, Published]:
    """Return what became of the items where the API server refused the ConfigMap: all keep what was there."""
    told = dict(found)
    for item in items:
        before = existing.ours.get(item.key, "")
        if found[item.uid].is_latest and before != item.text:
            told[item.uid] = _kept(item, before, Why.CONFIG_MAP_REFUSED, detail)
    return told


def is_current(existing: Existing, items: Sequence[Item], found: Mapping[str, Published]) -> bool:
    """Tell whether the ConfigMap is as it shall be; none is made for nothing."""
    texts = _texts(items, found)
    if not existing.is_there:
        return not texts
    owners = frozenset(i.uid for i in _owners(existing, items, found))
    return existing.ours == texts and existing.owners >= owners


def apply_body(
    plan: Plan, namespace: str, existing: Existing, items: Sequence[Item], found: Mapping[str, Published]
) -> dict[str, Any]:
    """Return what to apply, server-side: keys of ours that are not in it go away."""
    metadata = {
        "name": plan.config_map,
        "namespace": namespace,
        "labels": {"paritas.dev/contracts": "true"},
        "ownerReferences": [_owner(item) for item in _owners(existing, items, found)],
    }
    texts = _texts(items, found)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": texts}


def _texts(items: Sequence[Item], found: Mapping[str, Published]) -> dict[str, str]:
    return {item.key: found[item.uid].text for item in items if found[item.uid].text}


def _owners(existing: Existing, items: Sequence[Item], found: Mapping[str, Published]) -> Iterator[Item]:
    """The cluster deletes what has lost its last owner: never a ConfigMap that holds keys of others."""
    if not existing.others:
        yield from (item for item in items if found[item.uid].text)


def _owner(item: Item) -> dict[str, Any]:
    return {"apiVersion": "paritas.dev/v1", "kind": "KernelContract", "name": item.name, "uid": item.uid}


def _owned(metadata: Mapping[str, Any]) -> frozenset[str]:
    """The keys that were applied under our name."""
    found = frozenset[str]()
    for entry in metadata.get("managedFields") or ():
        if entry["manager"] == FIELD_MANAGER and entry["operation"] == "Apply":
            found |= {key.removeprefix("f:") for key in (entry["fieldsV1"].get("f:data") or {})}
    return found - {"."}


def _size(key: str, text: str) -> int:
    return len(key.encode()) + len(text.encode())
