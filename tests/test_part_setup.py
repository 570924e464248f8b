"""What a module that sets a real part up says, and what it returns."""

import fcntl
import sys

import pytest
from part_setup import (
    SetupError,
    give_name,
    one_at_a_time,
    pip_said,
    run_step,
    set_up,
    set_up_all,
    speaker,
    why_not,
)


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


def test_a_step_may_say_how_its_reason_is_found():
    with pytest.raises(SetupError) as caught:
        step("print('one', flush=True); raise SystemExit('two')", reason_of=repr)
    assert str(caught.value) == r"the part cannot be had: 'one\ntwo\n'"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            "Collecting x\nERROR: No version\nERROR: No distribution for x\nsee above\n",
            "No distribution for x",
        ),
        ("Collecting x\n\n", "Collecting x"),
        ("", "it said nothing"),
    ],
)
def test_the_reason_is_the_last_line_that_pip_calls_an_error(told, said):
    assert pip_said(told) == f"is the network up? {said}"


def test_who_comes_while_another_sets_up_waits(tmp_path):
    lock_file = tmp_path / "cache" / "part.lock"
    with one_at_a_time(lock_file), lock_file.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with lock_file.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.fixture
def made(tmp_path):
    """Two folders that one name can stand for."""
    folders = tmp_path / "venv-1", tmp_path / "venv-2"
    for folder in folders:
        folder.mkdir()
    return folders


def test_a_new_folder_takes_the_name_and_the_old_one_goes(made, tmp_path):
    name = tmp_path / "venv"
    for folder in made:
        give_name(name, folder)
        assert name.resolve() == folder
    assert sorted(path.name for path in tmp_path.iterdir()) == ["venv", "venv-2"]


def test_the_folder_that_has_the_name_keeps_it(made, tmp_path):
    for _ in range(2):
        give_name(tmp_path / "venv", made[0])
    assert (tmp_path / "venv").resolve() == made[0]


def test_a_folder_that_was_made_under_the_name_itself_gives_way(made, tmp_path):
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    give_name(tmp_path / "venv", made[0])
    assert list((tmp_path / "venv").iterdir()) == []


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
    assert set_up_all(["other"], reasons.get, known=reasons) == 0
    assert capsys.readouterr().out == "other: not to be had here: needs Go\n"


def test_without_a_name_all_are_told(capsys):
    reasons = {"one": None, "other": "needs Go"}
    assert set_up_all([], reasons.get, known=reasons) == 0
    assert capsys.readouterr().out == "one: ready\nother: not to be had here: needs Go\n"


def test_a_name_that_is_none_is_one_line(capsys):
    assert set_up_all(["one", "tow"], broken, known=("one", "two")) == 2
    assert capsys.readouterr() == ("", "no such part: tow (there are one, two)\n")


def test_an_error_that_is_not_awaited_is_raised():
    with pytest.raises(SetupError):
        why_not(lambda: None, broken, errors=(OSError,))
