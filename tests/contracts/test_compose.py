"""Text becomes nodes with places, JSON and YAML alike; every fault on the way is collected."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.contracts.compose import LIMIT_DEPTH, LIMIT_NODES, compose, decode
from paritas.contracts.nodes import MappingNode, describe, plain
from paritas.contracts.problems import Problems
from paritas.errors import ContractError

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)


def composed(text: str) -> object:
    problems = Problems()
    node = compose(text, "a.yaml", problems)
    problems.raise_if_any()
    return plain(node)


@settings(deadline=None, max_examples=60)
@given(JSON, st.sampled_from([None, 2, "\t"]))
def test_json_is_read_as_json(value: object, indent: int | str | None) -> None:
    import json

    text = json.dumps({"key": value}, indent=indent)
    assert composed(text) == {"key": value}


def test_places_count_from_one() -> None:
    node = compose("a: 1\nbb:\n  - x\n  - {c: y}\n", "a.yaml", Problems())
    assert isinstance(node, MappingNode)
    entry = node.get("bb")
    assert entry is not None
    assert (str(node.place), str(entry.place), str(entry.node.place)) == (
        "a.yaml:1:1",
        "a.yaml:2:1",
        "a.yaml:3:3",
    )


def test_quoted_scalars_stay_text_and_plain_ones_resolve() -> None:
    assert composed("a: '1'\nb: 1\nc: |\n  2\nd: \"true\"\n") == {"a": "1", "b": 1, "c": "2\n", "d": "true"}


def test_an_alias_is_the_value_again() -> None:
    assert composed("a: &x {b: [1]}\nc: *x\n") == {"a": {"b": [1]}, "c": {"b": [1]}}


def test_every_fault_that_does_not_stop_the_reading_is_collected() -> None:
    problems = Problems()
    compose("a: !x 1\nb: .nan\na: 2\n? [k]\n: 1\n<<: {}\n", "a.yaml", problems)
    assert [p.message for p in problems.in_order()] == [
        "tag '!x' is not allowed",
        ".nan is not a number a contract can hold",
        "doubled key 'a'",
        "a key must be text",
        "merge key '<<'",
    ]


def test_a_quoted_merge_key_is_an_ordinary_key() -> None:
    assert composed("'<<': 1\n") == {"<<": 1}


def test_the_limits_are_where_they_are_said_to_be() -> None:
    assert composed("[" * LIMIT_DEPTH + "]" * LIMIT_DEPTH) is not None
    with pytest.raises(ContractError, match=f"nested deeper than {LIMIT_DEPTH} levels"):
        composed("[" * (LIMIT_DEPTH + 2) + "]" * (LIMIT_DEPTH + 2))
    with pytest.raises(ContractError, match=f"more than {LIMIT_NODES} values"):
        composed("[" + "1," * (LIMIT_NODES + 1) + "]")


def test_a_document_may_start_with_a_marker_and_end_with_one() -> None:
    assert composed("%YAML 1.2\n---\na: 1\n...\n") == {"a": 1}


def test_hostile_directives_and_escapes_are_contract_errors() -> None:
    for text in ("%YAML 1." + "9" * 5000 + "\n---\na: 1\n", 'a: "\\UFFFFFFFF"\n', "a: \ud800\n"):
        with pytest.raises(ContractError):
            composed(text)


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=60))
def test_any_bytes_decode_or_have_a_place(content: bytes) -> None:
    try:
        assert decode(content, "a.yaml") == content.decode("utf-8-sig")
    except ContractError as error:
        place, line, column, _ = str(error).split(":", 3)
        assert (place, int(line) >= 1, int(column) >= 1) == ("a.yaml", True, True)


def test_nodes_describe_themselves() -> None:
    node = compose("[1.50, yes, true, ~, {}, [], '', -0x]", "a.yaml", Problems())
    assert [describe(item) for item in node.items] == [  # type: ignore[union-attr]  # a list was written
        "number 1.50",
        "text 'yes'",
        "true",
        "nothing",
        "a mapping",
        "a list",
        "text ''",
        "text '-0x'",
    ]


def test_without_pyyaml_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['yaml'] = None\n"
        "from paritas.contracts.load import load_text\n"
        "from paritas.errors import UsageError\n"
        "try: load_text('a: 1', 'a.yaml')\n"
        "except UsageError as error: print(error.render())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[usage] contract files need PyYAML\n  hint: pip install 'paritas[contracts]'\n"
