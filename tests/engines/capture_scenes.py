"""A training capture in front of a real receiver."""

import contextlib

from emitter_scenes import PATIENT_S, Agent, emitter_to, socket_path

from paritas.clock import SystemClock
from paritas.collectors.torch import Stamp, TorchCollector
from paritas.tokens import TokenHasher
from paritas.wire import decode

HASHER = TokenHasher(b"0123456789abcdef")


class Watched:
    """A collector and the agent it ends in."""

    def __init__(self, path, agent):
        self._agent = agent
        self.emitter = emitter_to(path)
        self.collector = TorchCollector(self.emitter, clock=SystemClock(), hasher=HASHER, stamp=Stamp("run"))

    def traces(self):
        """Everything that arrived, by role and sequence."""
        assert self.emitter.flush(timeout_s=PATIENT_S)
        found = {(t.kernel.role.value, t.sequence_id): t for t in self._agent.traces()}
        assert len(found) == len(self._agent.traces())
        return found

    def steps(self):
        """The steps whose duration arrived."""
        assert self.emitter.flush(timeout_s=PATIENT_S)
        return [step for record in self._agent.records for step in decode(record.value).steps]


@contextlib.contextmanager
def watched_capture():
    with socket_path() as path, Agent(path) as agent:
        watched = Watched(path, agent)
        with watched.collector:
            yield watched
