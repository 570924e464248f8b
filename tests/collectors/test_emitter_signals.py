"""A host whose signal handlers emit and close: wherever the signal comes, nobody waits for himself."""

import os
import subprocess
import sys
import textwrap

import pytest

# A real signal at every line of ours and of threading's events that the main thread runs, one at a time.
EVERYWHERE = textwrap.dedent("""
    import signal, sys, threading
    from dataclasses import replace
    from pathlib import Path
    from emitter_scenes import PATIENT_S, QUICK, Agent, emitter_to, holds, socket_path, trace

    OURS = ("emitter.py", "emitter_queue.py", "emitter_courier.py", "reentrant_event.py", "threading.py")
    signalled = set()

    def tracing(frame, event, _):
        if frame.f_code.co_filename.rpartition("/")[2] not in OURS or frame.f_code.co_name == "_bootstrap":
            return None
        place = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and place not in signalled:
            signalled.add(place)
            signal.raise_signal(signal.SIGUSR1)
        return tracing

    def handler(*_):
        {act}

    signal.signal(signal.SIGUSR1, handler)
    with socket_path() as path, Agent(path) as agent:
        # Each trace fills a batch, so that each is a hurry, too; nothing is carried before it is told.
        emitter = emitter_to(path, replace(QUICK, batch_bytes=1, linger_s=3600.0, timeout_s=PATIENT_S))
        emitter.emit(trace(0))
        assert emitter.flush(timeout_s=PATIENT_S)
        sys.settrace(tracing)
        emitter.emit(trace(1))
        {then}
        sys.settrace(None)
        {check}
    print("ended")
""")
EMITS = EVERYWHERE.format(
    act="emitter.emit(trace('signal'))",
    then="emitter.emit_many([trace(2)])",
    check="assert emitter.flush(timeout_s=PATIENT_S) and holds(emitter).dropped == {} and len(signalled) > 20;"
    " assert holds(emitter).delivered == 3 + len(signalled), (holds(emitter), len(signalled)); emitter.close(timeout_s=0)",
)
CLOSES = EVERYWHERE.format(
    act="emitter.close(timeout_s=0)",
    then="emitter.close(timeout_s=0)",
    check="assert holds(emitter).queued == 0",
)


@pytest.mark.parametrize("script", [EMITS, CLOSES], ids=["emits", "closes"])
def test_a_handler_may_act_at_any_line(script):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120, env=env
    )
    assert (run.stdout, run.stderr) == ("ended\n", "")
