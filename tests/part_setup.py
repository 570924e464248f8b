"""What every module that sets a real part up shares: its one error, how it speaks, how it runs a step, its `main`."""

import contextlib
import fcntl
import os
import shutil
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


@contextlib.contextmanager
def one_at_a_time(lock_file):
    """Let others that come here together, such as several test workers, wait; the folder is made."""
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def give_name(name, made):
    """Give a new folder the name that is used, in one step, and remove the old one.

    The name is a link, for a virtual environment's scripts know the folder that it was made in.
    """
    beside = name.with_name(f".{name.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()
    beside.symlink_to(made.name)
    if name.is_dir() and not name.is_symlink():
        shutil.rmtree(name)
    old = name.resolve() if name.is_symlink() else None
    beside.replace(name)
    if old is not None and old != made.resolve():
        shutil.rmtree(old, ignore_errors=True)


def run_step(command, *, what, limit_s, reason_of=None, **place):
    """Run to the end and return its output; `place` is `cwd` and `env`.

    Raises
    ------
    SetupError
        It failed, with what `reason_of` finds in all it said (without one: its last lines), or took too long.
    """
    try:
        done = subprocess.run(command, check=False, timeout=limit_s, capture_output=True, text=True, **place)
    except subprocess.TimeoutExpired as error:
        raise SetupError(too_late(what, limit_s)) from error
    if done.returncode:
        reason = reason_of(done.stdout + done.stderr) if reason_of else last_said(done.stderr)
        raise SetupError(f"{what} cannot be had: {reason}")
    return done.stdout


def too_late(what, limit_s):
    """What is said of a step that took too long."""
    return f"{what} was not there after {limit_s} s: is the network slow?"


def last_said(text):
    """The last lines of what a failed step said, as one."""
    return (" ".join(" ".join(text.splitlines()[-LAST_LINES:]).split()) or "it said nothing")[:LAST_CHARS]


def pip_said(text):
    """The last line that pip calls an error, else the last that it said."""
    told = [line.strip() for line in text.splitlines() if line.strip()] or ["it said nothing"]
    named = [line for line in told if line.startswith("ERROR")]
    return f"is the network up? {(named or told)[-1].removeprefix('ERROR: ')[:LAST_CHARS]}"


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


def set_up_all(names, reason_of, *, known):
    """Get every named part, or all, that can be had, and say so; return 0, or 2 for a name that is none."""
    if unknown := [name for name in names if name not in known]:
        sys.stderr.write(f"no such part: {', '.join(unknown)} (there are {', '.join(known)})\n")
        return 2
    for name in names or known:
        reason = reason_of(name)
        sys.stdout.write(f"{name}: {f'not to be had here: {reason}' if reason else 'ready'}\n")
        sys.stdout.flush()
    return 0
