"""One object that is nested too deeply is refused by the loader, and keeps nobody else's from being read."""

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.controller.operator.depths import DEEPEST, loaded_json, shallow
from paritas.controller.operator.items import Reader

TOO_DEEP = "nested deeper than 32 levels"
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=20,
)


def nested(levels):
    return "[" * levels + "1" + "]" * levels


def answer(levels):
    """The text of a list answer: one object that nests so deeply, then a good one."""
    limit = f'{{"id": "x", "statistic": "tv", "at_most": {nested(levels)}}}'
    objects = [
        f'{{"metadata": {place("deep")}, "spec": {{"clauses": {{"numerical": [{limit}]}}}}}}',
        f'{{"metadata": {place("good")}, "spec": {{"preset": "lora"}}}}',
    ]
    return f'{{"items": [{", ".join(objects)}], "metadata": {{"continue": "a[b"}}}}'


def place(name):
    told = {"name": name, "namespace": "rl", "uid": name, "generation": 1}
    told |= {"creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"paritas.dev/version": "1.0.0"}}
    return json.dumps(told)


@pytest.mark.parametrize("levels", [40, 300, 700, 3 * sys.getrecursionlimit(), 9000])
def test_a_deep_object_is_invalid_and_the_next_one_is_read(levels):
    read = loaded_json(answer(levels))
    deep, good = Reader().items(read["items"])
    assert [said for said, _ in deep.problems] == [TOO_DEEP]
    assert deep.contract is None
    assert good.contract is not None
    assert read["metadata"] == {"continue": "a[b"}


@given(values)
@settings(deadline=None, max_examples=60)
def test_what_is_not_deep_is_as_it_was(value):
    assert shallow(value) == value
    assert loaded_json(json.dumps(value)) == value


@given(values, st.sampled_from(["]", "[{", '\\"', "\\\\", "é"]))
@settings(deadline=None, max_examples=60)
def test_only_what_is_deep_is_cut_out_of_a_text(value, word):
    deep = nested(3 * sys.getrecursionlimit())
    text = f'{{"a": {deep}, "b": {json.dumps(value)}, "c": "{word}"}}'
    read = loaded_json(text)
    assert read["b"] == shallow(value, DEEPEST - 1)
    assert read["c"] == json.loads(f'"{word}"')
    assert json.dumps(read["a"]) == "[" * (DEEPEST - 1) + "null" + "]" * (DEEPEST - 1)


def test_text_that_is_no_json_is_still_none():
    with pytest.raises(ValueError, match="Expecting"):
        loaded_json("{")
