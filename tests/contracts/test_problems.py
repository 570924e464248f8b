"""Problems come together, in the order of the file, with hints."""

import pickle

import pytest

from paritas.contracts.model import Place
from paritas.contracts.problems import Problems, did_you_mean, shorten
from paritas.errors import ContractError


def test_problems_are_raised_together_in_the_order_of_the_file() -> None:
    problems = Problems()
    problems.add(Place("a.yaml", 9, 1), "spec", "second")
    problems.add(Place("a.yaml", 2, 5), "", "first", "mend it")
    problems.add(Place("a.yaml", 2, 5), "", "first", "mend it")
    with pytest.raises(ContractError) as caught:
        problems.raise_if_any()
    assert str(caught.value) == "a.yaml:2:5: first\na.yaml:9:1: spec: second"
    assert (
        caught.value.render()
        == "[contract] a.yaml:2:5: first\n  hint: mend it\n[contract] a.yaml:9:1: spec: second"
    )


def test_without_problems_nothing_is_raised() -> None:
    Problems().raise_if_any()


def test_one_problem_keeps_its_hint_and_survives_pickling() -> None:
    problems = Problems()
    problems.add(Place("a.yaml", 1, 1), "spec", "wrong", "mend it")
    error = problems.error()
    assert error.hint == "mend it"
    assert pickle.loads(pickle.dumps(error)).render() == error.render()


def test_an_error_made_by_hand_has_one_problem() -> None:
    assert ContractError("wrong", hint="mend").problems == (("wrong", "mend"),)


def test_hints_name_the_closest_or_everything() -> None:
    assert did_you_mean("at_mots", ["at_most", "at_least"]) == "did you mean 'at_most'?"
    assert (
        did_you_mean("bf16", ["fp16", "dense-bf16", "moe-bf16"]) == "did you mean 'dense-bf16' or 'moe-bf16'?"
    )
    assert did_you_mean("?", ["a", "b"]) == "known: a, b"
    assert shorten("x" * 50) == repr("x" * 39 + "…")
