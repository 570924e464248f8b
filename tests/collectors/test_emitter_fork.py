"""A host that forks while the emitter is at work: the child neither hangs nor holds what is the parent's."""

import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from emitter_scenes import PATIENT_S, QUICK, emitter_to, trace
from hostile_peers import Peer, answering

from paritas import otlp_http

PATIENT = replace(QUICK, timeout_s=PATIENT_S, retry_for_s=PATIENT_S)
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"


@contextmanager
def forked(act):
    """Fork; the child does `act` and tells its result, which is yielded with its exit status; None if it hangs."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(into, repr(act()).encode())
        finally:
            os._exit(0)
    os.close(into)
    watched = os.pidfd_open(child)
    try:
        has_ended = bool(select.select([watched], [], [], PATIENT_S)[0])
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        yield os.read(out, 100).decode() if has_ended else None
    finally:
        os.close(watched)
        os.close(out)


@pytest.fixture
def reading(monkeypatch):
    """Set by the second read of an answer, when the lock of its buffer is held."""
    told, original, calls = threading.Event(), otlp_http._DeadlineSocket.recv_into, []

    def recv_into(self, *arguments, **named):
        calls.append(1)
        if len(calls) == 2:
            told.set()
        return original(self, *arguments, **named)

    monkeypatch.setattr(otlp_http._DeadlineSocket, "recv_into", recv_into)
    return told


def holds(inode):
    """Whether this process has a descriptor of that socket."""
    return any(_link(entry) == f"socket:[{inode}]" for entry in Path("/proc/self/fd").iterdir())


def _link(entry):
    try:
        return str(entry.readlink())
    except OSError:  # the one that listed the folder
        return ""


def test_a_fork_in_the_middle_of_an_answer_neither_hangs_nor_holds_the_connection(reading):
    with Peer(answering(HALF)) as peer, emitter_to(peer.path, PATIENT) as emitter:
        emitter.emit(trace(1))
        assert reading.wait(PATIENT_S)
        connection = emitter._works.client._connection.sock
        inode = os.fstat(connection.fileno()).st_ino
        assert holds(inode)
        with forked(lambda: (holds(inode), emitter.read().accepted)) as told:
            assert told == "(False, 0)"
        assert holds(inode)
        assert connection.fileno() > 0
        emitter.close(timeout_s=0)


def test_a_fork_between_two_requests_leaves_the_parents_connection_usable(reading):
    with Peer(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as peer:
        with emitter_to(peer.path, PATIENT) as emitter:
            emitter.emit(trace(1))
            assert emitter.flush(timeout_s=PATIENT_S)
            with forked(lambda: emitter.read().accepted) as told:
                assert told == "0"
            emitter.emit(trace(2))
            assert emitter.flush(timeout_s=PATIENT_S)
            assert emitter.read().delivered == 2
        assert peer.connections == 1


IMPORTING = textwrap.dedent("""
    import importlib.abc, os, select, signal, sys, threading
    from pathlib import Path
    import numpy as np
    from paritas.clock import SystemClock
    from paritas.collectors.emitter import Emitter
    from paritas.otlp_http import Target
    from paritas.records import KernelIdentity, Role, TokenTrace

    begun, goes_on = threading.Event(), threading.Event()

    class Slow(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name == "paritas.wire" and threading.current_thread().name == "paritas-emitter":
                begun.set()
                goes_on.wait(60)  # the lock of the module is held

    sys.meta_path.insert(0, Slow())
    emitter = Emitter(Target(unix_path=Path("/nonexistent")), clock=SystemClock())
    os.register_at_fork(before=goes_on.set)  # called before the emitter's own
    columns = np.zeros(2, np.float32), np.ones(2, np.uint64), np.zeros(2, np.uint8)
    emitter.emit(TokenTrace("r", "s", KernelIdentity(Role.TRAIN), *columns))
    assert begun.wait(60)
    child = os.fork()
    if child == 0:
        import paritas.wire
        os._exit(0)
    print(bool(select.select([os.pidfd_open(child)], [], [], 60)[0]), flush=True)
    os.kill(child, signal.SIGKILL)
    os._exit(0)
""")


def test_a_fork_while_the_thread_imports_leaves_the_child_no_locked_module():
    run = subprocess.run(
        [sys.executable, "-c", IMPORTING],
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (run.stdout, run.stderr) == ("True\n", "")
