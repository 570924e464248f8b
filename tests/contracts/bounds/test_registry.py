"""Every statement of bounds.md A to F has a property test and a construction, or says why not.

Convention: ``test_<number>_holds...`` checks random pairs of kernels,
``test_<number>_is_reached...`` builds a pair that comes within 1 %.  A name that says
``is_reached_to_NN_percent`` is the best construction known, with its share asserted.
``is_an_identity`` needs no construction, and ``is_a_counterexample`` no property.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from paritas.contracts import bounds

HERE = Path(__file__).parent
IDENTITY, COUNTEREXAMPLE = "test_{}_is_an_identity", "test_{}_is_a_counterexample"

HOLDS_AND_IS_REACHED = (
    *(f"a{i}" for i in range(1, 19)),  # A1 to A18
    "a21",
    *(f"b{i}" for i in range(1, 6)),  # B1 to B5
    *(f"c{i}" for i in range(1, 8)),  # C1 to C7
    *(f"d{i}" for i in range(1, 10)),  # D1 to D9
    "d10",
    "d11",
    "d12",
    "d13",
    "d14",
    "d15",
    "d17",
    "d18",
    *(f"e{i}" for i in range(1, 6)),  # E1 to E5
    "f6",
    "f7",
)
BEST_KNOWN = {  # number -> construction that stays below 99 %
    "b6": "test_b6_is_reached_to_82_percent_by_one_step_and_28_by_many",
    "d16": "test_d16_is_reached_to_45_percent_of_the_width_that_is_valid_once",
}
IDENTITIES = ("a19", "a20", "b7", "f1", "f2", "f3", "f4", "f5")
COUNTEREXAMPLES = ("e6",)

REGISTRY = {
    **{n: (f"test_{n}_holds", f"test_{n}_is_reached") for n in HOLDS_AND_IS_REACHED},
    **{n: (f"test_{n}_holds", name) for n, name in BEST_KNOWN.items()},
    **{n: (IDENTITY.format(n),) for n in IDENTITIES},
    **{n: (COUNTEREXAMPLE.format(n),) for n in COUNTEREXAMPLES},
}
STATEMENTS = {"a": 21, "b": 7, "c": 7, "d": 18, "e": 6, "f": 7}


@cache
def written_tests():
    """All test functions beside this file."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in HERE.glob("test_*.py")]
    return {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("letter", sorted(STATEMENTS))
def test_every_number_is_registered(letter):
    wanted = {f"{letter}{i}" for i in range(1, STATEMENTS[letter] + 1)}
    assert {n for n in REGISTRY if n.startswith(letter)} == wanted


@pytest.mark.parametrize("number", sorted(REGISTRY))
def test_registered_tests_exist(number):
    missing = [name for name in REGISTRY[number] if name not in written_tests()]
    assert not missing


def test_every_number_is_documented_by_a_function():
    """The docstrings of the package name every statement that it implements."""
    sources = [path.read_text(encoding="utf-8") for path in Path(bounds.__file__).parent.glob("*.py")]
    text = "\n".join(sources)
    unnamed = [n.upper() for n in REGISTRY if not re.search(rf"\b{n.upper()}\b", text)]
    assert not unnamed


def test_names_that_promise_less_than_99_percent_say_so():
    partial = {name for name in written_tests() if re.search(r"_is_reached_to_\d+_percent", name)}
    assert set(BEST_KNOWN.values()) <= partial
