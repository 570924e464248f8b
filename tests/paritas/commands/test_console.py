"""A console that is full, or that nobody reads: what long-running commands do goes on."""

import io
import logging
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from agent_scenes import recorded
from command_runs import DEADLINE_S, until

from paritas.agent.eventlog import EmbeddedReader
from paritas.commands.console import complain, say_now
from paritas.commands.console_log import ConsoleHandler
from paritas.errors import UsageError
from paritas.wire import WireRecord
from paritas.wire.sender import Sender

FULL = Path("/dev/full")


def unread():
    """A descriptor whose reader has left."""
    read, write = os.pipe()
    os.close(read)
    return write


def full():
    return os.open(FULL, os.O_WRONLY)


@contextmanager
def stream_to(descriptor):
    with io.TextIOWrapper(io.FileIO(descriptor, "w"), write_through=True) as stream:
        yield stream


@pytest.mark.parametrize("opened", [full, unread])
def test_who_logs_or_complains_goes_on(opened, monkeypatch):
    with stream_to(opened()) as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        complain("a\n")
        ConsoleHandler().emit(logging.makeLogRecord({"msg": "b", "levelname": "WARNING"}))


def test_what_is_said_is_lost_to_a_full_disk_and_told_of_a_reader_who_left(monkeypatch):
    with stream_to(full()) as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        say_now("a\n")
    with stream_to(unread()) as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        with pytest.raises(BrokenPipeError):
            say_now("a\n")


def configure(path, log):
    text = (
        f"name: pod-7\nspool: {{path: {path}/spool}}\nreceivers: {{unix: {{path: {path}/s}}}}\n"
        f"destination: {{embedded: {{path: {path}/{log}, partitions: 1}}}}\nhealth: {{listen: '127.0.0.1:0', report: 0s}}\n"
    )
    (path / "new.yaml").write_text(text)
    (path / "new.yaml").replace(path / "agent.yaml")


def send(path):
    with Sender(path / "s") as sender:
        sender.send(WireRecord(b"", recorded()[0]))
    return True


def is_sent(path):
    with suppress(UsageError):
        return send(path)


def has_arrived(path, log):
    with suppress(UsageError), EmbeddedReader(path / log) as reader:
        return reader.end_offsets()[0] > 0


@pytest.mark.parametrize("opened", [full, unread])
def test_an_agent_keeps_shipping_and_reads_its_file_again(opened, tmp_path):
    configure(tmp_path, "log")
    console = opened()
    command = [Path(sys.executable).with_name("paritas"), "agent", "--config", tmp_path / "agent.yaml"]
    process = subprocess.Popen(command, stdout=console, stderr=console)
    try:
        until(lambda: is_sent(tmp_path))
        until(lambda: has_arrived(tmp_path, "log"))
        (tmp_path / "agent.yaml").write_text("nonsense: 7\n")
        process.send_signal(signal.SIGHUP)
        configure(tmp_path, "other")
        process.send_signal(signal.SIGHUP)
        until(lambda: send(tmp_path) and has_arrived(tmp_path, "other"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=DEADLINE_S) in (0, 64)  # 64: what it said is not all there
    finally:
        process.kill()
        process.wait()
        os.close(console)
