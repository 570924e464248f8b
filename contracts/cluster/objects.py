"""Contract document ↔ object of a cluster, both ways.

An API server keeps no fields of its own choice under ``metadata``, so version, owner and preset of a
contract are annotations of its object; ``spec`` is the same.  Both forms load to equal contracts with
equal digests.  Needs PyYAML.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from paritas.contracts.compose import compose, decode
from paritas.contracts.load import load_text
from paritas.contracts.model import Contract
from paritas.contracts.nodes import plain
from paritas.contracts.problems import Problems
from paritas.contracts.table import API_VERSION, KIND
from paritas.errors import ContractError, UsageError

__all__ = ["ANNOTATIONS", "contract_document", "load_object", "object_of", "objects_in"]

Plain = dict[str, Any]

# Field of the document's metadata → annotation of the object.
ANNOTATIONS = {
    "version": "paritas.dev/version",
    "owner": "paritas.dev/owner",
    "applied_preset": "paritas.dev/applied-preset",
}
# Names of a cluster's objects (RFC 1123 subdomains): a contract's may also hold '_' and '.-'.
OBJECT_NAME = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
EXACT = 2**53  # whole numbers that a float holds


def object_of(content: bytes, file: str) -> Plain:
    r"""Return the object that a contract file is in a cluster; what it says is checked first.

    Raises
    ------
    ContractError
        It is no valid contract.
    UsageError
        No object can have its name.

    Examples
    --------
    >>> text = b"apiVersion: paritas.dev/v1\nkind: KernelContract\nmetadata: {name: a, version: 1.2.0}\nspec: {preset: lora}"
    >>> object_of(text, "a.yaml")["metadata"]
    {'name': 'a', 'annotations': {'paritas.dev/version': '1.2.0'}}
    """
    contract = load_text(content, file)
    if not re.fullmatch(OBJECT_NAME, contract.name):
        message = f"{file}: no object of a cluster can be named {contract.name!r}"
        raise UsageError(message, hint="use lower case letters, digits, '-' and single dots")
    told: Any = plain(compose(decode(content, file), file, Problems()))
    given = told["metadata"]
    notes = {ANNOTATIONS[name]: given[name] for name in ANNOTATIONS if name in given}
    metadata = {"name": contract.name, "annotations": notes}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": _whole(told["spec"])}


def contract_document(thing: Mapping[str, Any]) -> Plain:
    """Return the contract document in an object, as a file holds it; what the cluster added is left out.

    Examples
    --------
    >>> metadata = {"name": "a", "uid": "4f", "annotations": {"paritas.dev/version": "1.2.0"}}
    >>> contract_document({"metadata": metadata, "spec": {"preset": "lora"}, "status": {}})["metadata"]
    {'name': 'a', 'version': '1.2.0'}
    """
    metadata = _mapping(thing.get("metadata"))
    notes = _mapping(metadata.get("annotations"))
    told = {name: notes[note] for name, note in ANNOTATIONS.items() if note in notes}
    named = {"name": metadata.get("name", ""), **told}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": named, "spec": thing.get("spec")}


def load_object(text: str, name: str) -> Contract:
    """Load the text of an object's document; problems are named by field, as an object has no lines.

    Raises
    ------
    ContractError
        It is no valid contract; carries every problem found.
    """
    try:
        return load_text(text, name)
    except ContractError as error:
        problems = tuple((_by_field(said, name), hint) for said, hint in error.problems)
        raise ContractError(
            "\n".join(said for said, _ in problems), hint=error.hint, problems=problems
        ) from error


def objects_in(content: bytes, file: str) -> list[Plain]:
    """Return the contract objects in a file: one, or the list that ``kubectl get -o yaml`` writes.

    Raises
    ------
    ContractError, UsageError
        It is not YAML; it holds no object of this kind.
    """
    problems = Problems()
    told: Any = plain(compose(decode(content, file), file, problems))
    problems.raise_if_any()
    found = list(_contracts_in(told))
    if not found:
        raise UsageError(
            f"{file}: holds no {KIND}", hint="kubectl get kernelcontracts NAME -o yaml writes one"
        )
    return found


def _contracts_in(told: Any) -> Iterator[Plain]:
    if not isinstance(told, dict):
        return
    if told.get("kind") == KIND and told.get("apiVersion") == API_VERSION:
        yield told
    items = told.get("items")
    for item in items if isinstance(items, list) else ():
        yield from _contracts_in(item)


def _mapping(told: Any) -> Mapping[str, Any]:
    """What is no mapping holds nothing: what is missing then is said by the loader."""
    return told if isinstance(told, dict) else {}


def _by_field(said: str, name: str) -> str:
    """``a:3:5: metadata.version: …`` → ``metadata.annotations[paritas.dev/version]: …``."""
    bare = re.sub(rf"^{re.escape(name)}:\d+:\d+: ", "", said)
    for field, note in ANNOTATIONS.items():
        place = f"metadata.annotations[{note}]"
        bare = re.sub(rf"^metadata\.{field}:", f"{place}:", bare)
        bare = bare.replace(f"metadata: missing field '{field}'", f"{place}: is missing")
    return bare


def _whole(value: Any) -> Any:
    """64.0 is a whole number to the loader and none to an API server."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < EXACT else value
