"""The detector and the controller as real processes that are killed and started again."""

import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from system.agent_process import DEADLINE_S, until

from paritas.agent.eventlog import Cursor
from paritas.contracts.load import load_named
from paritas.controller.compaction import Retention
from paritas.controller.store import Store
from paritas.controller.topic import escalation_from
from paritas.detectors import snapshot

PROGRAM = Path(__file__).with_name("offset_command.py")
CONTRACT = "dense-bf16"


class CommandProcess:
    """One `paritas` command; each of its lives has a log of its own."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.offset = folder / f"{name}.offset"
        self.offset.write_text("0")
        self.lives = 0
        self._process = None

    def spawn(self, *words):
        self.lives += 1
        command = [sys.executable, str(PROGRAM), str(self.offset), *map(str, words)]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def log(self):
        """What the present or last life said."""
        return self.folder / f"{self.name}-{self.lives}.log"

    def said(self, text):
        return text in self.log.read_text()

    def code(self):
        """How it ended; None while it runs."""
        return self._process.poll()

    def wait(self):
        """Wait until it ends by itself, in order."""
        code = self._process.wait(timeout=2 * DEADLINE_S)
        assert code == 0, self.log.read_text()[-4000:]

    def kill(self):
        """End it at once; nothing happens if it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=DEADLINE_S)


class ControlProcess(CommandProcess):
    """A controller; started again it is at the same address."""

    def __init__(self, folder, name):
        super().__init__(folder, name)
        self.home = folder / name
        self.target = "127.0.0.1:0"

    def start(self):
        self.spawn("control", "--listen", self.target, "--data", self.home)
        until(lambda: self.said("(gRPC)") or self.code() is not None, "the controller listens")
        assert self.code() is None, self.log.read_text()[-4000:]
        self.target = self.log.read_text().split()[1]

    def escalations(self):
        """What it keeps, in order: all that a subscriber may ever read."""
        store = Store(self.home / "escalations.sqlite", retention=Retention())
        try:
            return [repr(escalation_from(event.payload)) for event in store.read(after=0, limit=100_000)]
        finally:
            store.close()


@dataclass(frozen=True)
class Judged:
    """All that a detector says in the end, and how it came to it."""

    line: str
    verdicts: tuple
    reasons: dict
    tokens: dict
    repeated: int
    escalations: list

    def same(self, other):
        """Compare field by field, so that a difference reads well."""
        assert self.escalations == other.escalations
        assert list(map(repr, self.verdicts)) == list(map(repr, other.verdicts))
        assert (self.reasons, self.tokens, self.repeated) == (other.reasons, other.tokens, other.repeated)
        assert self.line == other.line
        return True


class DetectorProcess(CommandProcess):
    """A detector of one topic that publishes to one controller; its state outlives it."""

    def __init__(self, folder, name, place, control, state=None):
        super().__init__(folder, name)
        self.place, self.control = place, control
        self.state = state or folder / f"{name}.state"
        self.verdicts = folder / f"{name}.json"
        self.saved_before = 0

    def start(self):
        """Judge what comes, until it is killed."""
        self.saved_before = self.saved_ns()
        self.spawn("detect", *self._words())

    def _words(self):
        options = {
            "--kafka": self.place.broker.bootstrap,
            "--topic": self.place.topic,
            "--contract": CONTRACT,
            "--controller": self.control.target,
            "--deployment": "d",
            "--state": self.state,
        }
        return [word for option in options.items() for word in option]

    @property
    def judges(self):
        """Whether this life has opened the topic."""
        return self.said("judging")

    @property
    def saved(self):
        """Whether this life has saved its state."""
        return self.saved_ns() > self.saved_before

    def saved_ns(self):
        with suppress(FileNotFoundError):
            return self.state.stat().st_mtime_ns
        return 0

    def to_end(self):
        """Judge the rest of the topic and end; returns what it said in all its lives."""
        self.spawn("detect", *self._words(), "--to-end", "--verdicts", self.verdicts)
        self.wait()
        self.control.kill()
        saved = Cursor(self.state).load().snapshot
        detector = snapshot.load(saved, contract_digest=load_named(CONTRACT).digest)
        return Judged(
            self.verdicts.read_text(),
            detector.verdicts(),
            {str(reason): n for reason, n in detector.evaluator.reasons.items()},
            detector.account.tokens,
            detector.repeated_records,
            self.control.escalations(),
        )
