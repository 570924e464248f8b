"""`paritas contract export`, `import` and `schema --crd`: contracts as objects of a Kubernetes cluster."""

import argparse
import sys
from pathlib import Path

from paritas.contracts.cluster.definition import definition
from paritas.contracts.cluster.objects import contract_document, load_object, object_of, objects_in
from paritas.contracts.cluster.yaml_text import yaml_text
from paritas.contracts.load import load_named, preset_names, preset_text
from paritas.errors import UsageError

__all__ = ["run_export", "run_import", "say_definition"]

STDIN = "-"


def run_export(args: argparse.Namespace) -> int:
    """Print the object that a contract is in a cluster."""
    file = load_named(args.file).file  # its errors come first, and say how a preset is named
    is_preset = args.file in preset_names() and not Path(args.file).is_file()
    content = preset_text(args.file).encode() if is_preset else Path(args.file).read_bytes()
    thing = object_of(content, file)
    if args.namespace:
        thing["metadata"]["namespace"] = args.namespace
    sys.stdout.write(yaml_text(thing))
    return 0


def run_import(args: argparse.Namespace) -> int:
    """Print the contract in an object, checked, as a file holds it."""
    name = "standard input" if args.file == STDIN else args.file
    found = objects_in(_content(args.file), name)
    if len(found) > 1:
        raise UsageError(
            f"{name}: holds {len(found)} contracts", hint="kubectl get kernelcontracts NAME -o yaml"
        )
    text = yaml_text(contract_document(found[0]))
    load_object(text, name)
    sys.stdout.write(text)
    return 0


def _content(file: str) -> bytes:
    if file == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from error


def say_definition(args: argparse.Namespace) -> int:
    """Print the CustomResourceDefinition."""
    if args.file is not None:
        raise UsageError("--crd is about every contract", hint="leave FILE out, or --crd")
    sys.stdout.write(yaml_text(definition()))
    return 0
