"""A real agent process that is started, killed and asked, under a wall clock that a test can move.

As a program it is the agent of a configuration file: ``python agent_process.py CONFIG OFFSET_FILE``.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paritas.clock import SystemClock

AGENT = "pod-7"
DEADLINE_S = 90
METRIC = re.compile(r'^paritas_agent_([a-z_]+)(?:\{[a-z]+="([a-z_]+)"\})? (\S+)$', re.MULTILINE)


class OffsetClock(SystemClock):
    """The machine's clocks, with a wall clock that is off by what a file says."""

    def __init__(self, path):
        self._path = path

    def now_ns(self):
        return super().now_ns() + int(self._path.read_text() or 0)


def until(condition, what, deadline_s=DEADLINE_S):
    """Wait for a condition; returns its first true value."""
    clock, never = SystemClock(), threading.Event()
    end_ns = clock.monotonic_ns() + deadline_s * 10**9
    while clock.monotonic_ns() < end_ns:
        if value := condition():
            return value
        clock.wait(never, timeout_s=0.02)
    raise AssertionError(f"not within {deadline_s} s: {what}")


class AgentProcess:
    """The agent of one configuration file, started again and again."""

    def __init__(self, folder, destination, spool=None, extra=""):
        self.folder, self.destination = folder, destination
        self.spool = spool or folder / "spool"
        self.socket, self.offset, self.log = folder / "s", folder / "offset", folder / "agent.log"
        self.config, self.extra = folder / "agent.yaml", extra
        self.offset.write_text("0")
        self.configure()
        self.health = ""
        self._process = None

    def configure(self, **spool):
        told = {
            "path": str(self.spool),
            "segment_bytes": 262144,
            "limit_bytes": 1 << 28,
            "max_age": "1h",
            **spool,
        }
        fields = ", ".join(f"{name}: {value}" for name, value in told.items())
        self.config.write_text(
            f"name: {AGENT}\nspool: {{{fields}}}\nreceivers: {{unix: {{path: {self.socket}}}}}\n"
            f"destination: {self.destination.config()}\nhealth: {{listen: '127.0.0.1:0', report: 1s}}\n"
            f"shipping: {{retry_first: 50ms, retry_most: 200ms}}\n{self.extra}"
        )

    def start(self):
        with self.log.open("ab") as log:
            command = [sys.executable, __file__, str(self.config), str(self.offset)]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        for line in self._process.stdout:
            if line.startswith("  health:"):
                self.health = line.split()[1].removesuffix("/readyz")
            if line == "ready\n":
                return
        raise AssertionError(f"the agent did not start:\n{self.log.read_text()[-4000:]}")

    def kill(self):
        self._process.kill()
        self._end()

    def stop(self):
        """End it in order; returns its farewell."""
        self._process.send_signal(signal.SIGTERM)
        return self._end()

    def reload(self):
        self._process.send_signal(signal.SIGHUP)

    def _end(self):
        text, _ = self._process.communicate(timeout=DEADLINE_S)
        return text

    @property
    def pid(self):
        return self._process.pid

    def end(self):
        """Make sure that nothing is left running."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def metrics(self):
        """One scrape; the invariant is checked in each."""
        with urllib.request.urlopen(f"{self.health}/metrics", timeout=DEADLINE_S) as answer:
            found = {
                (name, label): float(value) for name, label, value in METRIC.findall(answer.read().decode())
            }
        told = Account(
            accepted=found["records_accepted_total", ""],
            delivered=found["records_delivered_total", ""],
            queued=found["records_queued", ""],
            dropped={label: n for (name, label), n in found.items() if name == "records_dropped_total" and n},
            all=found,
        )
        assert told.accepted == told.delivered + sum(told.dropped.values()) + told.queued, told
        return told

    def ready(self):
        """The text of /readyz."""
        try:
            with urllib.request.urlopen(f"{self.health}/readyz", timeout=DEADLINE_S) as answer:
                return answer.read().decode().strip()
        except urllib.error.HTTPError as error:
            return error.read().decode().strip()

    def drained(self):
        """Wait until nothing is queued; returns that scrape."""

        def empty():
            told = self.metrics()
            return told if not told.queued and not told.all["own_records_queued", ""] else None

        return until(empty, "everything delivered")


@dataclass(frozen=True)
class Account:
    """One scrape."""

    accepted: float
    delivered: float
    queued: float
    dropped: dict
    all: dict


def main():
    from paritas.commands.agent import serve

    return serve(Path(sys.argv[1]), clock=OffsetClock(Path(sys.argv[2])))


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(main())
    os._exit(1)
