"""Long-running commands as processes, and what they say about themselves over HTTP."""

import contextlib
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from paritas.clock import SystemClock

PARITAS = str(Path(sys.executable).with_name("paritas"))
END_S = 60


class Service:
    """A process, the lines it said until it was ready, and the ways to end it."""

    def __init__(self, process, lines):
        self.process, self.lines = process, lines

    def word(self, start):
        """The second word of the line that begins so."""
        return next(line for line in self.lines if line.startswith(start)).split()[1]

    def end(self, number=signal.SIGTERM):
        """Send a signal; returns (exit code, rest of stdout, stderr, seconds it took)."""
        clock = SystemClock()
        start_ns = clock.monotonic_ns()
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=END_S)
        return self.process.returncode, out, err, (clock.monotonic_ns() - start_ns) / 1e9


@contextlib.contextmanager
def running(*arguments, until, env=None, cwd=None):
    """Start a command and read until a line begins with `until`; yields a `Service`, killed at the end."""
    process = subprocess.Popen(
        [PARITAS, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )
    try:
        lines = []
        while not lines or not lines[-1].startswith(until):
            line = process.stdout.readline()
            assert line, f"ended before {until!r}: {lines} {process.stderr.read()}"
            lines.append(line)
        yield Service(process, lines)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()


def asked(url):
    """HTTP status and text of a page; (0, reason) where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def value(text, start):
    """The number on the line of a page that begins so."""
    return float(next(line for line in text.splitlines() if line.startswith(start)).split()[-1])
