"""What we write, every reader takes for the same."""

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.contracts.cluster.yaml_text import yaml_text
from paritas.contracts.compose import compose
from paritas.contracts.nodes import plain
from paritas.contracts.problems import Problems

PRINTABLE = st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="\ufeff"), max_size=12)
TRICKY = st.sampled_from(
    ["y", "N", "on", "1e-3", "1:30", "0o17", "0x1f", "~", "", "=", ".inf", "1_000", "null"]
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**12), 10**12)
LEAVES = TRICKY | PRINTABLE | NUMBERS | st.booleans()
VALUES = st.recursive(
    LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(PRINTABLE.filter(bool), v, max_size=3)
)


@settings(deadline=None, max_examples=200)
@given(VALUES)
def test_our_reader_and_that_of_yaml_1_1_read_what_was_written(value):
    text = yaml_text({"spec": value})
    problems = Problems()
    assert plain(compose(text, "a.yaml", problems)) == {"spec": value}
    assert len(problems) == 0
    assert yaml.safe_load(text) == {"spec": value}


def test_text_that_go_takes_for_a_flag_is_quoted():
    assert (
        yaml_text(["y", "n", "Y", "N", "yes", "off"]) == '- "y"\n- "n"\n- "Y"\n- "N"\n- \'yes\'\n- \'off\'\n'
    )


def test_the_same_list_twice_is_written_twice():
    shared = ["a1"]
    assert yaml_text({"one": shared, "two": shared}) == "one:\n- a1\ntwo:\n- a1\n"
