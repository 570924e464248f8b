"""The CustomResourceDefinition `KernelContract`, made from the table of the language."""

from typing import Any

from paritas.contracts.cluster.status_schema import COLUMNS, STATUS
from paritas.contracts.cluster.structural import structural
from paritas.contracts.table import API_VERSION, DOCUMENT, KIND
from paritas.contracts.table_scalars import NAME

__all__ = ["GROUP", "PLURAL", "VERSION", "definition"]

Schema = dict[str, Any]

GROUP, VERSION = API_VERSION.split("/")
PLURAL = "kernelcontracts"


def definition() -> Schema:
    """Return the definition; ``paritas contract schema --crd`` prints it.

    Examples
    --------
    >>> definition()["metadata"]["name"]
    'kernelcontracts.paritas.dev'
    """
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "names": _names(), "scope": "Namespaced", "versions": [_version()]},
    }


def _names() -> Schema:
    return {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
        "shortNames": ["kc"],
        "categories": ["paritas"],
    }


def _version() -> Schema:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": COLUMNS,
        "schema": {"openAPIV3Schema": _document()},
    }


def _document() -> Schema:
    """The document without its metadata, whose version and owner are annotations of an object."""
    (spec,) = (structural(f.shape) for f in DOCUMENT.fields if f.name == "spec")
    return {
        "description": "What two kernels of one policy must agree in (docs/contract.md, docs/operator.md).",
        "type": "object",
        "properties": {"spec": {"description": "the contract", **spec}, "status": STATUS},
        "required": ["spec"],
        "x-kubernetes-validations": [_name_rule()],
    }


def _name_rule() -> Schema:
    return {
        "rule": f"self.metadata.name.matches('{NAME.pattern}')",
        "message": f"the name of a contract has {NAME.hint}",
    }
