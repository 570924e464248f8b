"""A reader that leaves, a full disk, a closed stream, an old encoding: the exit code stays what it means."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_runs import DEADLINE_S, recording

PARITAS = Path(sys.executable).with_name("paritas")
VIOLATED = ("check", "dense-bf16", "--serve", recording("healthy.serve"), "--train", recording("stale.train"))
UNDECIDED = (
    "check",
    "dense-bf16",
    "--serve",
    recording("healthy.serve"),
    "--train",
    recording("healthy.train"),
)
FULL = Path("/dev/full")
FULL_TEXT = (
    "[usage] the output cannot be written: No space left on device\n  hint: what is there is not whole\n"
)
# As a user has it: Python holds output back until its buffer is full or the process ends.
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def run_into(output, *arguments, env=BUFFERED):
    """Run with standard output going to a file or descriptor; returns (exit code, standard error)."""
    command = [PARITAS, *arguments]
    done = subprocess.run(
        command, stdout=output, stderr=subprocess.PIPE, timeout=DEADLINE_S, check=False, env=env
    )
    return done.returncode, done.stderr.decode()


def run_left(*arguments):
    """Run with a standard output whose reader has left."""
    read, write = os.pipe()
    os.close(read)
    try:
        return run_into(write, *arguments)
    finally:
        os.close(write)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (VIOLATED, 1),
        ((*VIOLATED, "--json"), 1),  # more than the buffer: fails while it is written
        (("contract", "diff", "dense-bf16", "moe-bf16"), 1),  # less: fails at the end
        (("contract", "presets"), 0),
        (("contract", "budget", "examples/contracts/ppo.yaml"), 0),
        (("--help",), 0),
    ],
)
def test_a_reader_that_leaves_changes_no_exit_code(arguments, code, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[3])
    assert run_left(*arguments) == (code, "")


@pytest.mark.skipif(not FULL.exists(), reason="a device that is always full is of Linux")
@pytest.mark.parametrize(
    "arguments", [VIOLATED, (*VIOLATED, "--json"), ("contract", "presets"), ("--version",)]
)
def test_an_output_that_takes_nothing_is_told_and_is_no_verdict(arguments):
    with FULL.open("wb") as output:
        assert run_into(output, *arguments) == (64, FULL_TEXT)


@pytest.mark.parametrize("locale", [{"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "cp1252"}])
def test_what_an_encoding_lacks_is_written_as_an_escape(locale, tmp_path):
    with (tmp_path / "told").open("wb") as output:
        assert run_into(output, *UNDECIDED, env=BUFFERED | locale) == (3, "")
    assert b"log\\u2081\\u2080e" in (tmp_path / "told").read_bytes()


def test_a_person_who_chose_for_errors_is_obeyed(tmp_path):
    chosen = BUFFERED | {"PYTHONIOENCODING": "ascii:replace"}
    with (tmp_path / "told").open("wb") as output:
        assert run_into(output, *UNDECIDED, env=chosen) == (3, "")
    assert b"log??e" in (tmp_path / "told").read_bytes()


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [
        (">&-", (*UNDECIDED, "--json"), 3),
        ("2>&-", ("check", "no-such-preset", "--dump", "x"), 64),
        ("<&-", ("contract", "import", "-"), 64),
    ],
)
def test_a_closed_stream_changes_no_exit_code(closed, arguments, code):
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" "$@" {closed}', PARITAS, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_errors_whose_reader_has_left_keep_their_code():
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [PARITAS, "check", "no-such-preset", "--dump", "x"], stderr=write, timeout=DEADLINE_S, check=False
        )
    finally:
        os.close(write)
    assert done.returncode == 64


def test_a_narrow_terminal_cuts_no_number():
    done = subprocess.run(
        [PARITAS, "contract", "budget", Path(__file__).parents[3] / "examples/contracts/ppo.yaml"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
        env=BUFFERED | {"COLUMNS": "40"},
    )
    assert "…" not in done.stdout


def test_a_terminal_that_can_do_nothing_cuts_no_number(tmp_path):
    dumb = BUFFERED | {"TERM": "dumb", "FORCE_COLOR": "1", "COLUMNS": "80"}  # a terminal, to rich
    with (tmp_path / "told").open("wb") as output:
        assert run_into(output, *VIOLATED, env=dumb) == (1, "")
    row = (tmp_path / "told").read_text().splitlines()[3].split()
    assert [row[0], row[1], row[7]] == ["mean-ratio", "replica=r2", "1.002"]
