"""Run `paritas` as a user does: a process of its own, with a deadline."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from paritas.clock import SystemClock

DATA = Path(__file__).resolve().parents[1] / "src/paritas/data"
DEADLINE_S = 90


def recording(name):
    """A shipped recording."""
    return str(DATA / f"{name}.jsonl.gz")


def run(*arguments, env=None, deadline_s=DEADLINE_S):
    """Run to the end; returns the completed process with text output."""
    command = [str(Path(sys.executable).with_name("paritas")), *map(str, arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
        env={**os.environ, "COLUMNS": "140", **(env or {})},
    )


def run_json(*arguments):
    """Run with --json and return (exit code, object)."""
    done = run(*arguments, "--json")
    assert done.stderr == "", done.stderr
    return done.returncode, json.loads(done.stdout)


@contextlib.contextmanager
def service(data, *arguments):
    """`paritas up` on a folder, from ready to terminated; yields the process."""
    command = [
        str(Path(sys.executable).with_name("paritas")),
        "up",
        "--data",
        str(data),
        "--listen",
        "127.0.0.1:0",
        *arguments,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        ready = [process.stdout.readline() for _ in range(5)]
        assert ready[0].startswith("watching contract"), "".join(ready) + process.stdout.read()
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def until(condition, *, deadline_s=DEADLINE_S):
    """Wait for a condition with a deadline; returns its first true value."""
    clock, never = SystemClock(), threading.Event()
    end_ns = clock.monotonic_ns() + round(deadline_s * 1e9)
    while clock.monotonic_ns() < end_ns:
        if value := condition():
            return value
        clock.wait(never, timeout_s=0.02)
    raise AssertionError("the deadline passed")
