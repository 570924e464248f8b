"""Traces, and an agent that keeps what it takes, for the emitter's tests."""

import contextlib
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from paritas.agent.receiver import Receiver
from paritas.clock import SystemClock
from paritas.collectors.emitter import Emitter
from paritas.collectors.settings import EmitterLimits
from paritas.otlp_http import Target
from paritas.records import KernelIdentity, Role, TokenTrace
from paritas.wire import decode

KERNEL = KernelIdentity(Role.INFERENCE, engine="vllm")
PATIENT_S = 60.0
# QUICK gives up at once, where nobody is to answer.  Who answers may be kept from it by a busy machine for longer.
QUICK = EmitterLimits(linger_s=0.001, timeout_s=0.2, retry_first_s=0.001, retry_most_s=0.01, retry_for_s=0.1)
PATIENT = replace(QUICK, timeout_s=PATIENT_S, retry_for_s=PATIENT_S)


def trace(number, tokens=4):
    return TokenTrace(
        "run",
        f"s{number}",
        KERNEL,
        np.full(tokens, -0.5, np.float32),
        np.arange(1, tokens + 1, dtype=np.uint64),
        np.zeros(tokens, np.uint8),
    )


def emitter_to(path, limits=PATIENT, **named):
    return Emitter(Target(unix_path=path), clock=SystemClock(), limits=limits, **named)


def holds(emitter):
    """The account, which must balance in every reading."""
    told = emitter.read()
    assert told.accepted == told.delivered + sum(told.dropped.values()) + told.queued, told
    return told


class Agent:
    """A real receiver whose log is a list; may be told to be full."""

    def __init__(self, path):
        self.records, self.failing = [], None
        self._receiver = Receiver(path, self._append)

    def _append(self, record):
        if self.failing is not None:
            raise self.failing
        self.records.append(record)

    def __enter__(self):
        self._receiver.__enter__()
        return self

    def __exit__(self, *_):
        self._receiver.close()

    def traces(self):
        return [one for record in self.records for one in decode(record.value).traces]

    def sequences(self):
        return [one.sequence_id for one in self.traces()]


@contextlib.contextmanager
def socket_path():
    """A path short enough for a socket."""
    with TemporaryDirectory() as folder:
        yield Path(folder) / "otlp.sock"
