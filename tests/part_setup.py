"""What every module that sets a real part up shares: its one error, how it speaks, how it runs a step, its `main`."""

import subprocess
import sys

LAST_LINES = 2  # of a failed step, that are told
LAST_CHARS = 300


class SetupError(Exception):
    """It cannot be set up here; the text is for a person."""


def speaker(name):
    """Return the function that says a line in the name of a part."""

    def say(text):
        sys.stderr.write(f"{name}: {text}\n")
        sys.stderr.flush()

    return say


def run_step(command, *, what, limit_s, **place):
    """Run to the end and return its output; `place` is `cwd` and `env`.

    Raises
    ------
    SetupError
        It failed, with the last lines it said, or took too long.
    """
    try:
        done = subprocess.run(command, check=False, timeout=limit_s, capture_output=True, text=True, **place)
    except subprocess.TimeoutExpired as error:
        raise SetupError(too_late(what, limit_s)) from error
    if done.returncode:
        raise SetupError(f"{what} cannot be had: {last_said(done.stderr)}")
    return done.stdout


def too_late(what, limit_s):
    """What is said of a step that took too long."""
    return f"{what} was not there after {limit_s} s: is the network slow?"


def last_said(text):
    """The last lines of what a failed step said, as one."""
    return (" ".join(" ".join(text.splitlines()[-LAST_LINES:]).split()) or "it said nothing")[:LAST_CHARS]


def why_not(missing_tool, fetch, *, errors=(SetupError,)):
    """Get a part; return why it cannot be had here, or None."""
    if reason := missing_tool():
        return reason
    try:
        fetch()
    except errors as error:
        return str(error)
    return None


def set_up(missing_tool, fetch, *, say, ready):
    """Get a part and say where it is, as `ready` returns it, or why not; return the exit code."""
    reason = why_not(missing_tool, fetch)
    say(reason or f"ready: {ready()}")
    return 1 if reason else 0


def set_up_all(names, reason_of):
    """Get every named part that can be had, and say so; return 0."""
    for name in names:
        reason = reason_of(name)
        sys.stdout.write(f"{name}: {f'not to be had here: {reason}' if reason else 'ready'}\n")
        sys.stdout.flush()
    return 0
