"""Whatever stands in the file: a contract or a ContractError, nothing else."""

import random

import pytest
from contract_cases import GOOD
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.contracts.lint import lint
from paritas.contracts.load import load_text
from paritas.contracts.model import Contract
from paritas.errors import ContractError

TEXTS = [path.read_text(encoding="utf-8") for path in GOOD]
TOKENS = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "-",
    "#",
    "&a",
    "*a",
    "!",
    "|",
    ">",
    "'",
    '"',
    "?",
    "%",
    "@",
    "\t",
    "\n",
    "  ",
    "~",
    "0",
    "-1",
    "1e9",
    "9e999",
    ".nan",
    "true",
    "7d",
    "all",
    "tv",
    "\\u0000",
    "\x00",
    "😀",
]


def loaded(text: str | bytes) -> Contract | None:
    """Load or refuse; every refusal has a place in each line."""
    problems: tuple[tuple[str, str], ...] = ()
    contract = None
    try:
        contract = load_text(text, "a.yaml")
        lint(contract)
    except ContractError as error:
        problems = error.problems
    assert all(message.startswith(("a.yaml:", "and ")) for message, _ in problems)
    return contract


@settings(deadline=None, max_examples=150)
@given(st.text(max_size=80) | st.binary(max_size=80))
def test_any_text_or_bytes(text: str | bytes) -> None:
    loaded(text)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(TOKENS), max_size=25).map("".join))
def test_any_row_of_yaml_tokens(text: str) -> None:
    loaded(text)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(TEXTS), st.randoms(use_true_random=False))
def test_a_good_file_with_its_lines_shuffled_about(text: str, rng: random.Random) -> None:
    lines = text.splitlines()
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(lines))
        match rng.randrange(4):
            case 0:
                del lines[at : at + 1]
            case 1:
                lines.insert(at, lines[at])
            case 2:
                lines[at] = rng.choice(lines)
            case _:
                lines[at] = " " * rng.randrange(3) + lines[at]
        lines = lines or [""]
    loaded("\n".join(lines))


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(TEXTS), st.randoms(use_true_random=False))
def test_a_good_file_with_tokens_exchanged(text: str, rng: random.Random) -> None:
    at = rng.randrange(len(text))
    until = at + rng.randrange(6)
    loaded(text[:at] + rng.choice(TOKENS) + text[until:])


@pytest.mark.parametrize("depth", [10, 1000, 100_000])
@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "&a [", "- - "])
def test_deep_nesting_ends_early(opening: str, depth: int) -> None:
    assert loaded(opening * depth) is None
