"""`paritas control` and `paritas detect` as processes that a test starts, reads, kills and ends."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from system.flink_cluster import until

PARITAS = Path(sys.executable).with_name("paritas")
DEADLINE_S = 120


class Command:
    """One process of the command; a context manager that leaves none behind.

    Parameters
    ----------
    words : sequence
        After `paritas`.
    program : Path
        The command, of this environment or another.
    """

    def __init__(self, *words, program=PARITAS, env=None):
        self._out = tempfile.TemporaryFile("w+b")  # noqa: SIM115 -- closed on leaving
        self._errors = tempfile.TemporaryFile("w+b")  # noqa: SIM115 -- closed on leaving
        command = [str(program), *map(str, words)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._errors, env=env
        )

    @property
    def out(self):
        """What it has said so far."""
        return _text(self._out)

    @property
    def errors(self):
        """What it has complained about so far."""
        return _text(self._errors)

    def says(self, text, *, deadline_s=DEADLINE_S):
        """Wait until it has said so, on either stream; returns the line."""
        return until(lambda: self._line(text), timeout_s=deadline_s, what=self._all)

    def _line(self, text):
        has_ended = self.process.poll() is not None  # asked first: its last words may come in between
        found = next((line for line in (self.out + self.errors).splitlines() if text in line), None)
        assert found is not None or not has_ended, self._all()
        return found

    def _all(self):
        return f"exit code {self.process.poll()}\n{self.out[-2000:]}\n{self.errors[-6000:]}"

    def kill(self):
        """As kill -9 does."""
        self.process.kill()
        self.process.wait(timeout=DEADLINE_S)

    def end(self, how=signal.SIGTERM, *, deadline_s=DEADLINE_S):
        """End it in order; returns the exit code."""
        self.process.send_signal(how)
        return self.wait(deadline_s=deadline_s)

    def wait(self, *, deadline_s=DEADLINE_S):
        """Wait for its end; returns the exit code."""
        try:
            return self.process.wait(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._all()) from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(timeout=DEADLINE_S)
        self._out.close()
        self._errors.close()


def _text(file):
    """All of it; the process writes on where it is, as the position is shared."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


def controller(data, *words, listen="127.0.0.1:0"):
    """`paritas control` on a folder."""
    return Command("control", "--data", data, "--listen", listen, *words)


def target_of(command):
    """Where it serves, once it does."""
    return command.says("escalations: ").split()[1]
