"""The emitter against the real receiver: what arrives, what is counted, what a fork gets."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from emitter_scenes import KERNEL, PATIENT, PATIENT_S, QUICK, Agent, emitter_to, holds, socket_path, trace
from hostile_peers import Peer, answering

from paritas.agent.intake import Intake
from paritas.agent.receivers.http import tcp_receiver
from paritas.clock import SystemClock
from paritas.collectors.emitter import Emitter, EmitterDrop
from paritas.collectors.emitter_queue import TRACE_BYTES, size_of
from paritas.errors import TransientError
from paritas.otlp_http import target_of
from paritas.records import GpuReading, GpuSample, StepTime, TokenTrace, TopK
from paritas.wire import decode


@pytest.fixture
def path():
    with socket_path() as found:
        yield found


@pytest.fixture
def agent(path):
    with Agent(path) as running:
        yield running


def test_traces_arrive_as_they_are(path, agent):
    first = replace(trace(1), itl_s=np.full(4, 0.25, np.float32), weights_version="7", group_id="g")
    with emitter_to(path, resource={"service.name": "engine"}) as emitter:
        emitter.emit_many([first, trace(2)])
        assert emitter.flush(timeout_s=PATIENT_S)
        assert holds(emitter).delivered == 2
    got, other = agent.traces()
    assert (got.sequence_id, got.weights_version, got.group_id) == ("s1", "7", "g")
    assert got.itl_s.tolist() == [0.25] * 4
    assert got.token.tolist() == first.token.tolist()
    assert other.sequence_id == "s2"
    assert b"engine" in agent.records[0].value
    assert str(os.getpid()).encode() in agent.records[0].value


def test_steps_and_gpus_arrive_beside_traces_and_count_as_they_do(path, agent):
    step = StepTime("run", 10**18, 0.5, 0.25, "7", {"replica": "a"})
    gpu = GpuReading("GPU-1", "H100", "", "9.0", None, True, 1980, None, 41, 600.5, 5, 80, 0.5, 4, 0)
    offered = [trace(1), step, GpuSample("run", 10**18, gpu)]
    with emitter_to(path) as emitter:
        emitter.emit_many([*offered, replace(step, attributes={"a": "\ud800"})])
        assert emitter.flush(timeout_s=PATIENT_S)
        told = holds(emitter)
    assert (told.accepted, told.delivered, told.dropped) == (4, 3, {EmitterDrop.ENCODE: 1})
    decoded = [decode(record.value) for record in agent.records]
    assert [one for told in decoded for one in (*told.steps, *told.gpus)] == offered[1:]
    assert {told.foreign_spans for told in decoded} == {0}
    assert agent.sequences() == ["s1"]


def test_several_traces_share_a_request(path, agent):
    limits = replace(PATIENT, linger_s=10.0)
    with emitter_to(path, limits) as emitter:
        emitter.emit_many(trace(n) for n in range(50))
        assert emitter.flush(timeout_s=PATIENT_S)
    assert sorted(agent.sequences()) == sorted(f"s{n}" for n in range(50))
    assert sum(agent._receiver.intake.answers.values()) == 1


def test_a_long_sequence_arrives_in_segments(path, agent):
    with emitter_to(path) as emitter:
        emitter.emit(trace(1, tokens=100_000))
        assert emitter.flush(timeout_s=PATIENT_S)
        assert holds(emitter).delivered == 1
    parts = agent.traces()
    assert len(parts) == 3
    assert sum(map(len, parts)) == 100_000
    assert [part.final for part in parts] == [False, False, True]


def test_localhost_works_too():
    records = []

    class Sink:
        def append(self, fresh):
            records.extend(fresh)

        def drop_unspooled(self, count, reason):
            raise AssertionError((count, reason))

    intake = Intake(Sink(), max_pending_bytes=1 << 24)
    with (
        tcp_receiver("127.0.0.1:0", intake, max_body_bytes=1 << 24) as receiver,
        Emitter(target_of(f"http://{receiver.address}"), clock=SystemClock(), limits=PATIENT) as emitter,
    ):
        emitter.emit(trace(1))
        assert emitter.flush(timeout_s=PATIENT_S)
    assert decode(records[0].value).traces[0].sequence_id == "s1"


def test_an_agent_that_comes_late_gets_everything(path):
    with emitter_to(path) as emitter:
        emitter.emit_many(map(trace, range(20)))
        while not emitter._works.courier._failures:  # it has tried once
            threading.Event().wait(0.001)
        assert holds(emitter).queued == 20
        with Agent(path) as agent:
            assert emitter.flush(timeout_s=PATIENT_S)
            assert holds(emitter).delivered == 20
            assert emitter.read().retries > 0
            assert len(agent.traces()) == 20


def test_an_agent_that_dies_and_comes_back(path):
    with emitter_to(path) as emitter:
        agents = []  # a connection that was open when the first closed may still be served by it
        for number in range(3):
            with Agent(path) as agent:
                agents.append(agent)
                emitter.emit(trace(number))
                assert emitter.flush(timeout_s=PATIENT_S)
        assert holds(emitter).delivered == 3
    assert [one for agent in agents for one in agent.sequences()] == ["s0", "s1", "s2"]


def test_a_killed_agent_and_its_successor(path):
    """As a process that is killed: the connection breaks, the next request meets its successor."""
    with emitter_to(path) as emitter:
        with Peer(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), path) as first:
            emitter.emit(trace(1))
            assert emitter.flush(timeout_s=PATIENT_S)
            assert first.connections == 1
        emitter.emit(trace(2))
        path.unlink()
        with Agent(path) as agent:
            assert emitter.flush(timeout_s=PATIENT_S)
            assert agent.sequences() == ["s2"]
        assert holds(emitter).delivered == 2


def test_a_full_agent_is_asked_again(path, agent):
    agent.failing = TransientError("full")
    with emitter_to(path) as emitter:
        emitter.emit(trace(1))
        assert not emitter.flush(timeout_s=0.05)
        agent.failing = None
        assert emitter.flush(timeout_s=PATIENT_S)
        assert (holds(emitter).delivered, agent.sequences()) == (1, ["s1"])


def test_an_absent_agent_costs_the_traces_and_nothing_else(path):
    with emitter_to(path, QUICK) as emitter:
        emitter.emit_many(map(trace, range(5)))
        assert emitter.flush(timeout_s=PATIENT_S)
        assert holds(emitter).dropped == {EmitterDrop.GAVE_UP: 5}


def test_the_newest_is_dropped_when_full(path):
    size = size_of(trace(0))
    emitter = emitter_to(path, replace(PATIENT, queue_traces=3))
    emitter.emit_many(map(trace, range(5)))
    assert holds(emitter).dropped == {EmitterDrop.QUEUE_TRACES: 2}
    emitter.close(timeout_s=0.0)
    bytes_only = emitter_to(path, replace(PATIENT, queue_bytes=2 * size))
    bytes_only.emit_many(map(trace, range(5)))
    told = holds(bytes_only)
    assert (told.dropped, told.queued_bytes) == ({EmitterDrop.QUEUE_BYTES: 3}, 2 * size)
    bytes_only.close(timeout_s=0.0)
    assert holds(bytes_only).dropped == {EmitterDrop.QUEUE_BYTES: 3, EmitterDrop.CLOSED: 2}


def test_nonsense_is_counted(path, agent):
    with emitter_to(path) as emitter:
        emitter.emit(None)
        emitter.emit_many(1)
        emitter.emit(replace(trace(1), itl_s=np.zeros(3, np.float32)))
        emitter.emit(replace(trace(2), sequence_id="\ud800"))
        emitter.emit(SimpleNamespace(**{name: getattr(trace(3), name) for name in TokenTrace.__slots__}))
        emitter.emit(trace(4))
        assert emitter.flush(timeout_s=PATIENT_S)
        told = holds(emitter)
    dropped = {EmitterDrop.INVALID: 2, EmitterDrop.ENCODE: 2, EmitterDrop.INTERNAL: 1}
    assert (told.accepted, told.delivered, told.dropped) == (6, 1, dropped)
    assert agent.sequences() == ["s4"]


def test_after_close_traces_are_counted(path, agent):
    emitter = emitter_to(path)
    emitter.emit(trace(1))
    emitter.close(timeout_s=PATIENT_S)
    emitter.close(timeout_s=PATIENT_S)
    emitter.emit(trace(2))
    assert holds(emitter).dropped == {EmitterDrop.CLOSED: 1}
    assert agent.sequences() == ["s1"]


def test_disabled_counts_and_starts_no_thread(path):
    before = threading.active_count()
    with emitter_to(path, is_enabled=False) as emitter:
        emitter.emit(trace(1))
        assert holds(emitter).dropped == {EmitterDrop.DISABLED: 1}
        assert threading.active_count() == before


def test_an_emitter_without_traces_holds_nothing(path):
    emitter = emitter_to(path)
    told = weakref.ref(emitter)
    del emitter
    gc.collect()
    assert told() is None


def test_size_of_counts_every_column():
    top = TopK(np.zeros((4, 2), np.uint64), np.zeros((4, 2), np.float32))
    wide = replace(trace(1), top=top, itl_s=np.zeros(4, np.float32))
    assert size_of(wide) == TRACE_BYTES + 4 * (4 + 8 + 1) + 4 * 4 + 4 * 2 * 12


def test_a_forked_child_starts_anew(path, agent):
    limits = replace(PATIENT, linger_s=10.0)
    emitter = emitter_to(path, limits)
    emitter.emit(trace("parent"))
    epoch = emitter.read().epoch_ns
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told = [emitter.read().accepted, int(emitter.read().epoch_ns > epoch)]
            emitter.emit(trace("child"))
            emitter.close(timeout_s=PATIENT_S)
            told += [holds(emitter).delivered]
            os.write(into, repr(told).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(out, 100) == b"[0, 1, 1]"
    os.close(out)
    os.close(into)
    assert agent.sequences() == ["schild"]
    emitter.close(timeout_s=PATIENT_S)
    assert sorted(agent.sequences()) == ["schild", "sparent"]
    assert holds(emitter).delivered == 1


def test_a_process_that_just_ends_delivers(path, agent):
    code = textwrap.dedent(f"""
        from pathlib import Path
        import numpy as np
        from paritas.clock import SystemClock
        from paritas.collectors.emitter import Emitter
        from paritas.collectors.settings import EmitterLimits
        from paritas.otlp_http import Target
        from paritas.records import KernelIdentity, Role, TokenTrace
        LIMITS = EmitterLimits(timeout_s={PATIENT_S}, exit_s={PATIENT_S})
        emitter = Emitter(Target(Path({str(path)!r})), clock=SystemClock(), limits=LIMITS)
        columns = np.zeros(2, np.float32), np.ones(2, np.uint64), np.zeros(2, np.uint8)
        emitter.emit(TokenTrace("r", "last", KernelIdentity(Role.TRAIN), *columns))
    """)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert agent.sequences() == ["last"]


def test_importing_it_loads_no_protobuf():
    code = "import sys, paritas.collectors.emitter; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"google.protobuf", "opentelemetry", "asyncio", "torch"} & set(run.stdout.split())


def test_many_threads_one_account(path, agent):
    with emitter_to(path, replace(PATIENT, queue_traces=100)) as emitter:
        threads = [
            threading.Thread(target=emitter.emit_many, args=([trace(f"{t}-{n}") for n in range(100)],))
            for t in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert emitter.flush(timeout_s=PATIENT_S)
        told = holds(emitter)
    assert (told.accepted, told.queued) == (400, 0)
    assert sorted(agent.sequences()) == sorted(set(agent.sequences()))
    assert len(agent.sequences()) == told.delivered


def test_empty_trace_arrives(path, agent):
    with emitter_to(path) as emitter:
        emitter.emit(
            TokenTrace(
                "run", "none", KERNEL, np.zeros(0, np.float32), np.zeros(0, np.uint64), np.zeros(0, np.uint8)
            )
        )
    assert agent.sequences() == ["none"]
