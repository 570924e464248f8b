"""One writer at a time, named in the error, and never locked out by a dead one."""

import os
import subprocess
import sys

import pytest

from paritas.agent.eventlog import WriterLock
from paritas.errors import UsageError

HOLDER = """
import sys
from pathlib import Path
from paritas.agent.eventlog import WriterLock
lock = WriterLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_writer_is_told_who_the_first_is(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], **pipes) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UsageError) as caught:
            WriterLock(tmp_path)
        holder.kill()
    assert caught.value.render() == (
        f"[usage] {tmp_path}: process {holder.pid} is already writing here\n"
        "  hint: a log has one writer: stop the other, or give each its own directory"
    )
    with WriterLock(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_the_lock_binds_within_one_process_too(tmp_path):
    with WriterLock(tmp_path), pytest.raises(UsageError, match=f"process {os.getpid()} is already writing"):
        WriterLock(tmp_path)


def test_closing_lets_the_next_one_in(tmp_path):
    lock = WriterLock(tmp_path)
    lock.close()
    lock.close()
    with WriterLock(tmp_path):
        pass
