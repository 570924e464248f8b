"""`paritas agent` as a user runs it."""

import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from agent_scenes import recorded
from command_runs import DEADLINE_S, run, until

from paritas.agent.eventlog import EmbeddedReader
from paritas.wire import WireRecord
from paritas.wire.sender import Sender


def configured(path, **changes):
    told = {"name": "pod-7", "log": path / "log", "listen": "127.0.0.1:0", **changes}
    (path / "agent.yaml").write_text(
        f"name: {told['name']}\nspool: {{path: {path}/spool}}\nreceivers: {{unix: {{path: {path}/s}}}}\n"
        f"destination: {{embedded: {{path: {told['log']}, partitions: 1}}}}\n"
        f"health: {{listen: '{told['listen']}', report: 0s}}\ngrace: 60s\n"
    )
    return path / "agent.yaml"


@contextmanager
def agent(config):
    """A running agent; yields the process once it is ready, and ends it in order."""
    command = [str(Path(sys.executable).with_name("paritas")), "agent", "--config", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while (line := process.stdout.readline()) != "ready\n":
            assert line, process.stderr.read()
        yield process
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def send(path):
    with Sender(path / "s") as sender:
        for body in recorded():
            sender.send(WireRecord(b"", body))


def count(folder):
    with EmbeddedReader(folder) as log:
        return log.end_offsets()[0]


def test_it_ships_what_it_gets_and_says_at_the_end_where_everything_went(tmp_path):
    with agent(configured(tmp_path)) as process:
        send(tmp_path)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == (
            "stopped: 8 accepted = 8 delivered + 0 dropped (none) + 0 kept in the spool\n"
        )
    assert process.returncode == 0
    assert count(tmp_path / "log") == 8


def test_sighup_reads_the_file_again_and_a_bad_file_changes_nothing(tmp_path):
    with agent(configured(tmp_path)) as process:
        (tmp_path / "bad.yaml").write_text("spool: 7\n")
        (tmp_path / "bad.yaml").replace(tmp_path / "agent.yaml")  # in one step: never read half written
        process.send_signal(signal.SIGHUP)
        assert process.stderr.readline() == (
            f"[config] {tmp_path}/agent.yaml:1:1: missing field 'receivers'\n"
        )
        configured(tmp_path, log=tmp_path / "other")
        process.send_signal(signal.SIGHUP)
        until(lambda: process.stdout.readline() == f"reloaded {tmp_path}/agent.yaml\n")
        send(tmp_path)
    assert count(tmp_path / "other") == 8


def test_a_changed_file_is_read_without_being_told(tmp_path):
    with agent(configured(tmp_path)) as process:
        configured(tmp_path, log=tmp_path / "another-log")
        assert process.stdout.readline() == f"reloaded {tmp_path}/agent.yaml\n"
        send(tmp_path)
    assert count(tmp_path / "another-log") == 8


def test_check_reads_the_file_and_ends(tmp_path):
    done = run("agent", "--config", configured(tmp_path), "--check")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/agent.yaml: fine\n")
    (tmp_path / "agent.yaml").write_text("")
    done = run("agent", "--config", tmp_path / "agent.yaml", "--check")
    assert done.returncode == 64
    assert done.stderr.startswith(f"[config] {tmp_path}/agent.yaml:1:1: the file is empty\n")


def test_two_agents_on_one_spool_are_one_clear_error(tmp_path):
    with agent(configured(tmp_path)):
        done = run("agent", "--config", configured(tmp_path))
    assert done.returncode == 64
    assert "is already writing here" in done.stderr
    assert "Traceback" not in done.stderr
