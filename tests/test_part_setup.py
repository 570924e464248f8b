"""What a module that sets a real part up says, and what it returns."""

import sys

import pytest
from part_setup import SetupError, run_step, set_up, set_up_all, speaker, why_not


def step(program, **more):
    return run_step([sys.executable, "-c", program], what="the part", limit_s=30, **more)


def broken():
    raise SetupError("the part cannot be had")


def test_a_step_gives_what_it_wrote(tmp_path):
    assert step("import os; print(os.getcwd())", cwd=tmp_path) == f"{tmp_path}\n"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; sys.exit('one\\ntwo\\n  three  ')", "two three"),
        ("raise SystemExit(1)", "it said nothing"),
        ("import sys; sys.exit('x' * 400)", "x" * 300),
    ],
)
def test_a_step_that_fails_is_one_error_with_its_last_words(program, said):
    with pytest.raises(SetupError) as caught:
        step(program)
    assert str(caught.value) == f"the part cannot be had: {said}"


def test_a_step_that_takes_too_long_names_the_limit():
    with pytest.raises(SetupError) as caught:
        run_step([sys.executable, "-c", "input()"], what="the part", limit_s=0)
    assert str(caught.value) == "the part was not there after 0 s: is the network slow?"


@pytest.mark.parametrize(
    ("missing", "fetch", "code", "said"),
    [
        (lambda: None, lambda: None, 0, "ready: HERE"),
        (lambda: "needs Go", broken, 1, "needs Go"),
        (lambda: None, broken, 1, "the part cannot be had"),
    ],
)
def test_a_part_is_there_or_says_why_not(missing, fetch, code, said, capsys):
    assert set_up(missing, fetch, say=speaker("part"), ready=lambda: "HERE") == code
    assert capsys.readouterr() == ("", f"part: {said}\n")


def test_every_named_part_is_told(capsys):
    reasons = {"one": None, "other": "needs Go"}
    assert set_up_all(reasons, reasons.get) == 0
    assert capsys.readouterr().out == "one: ready\nother: not to be had here: needs Go\n"


def test_an_error_that_is_not_awaited_is_raised():
    with pytest.raises(SetupError):
        why_not(lambda: None, broken, errors=(OSError,))
