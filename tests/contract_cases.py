"""The golden contract files, and the smallest contract that tests build on."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paritas.contracts.load import load_text
from paritas.contracts.model import Contract

FOLDER = Path(__file__).parent / "contracts" / "cases"
GOOD = sorted(FOLDER.glob("*.good.yaml"))
BAD = sorted(FOLDER.glob("*.bad.yaml"))

HEAD = "apiVersion: paritas.dev/v1\nkind: KernelContract\nmetadata: {name: a, version: 1.0.0}\n"


def expected_problems(path: Path) -> list[tuple[str, str]]:
    """Messages and hints that a bad file says of itself, in its ``# error:`` and ``#   hint:`` lines."""
    found: list[tuple[str, str]] = []
    for line in path.read_bytes().decode("utf-8", "surrogatepass").splitlines():
        if error := re.fullmatch(r"# error: (.*)", line):
            found.append((error[1], ""))
        elif hint := re.fullmatch(r"#   hint: (.*)", line):
            found[-1] = (found[-1][0], hint[1])
    return found


def contract(spec: str, version: str = "1.0.0") -> Contract:
    """Load a contract from the indented text of its spec."""
    return load_text(HEAD.replace("1.0.0", version) + "spec:\n" + spec, "a.yaml")


def clause_contract(
    clause: str, family: str = "numerical", extra: str = "", version: str = "1.0.0"
) -> Contract:
    """Load a contract with one clause, given as a flow mapping."""
    return contract(f"{extra}  clauses:\n    {family}:\n      - {clause}\n", version)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value below `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield (*path, key)
        yield from places(child, (*path, key))
