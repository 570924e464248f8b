"""The command line itself: errors become two lines and exit code 64, never a traceback."""

import pytest
from command_runs import run

from paritas.cli import main


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, "paritas 0.1.0\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            [],
            "[usage] the following arguments are required: COMMAND\n  hint: paritas --help shows what it takes\n",
        ),
        (
            ["check"],
            "[usage] the following arguments are required: CONTRACT\n  hint: paritas check --help shows what it takes\n",
        ),
    ],
)
def test_usage_errors_have_two_lines(arguments, text, capsys):
    assert main(arguments) == 64
    assert capsys.readouterr().err == text


def test_an_unknown_command_names_the_known_ones(capsys):
    assert main(["chekc"]) == 64
    text = capsys.readouterr().err
    assert text.startswith("[usage] argument COMMAND: invalid choice: 'chekc'")
    assert "check" in text


def test_every_command_has_help():
    for command in ("check", "up", "ingest", "watch", "demo", "contract"):
        done = run(command, "--help")
        assert done.returncode == 0
        assert done.stdout.startswith(f"usage: paritas {command}")


def test_a_file_that_the_system_refuses_is_named(tmp_path, capsys):
    place = tmp_path / ("x" * 300)
    assert main(["access", "add", "ana", "--role", "actor", "--file", str(place)]) == 64
    assert capsys.readouterr().err == (
        f"[usage] {place}: File name too long\n  hint: check the path and its permissions\n"
    )
